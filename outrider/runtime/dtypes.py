"""What a model can be held in; read by light processes too, so without torch."""

from __future__ import annotations

from typing import Final, Literal, get_args

Dtype = Literal["float32", "bfloat16", "float16", "int8", "int4"]
"""Of weights, activations and KV; int8 and int4 are the weights' alone, and all else is bfloat16 then."""

DTYPES: Final[tuple[str, ...]] = get_args(Dtype)
