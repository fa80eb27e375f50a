"""The model behind a worker: weights, paged KV, and a forward whose bits do not depend on the batch."""
