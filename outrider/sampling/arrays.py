"""Names for the array types that the sampling maths takes and returns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatRow = npt.NDArray[np.float32]
"""One position's logits, one per id: float32 [width]."""

Values = npt.NDArray[np.float64]
"""Scaled logits, weights or scores: float64 [num_ids]."""

Ids = npt.NDArray[np.int64]
"""Token ids: int64 [num_ids]."""

Bits = npt.NDArray[np.uint64]
"""Hash bits of the noise, one word per id: uint64 [num_ids]."""
