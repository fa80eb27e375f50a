"""Memory of weight files that were read through and are not needed any more."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path


def release_pages(folder: Path) -> None:
    """Take the pages of `folder`'s files out of this process; what is read again comes back from the file.

    Weights are mapped from their files and copied into the form that the kernels want. While one tensor of a
    file is still used, such as the embedding, the file stays mapped whole, and with it every page that was
    ever read. Does nothing on systems other than Linux, and leaves files whose pages this
    process has changed.
    """
    maps = Path("/proc/self/smaps")
    if not maps.exists():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    prefix = f"{folder.resolve()}/"
    start, stop, is_ours = 0, 0, False
    for line in maps.read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            start, stop = (int(each, 16) for each in words[0].split("-"))
            is_ours = len(words) > 5 and words[5].startswith(prefix)
        elif is_ours and words[0] == "Anonymous:" and words[1] == "0":
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), mmap.MADV_DONTNEED)
