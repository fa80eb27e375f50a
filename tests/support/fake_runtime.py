"""A runtime without a model: logits are a hash of the exact path, and every misuse is an error.

It does what `outrider.runtime.runtime.Runtime` promises, in numpy, so that the engine can be tested without
torch: a wrong row, a stale key, a page that was not reserved, a second thread or an id outside the vocabulary
shows at once.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from outrider.runtime.errors import OutOfPages
from outrider.runtime.prefix import chained
from outrider.runtime.reuse import PrefixCounters
from outrider.runtime.sequence import Segment
from outrider.wire.worker import Exactness, ModelInfo, TokenizerFiles

PAGE_SIZE = 64


@dataclass(slots=True, eq=False)
class FakeSequence:
    """`held` are the tokens whose KV is there; `nodes` the pending tree as (token, parent)."""

    held: list[int] = field(default_factory=list)
    nodes: list[tuple[int, int]] = field(default_factory=list)
    num_pages: int = 0
    scope: bytes | None = None

    @property
    def length(self) -> int:
        return len(self.held)

    @property
    def num_rows(self) -> int:
        return len(self.held) + len(self.nodes)


class FakeRuntime:
    """Deterministic in (salt, path); `vocab_size` real ids of `width` logits."""

    page_size = PAGE_SIZE
    cost = None

    def __init__(
        self,
        *,
        vocab_size: int = 40,
        width: int = 48,
        num_pages: int = 64,
        context_length: int = 512,
        max_rows: int = 1024,
        eos_ids: tuple[int, ...] = (2,),
        salt: str = "target",
        ids: str = "ids",
    ) -> None:
        self.max_rows = max_rows
        self.num_pages = num_pages
        self.num_free_pages = num_pages
        # Beginnings of sequences, whole pages of them, for others of the scope. Nothing is evicted.
        self.shared: set[tuple[bytes, tuple[int, ...]]] = set()
        self.num_kept_pages = 0
        self.num_hit_tokens = 0
        self.vocab_size = vocab_size
        self.info = ModelInfo(
            model=f"fake-{salt}",
            weight_fingerprint=f"weights-{salt}",
            tokenizer_fingerprint=ids,
            vocab_size=vocab_size,
            context_length=context_length,
            numerics_id=f"numerics-{salt}",
            exactness=Exactness.BITWISE,
            dtype="float32",
            device="cpu",
            eos_ids=eos_ids,
            model_version=f"version-{salt}",
            instance_id=b"i" * 16,
        )
        self.tokenizer = TokenizerFiles(b"{}", "", {}, ids)
        # Rows of each step, for tests that look at the batch.
        self.steps: list[list[int]] = []
        # Tokens that break whoever has them in its path: with NaN, or with an exception.
        self.nan_token: int | None = None
        self.crash_token: int | None = None
        # Called at the start of each step, for tests that hold the engine there.
        self.on_step: Callable[[], None] = lambda: None
        self._logits = functools.lru_cache(maxsize=None)(self._compute)
        self._salt = salt
        self._width = width
        self._owner: int | None = None

    def logits(self, path: Sequence[int]) -> np.ndarray:
        """The row behind `path`, float32 [width]; for tests it is the truth."""
        return self._logits(tuple(path))

    @property
    def prefix_counters(self) -> PrefixCounters:
        return PrefixCounters(num_hit_tokens=self.num_hit_tokens)

    def new_sequence(self, scope: bytes | None = None) -> FakeSequence:
        return FakeSequence(scope=scope)

    def share(self, sequence: FakeSequence, tokens: Sequence[int]) -> None:
        self._check_thread()
        if sequence.scope is None:
            return
        for stop in range(PAGE_SIZE, min(sequence.length, len(tokens)) + 1, PAGE_SIZE):
            if sequence.held[:stop] == list(tokens[:stop]):
                self.shared.add((sequence.scope, tuple(tokens[:stop])))

    def reuse(self, sequence: FakeSequence, tokens: Sequence[int]) -> int:
        """Copies, so that pages are counted once for each holder."""
        self._check_thread()
        before = sequence.length
        if sequence.scope is None or sequence.nodes or before % PAGE_SIZE:
            return 0
        for stop in range(before + PAGE_SIZE, len(tokens), PAGE_SIZE):
            found = (sequence.scope, tuple(tokens[:stop])) in self.shared
            if not found or not self.can_reserve(sequence, PAGE_SIZE):
                break
            self.reserve(sequence, PAGE_SIZE)
            sequence.held.extend(tokens[stop - PAGE_SIZE : stop])
        self.num_hit_tokens += sequence.length - before
        return sequence.length - before

    def next_page(self, sequence: FakeSequence, tokens: Sequence[int]) -> bytes | None:
        if sequence.scope is None or sequence.length % PAGE_SIZE:
            return None
        ids = tokens[: sequence.length + PAGE_SIZE]
        return chained(sequence.scope, ids) if len(ids) == sequence.length + PAGE_SIZE else None

    def num_missing_pages(self, scope: bytes | None, tokens: Sequence[int]) -> int:
        return len(tokens) // PAGE_SIZE + 1

    def can_reserve(self, sequence: FakeSequence, num_tokens: int) -> bool:
        self._check_thread()
        return self._missing(sequence, num_tokens) <= self.num_free_pages

    def reserve(self, sequence: FakeSequence, num_tokens: int) -> None:
        missing = self._missing(sequence, num_tokens)
        if missing > self.num_free_pages:
            raise OutOfPages("no page is free")
        sequence.num_pages += missing
        self.num_free_pages -= missing

    def truncate(self, sequence: FakeSequence, length: int) -> None:
        self._check_thread()
        _must(0 <= length <= sequence.length, f"truncate {sequence.length} to {length}")
        del sequence.held[length:]
        sequence.nodes.clear()

    def keep(self, sequence: FakeSequence, path: Sequence[int]) -> None:
        self._check_thread()
        parents = [sequence.nodes[node][1] for node in path]
        _must(parents == [-1, *path[:-1]][: len(path)], f"{path} is no path")
        sequence.held.extend(sequence.nodes[node][0] for node in path)
        sequence.nodes.clear()

    def release(self, sequence: FakeSequence) -> None:
        self._check_thread()
        self.num_free_pages += sequence.num_pages
        _must(self.num_free_pages <= self.num_pages, "pages were freed twice")
        sequence.held.clear()
        sequence.nodes.clear()
        sequence.num_pages = 0

    def step(self, segments: Sequence[Segment]) -> list[np.ndarray]:
        self._check_thread()
        self.on_step()
        rows = [len(segment.tokens) for segment in segments]
        _must(all(rows), "a segment is empty")
        _must(sum(rows) <= self.max_rows, f"{sum(rows)} rows")
        self.steps.append(rows)
        self._crash_if_asked(segments)
        return [self._run(segment) for segment in segments]

    def _run(self, segment: Segment) -> np.ndarray:
        sequence: FakeSequence = segment.sequence  # type: ignore[assignment]  # a stand-in
        ids = [token for token in segment.tokens if not 0 <= token < self.vocab_size]
        _must(not ids, f"ids {ids} are outside the vocabulary")
        paths: list[list[int]] = []
        if segment.parents is None:
            _must(not sequence.nodes, "a chain behind a pending tree")
            for token in segment.tokens:
                sequence.held.append(token)
                paths.append(list(sequence.held))
        else:
            _must(len(segment.parents) == len(segment.tokens), "parents do not fit")
            for token, parent in zip(segment.tokens, segment.parents, strict=True):
                _must(-1 <= parent < len(sequence.nodes), f"parent {parent}")
                sequence.nodes.append((token, parent))
                paths.append(sequence.held + _branch(sequence, len(sequence.nodes) - 1))
        _must(sequence.num_rows <= sequence.num_pages * PAGE_SIZE, "rows were not reserved")
        return np.array([self.logits(paths[row]) for row in segment.wanted], dtype=np.float32)

    def _compute(self, path: tuple[int, ...]) -> np.ndarray:
        if self.nan_token is not None and self.nan_token in path:
            return np.full(self._width, np.nan, dtype=np.float32)
        digest = hashlib.blake2b(f"{self._salt}:{path}".encode(), digest_size=8).digest()
        generator = np.random.default_rng(int.from_bytes(digest, "little"))
        return (3 * generator.standard_normal(self._width)).astype(np.float32)

    def _crash_if_asked(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            sequence: FakeSequence = segment.sequence  # type: ignore[assignment]  # a stand-in
            if self.crash_token in (*sequence.held, *segment.tokens):
                raise RuntimeError("the device has failed")

    def _missing(self, sequence: FakeSequence, num_tokens: int) -> int:
        return max(0, -(-(sequence.num_rows + num_tokens) // PAGE_SIZE) - sequence.num_pages)

    def _check_thread(self) -> None:
        self._owner = self._owner or threading.get_ident()
        _must(self._owner == threading.get_ident(), "a second thread uses the runtime")


class Hold:
    """Holds the engine in front of its next forward until `release`."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self._reached, self._released = threading.Event(), threading.Event()
        runtime.on_step = self._wait

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30)

    def release(self) -> None:
        self._released.set()

    def _wait(self) -> None:
        self._reached.set()
        assert self._released.wait(30)


def _branch(sequence: FakeSequence, node: int) -> list[int]:
    branch: list[int] = []
    while node >= 0:
        token, parent = sequence.nodes[node]
        branch.append(token)
        node = parent
    return branch[::-1]


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(f"the runtime is misused: {what}")
