"""Sessions held, leased and remembered."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.worker import registry as module
from outrider.worker.registry import Registry
from outrider.worker.session import Session, SessionKey
from tests.support.fake_runtime import FakeRuntime


def held(registry: Registry, number: int, connection: Any) -> Session:
    runtime: Any = registry.runtime
    sequence = runtime.new_sequence()
    runtime.reserve(sequence, 10)
    session = Session(
        SessionKey(b"p", bytes([number])), connection, 1, number, [1, 2], 1, sequence, state="sampler"
    )
    registry.add(session)
    return session


@pytest.fixture
def runtime() -> Any:
    return FakeRuntime()


def test_a_finished_session_is_remembered_without_what_it_held(runtime: Any):
    registry = Registry(runtime, lease_s=10)
    session = held(registry, 1, "stream")
    registry.finish(session)
    assert (len(registry), list(registry)) == (0, [])
    assert registry.get(session.key) is session
    assert (session.tokens, session.state) == ([], None)
    assert runtime.num_free_pages == runtime.num_pages


def test_finished_sessions_are_bounded(runtime: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_FINISHED", 3)
    registry = Registry(runtime, lease_s=10)
    sessions = [held(registry, number, "stream") for number in range(5)]
    for session in sessions:
        registry.finish(session)
    assert [registry.get(session.key) for session in sessions] == [None, None, *sessions[2:]]


def test_a_lease_ends_unless_the_session_is_taken_over(runtime: Any):
    registry = Registry(runtime, lease_s=10)
    lost, kept, other = (held(registry, number, stream) for number, stream in ((1, "a"), (2, "a"), (3, "b")))
    registry.finish(lost)
    registry.start_lease("a", now_ns=5)  # type: ignore[arg-type]  # any object serves as a stream
    assert registry.next_expiry_ns() == 10_000_000_005
    assert lost.connection is kept.connection is None
    registry.take_over(kept, "c")  # type: ignore[arg-type]  # likewise
    assert registry.expired(10_000_000_004) == []
    assert registry.expired(10_000_000_005) == [lost]
    registry.drop(lost)
    assert registry.next_expiry_ns() is None
    streams: list[Any] = [session.connection for session in (kept, other)]
    assert streams == ["c", "b"]
    assert registry.get(lost.key) is None
