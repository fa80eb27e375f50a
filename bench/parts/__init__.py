"""The parts of a run: each measures one thing and gives a JSON object."""
