"""How every process of Outrider listens, connects, fails, starts and stops over gRPC."""
