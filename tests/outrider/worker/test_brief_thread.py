from __future__ import annotations

import threading

import pytest

from outrider.worker.brief_thread import in_brief_thread


async def test_work_runs_elsewhere_and_nothing_is_left_of_it():
    before = threading.active_count()
    worked_on = await in_brief_thread(threading.current_thread)
    assert worked_on is not threading.current_thread()
    assert not worked_on.is_alive()
    assert threading.active_count() == before


async def test_what_it_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        await in_brief_thread(lambda: 1 // 0)
