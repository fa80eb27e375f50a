"""Token ids as bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

MAX_ID = 2**31 - 1


def pack(ids: Sequence[int]) -> bytes:
    """Four bytes each, little-endian."""
    return struct.pack(f"<{len(ids)}I", *ids)


def unpack(data: bytes) -> tuple[int, ...] | None:
    """The ids; None when the bytes are none: whoever wrote them may have been anybody."""
    if len(data) % 4:
        return None
    ids = struct.unpack(f"<{len(data) // 4}I", data)
    return ids if all(each <= MAX_ID for each in ids) else None
