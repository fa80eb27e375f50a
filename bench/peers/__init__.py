"""Other programs that answer the same prompts, each a child process that is asked one question at a time."""
