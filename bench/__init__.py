"""`outrider bench`: how fast answers come, against plain decoding and against other programs, in one run."""
