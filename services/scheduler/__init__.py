"""The scheduler: one coroutine per session drafts, has the target verify, and commits, round after round."""
