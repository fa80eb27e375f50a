"""What control has learnt, kept in the shared store: a scheduler that starts begins with it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from outrider.wire.generation import DraftSource
from services.scheduler.control.acceptance import SHARED_DECAY, Acceptance

if TYPE_CHECKING:
    from outrider.store import ControlStore
    from services.scheduler.control.control import Control
    from services.scheduler.control.shared import Key, Shared

EVERY_S = 10.0


class ControlMemory:
    """Reads what there is of a target when its first session comes, and writes what was learnt since.

    Args:
        control: of this process.
        store: shared by all schedulers; the last one that writes wins.
    """

    def __init__(self, control: Control, store: ControlStore) -> None:
        self._control = control
        self._store = store
        self._read: set[str] = set()

    async def run(self) -> None:
        """Write now and then, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.write()

    async def read(self, target: str) -> None:
        """Begin with what is kept of a target; once, and never for long."""
        if target in self._read:
            return
        self._read.add(target)
        document = await self._store.load(target)
        if document is not None:
            take_over(self._control.shared(target), document)

    def write(self) -> None:
        """Keep what is known of all targets."""
        for target in self._control.targets:
            if document := summary_of(self._control.shared(target)):
                self._store.save(target, document)


def summary_of(shared: Shared) -> bytes:
    """JSON: workload, source and detail to counts; empty where nothing was learnt."""
    found = [
        [workload, key[0].name, key[1], acceptance.summary()]
        for workload, key, acceptance in shared.summaries()
    ]
    return json.dumps(found).encode() if found else b""


def take_over(shared: Shared, document: bytes) -> int:
    """Begin with what `summary_of` gave, pass over whatever else there is; how much was taken."""
    try:
        entries = json.loads(document)
    except ValueError:
        return 0
    taken = 0
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, list) or len(entry) != 4:
            continue
        workload, source, detail, rows = entry
        acceptance = Acceptance.from_summary(SHARED_DECAY, rows)
        key = _key(source, detail)
        if isinstance(workload, str) and key is not None and acceptance is not None:
            shared.begin_with(workload, key, acceptance)
            taken += 1
    return taken


def _key(source: object, detail: object) -> Key | None:
    if not isinstance(source, str) or source not in DraftSource.__members__:
        return None
    kind = DraftSource[source]
    wanted = str if kind is DraftSource.MODEL else int
    return (kind, detail) if type(detail) is wanted else None
