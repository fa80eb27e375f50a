"""Outrider: what its services, its gateway and its clients share."""
