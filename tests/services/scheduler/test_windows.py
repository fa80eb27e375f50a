from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.windows import Sums, Window


@given(
    events=st.lists(st.tuples(st.floats(0, 40), st.integers(1, 9)), max_size=60),
    num_buckets=st.integers(1, 5),
)
def test_a_window_holds_what_came_since_its_oldest_bucket_and_gives_up_the_rest(events, num_buckets):
    gone: list[Sums] = []
    window = Window(10.0, num_buckets, 0.0, on_gone=gone.append)
    now, seen = 0.0, []
    for pause, amount in events:
        now += pause
        window.add(now, amount, 2 * amount)
        seen.append((int(now // 10), amount))
    oldest = int(now // 10) - num_buckets + 1
    held = sum(amount for bucket, amount in seen if bucket >= oldest)
    assert window.sums(now) == Sums(held, 2 * held)
    assert sum(each.part for each in gone) == sum(amount for _, amount in seen) - held
    assert window.sums(now + 10 * num_buckets) == Sums()


def test_parts_of_a_window_are_counted_from_the_newest_bucket():
    window = Window(10.0, 4, 0.0)
    for number in range(4):
        window.add(10.0 * number, 10**number)
    assert window.sums(30.0, num_buckets=1).part == 1000
    assert window.sums(30.0, num_buckets=2, skipped=1).part == 110
    assert window.sums(30.0, num_buckets=9, skipped=3).part == 1


def test_right_after_the_start_a_window_covers_less():
    window = Window(1.0, 31, 100.5)
    assert window.covered_s(100.5) > 0
    assert window.covered_s(104.5) == 4.0
    assert window.covered_s(200.5) == 30.5


def test_a_ratio_needs_something_to_divide_by():
    assert Sums(1.0, 4.0).ratio == 0.25
    assert Sums().ratio is None
