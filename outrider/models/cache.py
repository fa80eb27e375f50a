"""Where fetched models lie."""

import os
from pathlib import Path

import platformdirs

from outrider.models.catalogue import MODELS, ModelFile
from outrider.models.errors import ModelMissing, UnknownModel

CACHE_DIR_VARIABLE = "OUTRIDER_CACHE_DIR"


def cache_dir() -> Path:
    """Outrider's cache folder: OUTRIDER_CACHE_DIR, or the platform's place for a user's caches."""
    chosen = os.environ.get(CACHE_DIR_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("outrider"))


def path_of(model: ModelFile) -> Path:
    """Where the model's file lies once it was fetched."""
    return cache_dir() / "models" / model.name / model.file_name


def is_fetched(model: ModelFile) -> bool:
    """Whether the whole file is in the cache, judged by its size."""
    path = path_of(model)
    return path.is_file() and path.stat().st_size == model.size_bytes


def resolve(name: str) -> Path:
    """The file of a fetched model.

    Its hash was checked when it was fetched; here only the size is, so that this costs nothing at a start.
    Raises UnknownModel, or ModelMissing with the command that fetches it.
    """
    if name not in MODELS:
        raise UnknownModel(name, MODELS)
    model = MODELS[name]
    path = path_of(model)
    if not is_fetched(model):
        found_bytes = path.stat().st_size if path.is_file() else None
        raise ModelMissing(name, path, found_bytes=found_bytes, expected_bytes=model.size_bytes)
    return path
