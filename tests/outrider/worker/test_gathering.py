from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import cast

import pytest

from outrider.worker.gathering import LONGEST_NS, SHARE, Gathering
from outrider.worker.session import Session

MS = 1_000_000
FORWARD_NS = 30 * MS
ENDED_NS = 1000 * MS


def session(*, away_ns: int = 2 * MS, connected: bool = True) -> Session:
    """All of a session that counts here."""
    held = SimpleNamespace(
        rounds=deque(), finished=False, connection="a stream" if connected else None, away_ns=away_ns
    )
    return cast("Session", held)


def waited_s(*sessions: Session, after_ns: int = 0, took_ns: int = FORWARD_NS) -> float:
    gathering = Gathering()
    gathering.ran(sessions, took_ns, ENDED_NS)
    return gathering.remaining_s(ENDED_NS + after_ns)


def test_a_session_that_will_be_back_soon_is_waited_for():
    assert waited_s(session()) == pytest.approx(SHARE * FORWARD_NS / 1e9)
    assert waited_s(session(), after_ns=2 * MS) == pytest.approx((SHARE * FORWARD_NS - 2 * MS) / 1e9)


def test_the_wait_ends_in_any_case():
    assert waited_s(session(), after_ns=int(SHARE * FORWARD_NS)) == 0
    assert waited_s(session(), took_ns=1000 * MS, after_ns=LONGEST_NS) == 0


def test_nobody_waits_for_a_session_that_drafts_for_longer():
    assert waited_s(session(away_ns=20 * MS)) == 0


def test_nobody_waits_for_a_session_that_does_not_come_back():
    back, finished, lost = session(), session(), session(connected=False)
    back.rounds.append(None)
    finished.finished = True
    assert waited_s(back, finished, lost) == 0
    assert waited_s(back, finished, lost, session()) > 0


def test_the_wait_ends_when_the_last_one_has_come():
    gathering, late = Gathering(), session()
    gathering.ran([late], FORWARD_NS, ENDED_NS)
    assert gathering.remaining_s(ENDED_NS) > 0
    late.rounds.append(None)
    assert gathering.remaining_s(ENDED_NS) == 0
