"""Which scheduler is asked, and in which order."""

from gateway.schedulers import LEFT_ALONE_S, Schedulers

ADDRESSES = ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")


async def test_they_take_turns():
    schedulers = Schedulers(ADDRESSES)
    firsts = [next(iter(schedulers.in_turn())).address for _ in range(6)]
    assert firsts == [*ADDRESSES, *ADDRESSES]
    await schedulers.close()


async def test_one_that_was_lost_is_asked_last_for_a_while():
    now = [0.0]
    schedulers = Schedulers(ADDRESSES, clock=lambda: now[0])
    lost = next(iter(schedulers.in_turn()))
    schedulers.lost(lost)
    for _ in range(3):
        order = list(schedulers.in_turn())
        assert len(order) == 3
        assert order[-1] is lost
    now[0] += LEFT_ALONE_S + 1
    assert lost in [next(iter(schedulers.in_turn())) for _ in range(3)]
    await schedulers.close()
