"""The engine behind a worker's stream: sessions, leases and one batched forward for all that waits."""
