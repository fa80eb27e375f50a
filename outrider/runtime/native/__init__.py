"""A whole forward as one call of compiled code, for small models with 4-bit weights on the CPU."""

from outrider.runtime.native.forward import NativeForward
from outrider.runtime.native.library import native_library
from outrider.runtime.native.weights import NativeLinear, obstacle_to_native, store_native

__all__ = [
    "NativeForward",
    "NativeLinear",
    "native_library",
    "obstacle_to_native",
    "store_native",
]
