"""Real things that tests run against: servers, models and processes, started and stopped by fixtures."""
