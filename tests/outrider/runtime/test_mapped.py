from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

from outrider.runtime.mapped import release_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are told of by /proc")
SIZE = 1 << 20


def resident_kib(path: Path) -> int:
    found, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line.split()[0].endswith(":"):
            ours = str(path) in line
        elif ours and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


def mapped(path: Path, *, access: int) -> mmap.mmap:
    path.write_bytes(bytes(range(256)) * (SIZE // 256))
    with path.open("r+b") as file:
        view = mmap.mmap(file.fileno(), SIZE, access=access)
    assert sum(view[::4096]) >= 0  # reads every page
    return view


def test_pages_that_were_read_go_and_come_back(tmp_path):
    path = tmp_path / "weights"
    view = mapped(path, access=mmap.ACCESS_READ)
    assert resident_kib(path) == SIZE >> 10
    release_pages(tmp_path)
    assert resident_kib(path) == 0
    assert view[:] == path.read_bytes()


def test_files_of_other_folders_and_pages_that_were_written_to_stay(tmp_path):
    other, changed = tmp_path / "other" / "weights", tmp_path / "ours" / "weights"
    for path in (other, changed):
        path.parent.mkdir()
    kept = mapped(other, access=mmap.ACCESS_READ)
    view = mapped(changed, access=mmap.ACCESS_COPY)
    view[5000] = 7
    release_pages(changed.parent)
    assert resident_kib(other) == SIZE >> 10
    assert view[5000] == 7
    assert kept[:] == other.read_bytes()
