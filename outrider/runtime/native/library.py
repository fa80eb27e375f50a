"""The compiled code of `decoder.cpp`."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from outrider.runtime.compiling import NativeLibrary, compiled

_SOURCE = Path(__file__).with_name("decoder.cpp")
_NEEDED = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "f16c"})


@functools.cache
def native_library() -> NativeLibrary:
    """The functions of the compiled forward. Raises NoNativeLibrary."""
    loaded = compiled(_SOURCE, _NEEDED)
    loaded.outrider_decoder_new.restype = ctypes.c_void_p
    loaded.outrider_decoder_delete.argtypes = [ctypes.c_void_p]
    loaded.outrider_decoder_delete.restype = None
    loaded.outrider_decoder_forward.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return loaded
