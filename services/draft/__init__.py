"""The draft: a small model that proposes what the target will say."""
