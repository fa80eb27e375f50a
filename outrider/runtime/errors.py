"""Why a model can not be served or a step can not be run.

ModelError            the model can not be loaded or served; one sentence says why and what to do
+-- UnsupportedModel  its family can not keep the exact promise
OutOfPages            the KV pool has no room for the rows asked for
"""

from __future__ import annotations


class ModelError(Exception):
    """The model can not be loaded or served; the message is one sentence for the operator."""


class UnsupportedModel(ModelError):
    """The model's family can not keep the exact promise, or is not understood at all."""


class OutOfPages(Exception):  # a condition that callers ask about first, not a mistake
    """The KV pool has no room for the rows asked for."""
