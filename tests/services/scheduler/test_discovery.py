"""Names of workers, and the addresses that they have at the moment."""

from __future__ import annotations

import asyncio
import socket

import pytest

from services.scheduler import discovery
from services.scheduler.discovery import Discovery, resolve
from tests.support.waiting import until


class Names:
    """A name service that says what the test wants."""

    def __init__(self, **records: list[str] | Exception) -> None:
        self.records = records
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, name: str, port: int) -> list[str]:
        self.asked.append((name, port))
        found = self.records.get(name, [])
        if isinstance(found, Exception):
            raise found
        return [f"{host}:{port}" for host in found]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(discovery, "LOOK_UP_EVERY_S", 0.002)


@pytest.fixture
async def follow():
    """follow(names, entry, ...) gives a discovery that runs, and what it found, look by look."""
    tasks = []

    def begin(names, *entries):
        found = []
        made = Discovery(entries, found.append, names)
        tasks.append(asyncio.create_task(made.run()))
        return made, found

    yield begin
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_every_record_of_a_name_is_a_worker_beside_the_plain_addresses(follow):
    names = Names(drafts=["10.0.0.1", "10.0.0.2"])
    made, found = follow(names, "a:1", "dns:drafts:50053")
    assert made.addresses == {"a:1"}
    assert made.missing == {"dns:drafts:50053": "not looked up yet"}
    await until(lambda: found)
    assert made.addresses == {"a:1", "10.0.0.1:50053", "10.0.0.2:50053"}
    assert made.missing == {}
    assert names.asked[0] == ("drafts", 50053)


async def test_new_records_are_found_and_old_ones_vanish(follow):
    names = Names(drafts=["10.0.0.1"])
    made, found = follow(names, "dns:drafts:1")
    await until(lambda: found)
    names.records["drafts"] = ["10.0.0.2"]
    await until(lambda: made.addresses == {"10.0.0.2:1"})
    names.records["drafts"] = []
    await until(lambda: not made.addresses)
    assert made.missing == {"dns:drafts:1": "the name has no address"}


async def test_what_was_known_stays_while_the_name_service_fails(follow):
    names = Names(drafts=["10.0.0.1"])
    made, found = follow(names, "dns:drafts:1")
    await until(lambda: found)
    names.records["drafts"] = OSError(socket.EAI_AGAIN, "Temporary failure in name resolution")
    num_found = len(found)
    await until(lambda: len(found) >= num_found + 3)
    assert made.addresses == {"10.0.0.1:1"}
    assert made.missing == {}


async def test_a_name_that_was_never_known_says_why(follow):
    names = Names(drafts=OSError(socket.EAI_AGAIN, "Temporary failure in name resolution"))
    made, found = follow(names, "dns:drafts:1")
    await until(lambda: found)
    assert made.missing == {"dns:drafts:1": "no address: Temporary failure in name resolution"}


async def test_one_name_that_hangs_holds_no_other_up(follow):
    names = Names(drafts=["10.0.0.1"])

    async def slow(name, port):
        if name == "hanging":
            await asyncio.Event().wait()
        return await names(name, port)

    made, found = follow(slow, "dns:hanging:1", "dns:drafts:1")
    await until(lambda: len(found) >= 3)
    assert made.addresses == {"10.0.0.1:1"}


async def test_two_names_of_one_worker_are_one_worker(follow):
    made, found = follow(Names(a=["10.0.0.1"], b=["10.0.0.1"]), "dns:a:1", "dns:b:1", "10.0.0.1:1")
    await until(lambda: len(found) >= 2)
    assert made.addresses == {"10.0.0.1:1"}


async def test_without_names_there_is_nothing_to_follow():
    made = Discovery(("a:1",), lambda _: None)
    await made.run()
    assert made.addresses == {"a:1"}


async def test_the_machine_itself_is_known():
    assert "127.0.0.1:7" in await resolve("localhost", 7)


async def test_addresses_are_names_of_themselves():
    assert await resolve("127.0.0.1", 7) == {"127.0.0.1:7"}
    assert await resolve("::1", 7) == {"[::1]:7"}


async def test_a_name_that_can_be_none_is_an_error_of_the_name_service():
    with pytest.raises(OSError, match="no name"):
        await resolve("a" * 70, 7)


@pytest.mark.parametrize("error", [socket.EAI_NONAME, socket.EAI_NODATA])
async def test_no_such_name_is_an_answer(monkeypatch, error):
    async def none(*_, **__):
        raise socket.gaierror(error, "no such name")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", none, raising=False)
    assert await resolve("nobody", 7) == frozenset()


async def test_a_name_service_that_fails_is_none(monkeypatch):
    async def fails(*_, **__):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fails, raising=False)
    with pytest.raises(OSError, match="Temporary failure"):
        await resolve("nobody", 7)
