"""Policies of the control, replayed on recorded drafts: what each would have made of them at any load."""
