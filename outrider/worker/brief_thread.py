"""Work on a thread that ends with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_brief_thread(work: Callable[[], T]) -> T:
    """Run `work` and wait for what it gives or raises; the thread is gone then.

    For all that computes with torch beside the engine. OpenMP keeps a team of threads for every thread that
    ever computed, and lets none of them spin for long once all teams together have more threads than there
    are cores. A pool's thread, idle since it loaded the model, would so make every step of the engine slower.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        if not done.done():  # else whoever waited has gone
            set_outcome(outcome)

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  # told to whoever waits
            loop.call_soon_threadsafe(tell, done.set_exception, error)
        else:
            loop.call_soon_threadsafe(tell, done.set_result, result)

    thread = threading.Thread(target=run, name="brief", daemon=True)
    thread.start()
    result = await done
    # It has nothing left to do; its team of threads goes with it.
    thread.join()
    return result
