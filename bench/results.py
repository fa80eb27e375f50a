"""The result folder: one JSON document that grows part by part."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

FILE = "result.json"


def folder_for(output: Path, models: str) -> Path:
    """OUTPUT/DATE-MODELS."""
    name = "-".join(Path(part).name for part in models.split(","))
    return output / f"{dt.datetime.now().astimezone():%Y-%m-%d}-{name}"


def load(folder: Path) -> dict[str, Any]:
    """The document, or an empty one."""
    try:
        document: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"parts": {}}
    return document


def store(folder: Path, part: str, found: dict[str, Any], **about: Any) -> dict[str, Any]:
    """Add or replace one part; what is said of the run belongs to that part."""
    document = load(folder)
    document["parts"][part] = {**about, **found}
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{FILE}"
    temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    temporary.replace(folder / FILE)
    return document
