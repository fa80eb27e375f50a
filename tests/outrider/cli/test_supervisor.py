import asyncio
import os
import signal
import sys

import pytest

from outrider.cli import supervisor as module
from outrider.cli.child import State
from outrider.cli.supervisor import StartFailed, Supervisor
from tests.outrider.cli.conftest import runs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


class Told(list[str]):
    """Lines as they are said, and a way to wait for one."""

    def __init__(self):
        super().__init__()
        self.changed = asyncio.Event()

    def __call__(self, line):
        self.append(line)
        self.changed.set()

    async def wait_for(self, text):
        async with asyncio.timeout(30):
            while not any(text in line for line in self):
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def supervised(child):
    """supervised(child, ...) starts a supervisor, and stops it behind the test."""
    made = []

    def make(*children, restart=True):
        told = Told()
        made.append(Supervisor(children, restart=restart, say=told))
        return made[-1], told

    yield make
    for each in made:
        each.kill()
        await each.stop()


async def test_children_start_side_by_side_and_stop(child, supervised):
    children = [child("validator"), child("scheduler"), child("gateway")]
    supervisor, _ = supervised(*children)
    await supervisor.start()
    assert [each.state for each in children] == [State.READY] * 3
    pids = [each.pid for each in children]
    assert all(map(runs, pids))
    await supervisor.stop()
    assert not any(map(runs, pids))
    assert "stub speaks 4711" in children[0].log.read_text()


async def test_a_child_that_dies_at_the_start_is_named_with_the_end_of_its_log(child, supervised):
    broken = child("validator", mode="broken")
    supervisor, _ = supervised(child("draft"), broken)
    with pytest.raises(StartFailed, match="validator ended with exit code 2 before it was ready") as caught:
        await supervisor.start()
    assert caught.value.child is broken
    assert broken.tail().splitlines()[-1] == "outrider-stub: --model is 'x': no such model"


async def test_a_child_that_will_not_stop_is_killed(child, supervised, monkeypatch):
    monkeypatch.setattr(module, "STOP_GRACE_S", 0.2)
    stubborn = child("draft", mode="stubborn")
    supervisor, _ = supervised(stubborn)
    await supervisor.start()
    await supervisor.stop()
    assert not runs(stubborn.pid)
    assert stubborn.ending == "was killed by SIGKILL"


async def test_a_child_that_is_killed_is_started_again_and_the_others_go_on(child, supervised):
    validator, draft = child("validator"), child("draft")
    supervisor, told = supervised(validator, draft)
    await supervisor.start()
    first, other = validator.pid, draft.pid
    changes = []
    watching = asyncio.create_task(supervisor.watch(lambda: changes.append(validator.state)))
    os.kill(first, signal.SIGKILL)
    await told.wait_for("validator is ready again")
    assert "validator was killed by SIGKILL" in told[0]
    assert "started again" in told[0]
    assert validator.pid != first
    assert runs(validator.pid)
    assert (draft.pid, runs(other)) == (other, True)
    assert changes == [State.ENDED, State.READY]
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_without_restart_a_death_is_told_and_the_watch_ends_with_the_last(child, supervised):
    validator, draft = child("validator"), child("draft")
    supervisor, told = supervised(validator, draft, restart=False)
    await supervisor.start()
    watching = asyncio.create_task(supervisor.watch(lambda: None))
    os.kill(draft.pid, signal.SIGTERM)
    await told.wait_for("draft was killed by SIGTERM")
    assert "the others go on" in told[0]
    assert runs(validator.pid)
    assert not watching.done()
    os.kill(validator.pid, signal.SIGKILL)
    await asyncio.wait_for(watching, 30)


async def test_the_gap_before_a_restart_grows_while_it_does_not_help(child, supervised, monkeypatch):
    monkeypatch.setattr(module, "FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(module, "LAST_BACKOFF_S", 0.04)
    broken = child("draft", mode="broken")
    supervisor, told = supervised(broken)
    with pytest.raises(StartFailed):
        await supervisor.start()
    watching = asyncio.create_task(supervisor.watch(lambda: None))
    while len(told) < 5:
        await told.changed.wait()
        told.changed.clear()
    watching.cancel()
    gaps = [line.rpartition(" in ")[2] for line in told[:5]]
    assert gaps == ["0.01 s", "0.02 s", "0.04 s", "0.04 s", "0.04 s"]


PARENT = """
import asyncio, pathlib, sys
from outrider.cli.child import Child
from outrider.cli.plan import ChildPlan

async def main():
    child = Child(ChildPlan("draft", "outrider_stub", 4711, ("--mode=stubborn",)), pathlib.Path(sys.argv[1]))
    await child.start()
    await child.wait_ready()
    print(child.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_children_die_with_a_parent_that_was_killed(child, tmp_path):
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    pid = int(await asyncio.wait_for(parent.stdout.readline(), 30))
    assert runs(pid)
    parent.kill()
    await parent.wait()
    async with asyncio.timeout(30):
        while runs(pid):  # noqa: ASYNC110  # the kernel sends no event
            await asyncio.sleep(0.02)
