"""The command line: start the processes, generate, fetch models."""
