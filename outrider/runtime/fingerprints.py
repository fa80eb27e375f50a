"""What tells two sets of weights apart."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.models import cache_dir

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIGEST_BYTES = 16


def weight_fingerprint(folder: Path, dtype: str) -> str:
    """Hash configuration, weights and dtype of a checkpoint folder; 32 hex digits.

    Hashing takes about a second per gigabyte, so each file's digest is remembered in the cache folder for as
    long as its path, size and time of change stay the same.
    """
    memory = _Memory(cache_dir() / "fingerprints.json")
    digest = hashlib.blake2b(dtype.encode(), digest_size=_DIGEST_BYTES)
    for path in [folder / "config.json", *sorted(folder.glob("*.safetensors"))]:
        digest.update(bytes.fromhex(memory.digest_of(path)))
    memory.save()
    return digest.hexdigest()


def combined(parts: Iterable[str]) -> str:
    """Hash an ordered list of strings; 32 hex digits."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()


class _Memory:
    """Digests of files, by path, size and time of change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, str] = {}
        self._changed = False
        try:
            self._known = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            # Missing or damaged: everything is hashed again.
            self._known = {}

    def digest_of(self, path: Path) -> str:
        status = path.stat()
        key = f"{path.resolve()}:{status.st_size}:{status.st_mtime_ns}"
        if key not in self._known:
            with path.open("rb") as file:
                self._known[key] = hashlib.file_digest(file, _blake2b).hexdigest()
            self._changed = True
        return self._known[key]

    def save(self) -> None:
        if not self._changed:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._path.with_suffix(".new")
            temporary.write_text(json.dumps(self._known), encoding="utf-8")
            temporary.replace(self._path)
        except OSError:
            # A read-only cache costs time at the next start, and nothing else.
            return


def _blake2b() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)
