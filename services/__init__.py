"""The worker and control processes, one folder each; they know each other only over the wire."""
