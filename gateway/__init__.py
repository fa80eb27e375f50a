"""Text in, text out: the process that clients talk to."""
