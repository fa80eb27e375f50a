"""Rounds as they reach the scheduler's metrics, and what one session took."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from outrider.sampling.tree import DraftTree
from outrider.telemetry import In, Metrics
from outrider.wire.draft import Proposal
from outrider.wire.generation import DraftSource
from outrider.wire.validator import Verdict
from outrider.wire.worker import Timings, Transfer
from services.scheduler.metering import LAG, Meter
from services.scheduler.rounds import Ledger, RoundRecord
from services.scheduler.tallies import WINDOW, reached
from tests.support.metrics import Scrape, parsed

PREFILL = RoundRecord(committed=1, accepted=0, raw_accepted=0, drafted=0, prefill_only=True)
PLAIN = RoundRecord(committed=1, accepted=0, raw_accepted=0, drafted=0)


def drafted(accepted: int, k: int = 4, source: DraftSource = DraftSource.MODEL) -> RoundRecord:
    return RoundRecord(accepted + 1, accepted, accepted, k, source=source, depth=k)


class House:
    """A scheduler's metrics, and sessions that add to them."""

    def __init__(self) -> None:
        self._metrics = Metrics(In.SCHEDULER)
        self._meter = Meter(self._metrics)

    def session(self, waited_s: float = 0.0):
        return self._meter.session("m", waited_s=waited_s)

    def run(self, *records: RoundRecord, kept: int | None = None) -> Ledger:
        """One session of these rounds, cut at its end to `kept` tokens."""
        session, ledger = self.session(), Ledger()
        for record in records:
            session.applied(record, 0.0)
            ledger.apply(record)
        if kept is not None:
            session.cut(kept)
        session.close(ledger.counters(kept))
        return ledger

    @property
    def scrape(self) -> Scrape:
        return parsed(generate_latest(self._metrics.registry).decode())


@pytest.fixture
def house() -> House:
    return House()


def test_rounds_are_counted_by_who_drafted(house):
    house.run(PREFILL, drafted(4), drafted(1, k=2, source=DraftSource.NGRAM), PLAIN, drafted(0))
    scrape = house.scrape
    assert scrape.values("rounds_total", "draft_source") == {"model": 2, "ngram": 1, "none": 1}
    assert scrape.values("committed_tokens_total", "draft_source") == {"model": 6, "ngram": 2, "none": 1}
    assert scrape.values("spec_decode_num_drafts_total", "draft_source") == {"model": 2, "ngram": 1}
    assert scrape.values("spec_decode_num_draft_tokens_total", "draft_source") == {"model": 8, "ngram": 2}
    assert scrape.values("spec_decode_num_accepted_tokens_total", "draft_source") == {"model": 4, "ngram": 1}


def test_positions_tell_how_far_drafts_went_and_how_far_they_were_right(house):
    house.run(drafted(2), drafted(1, k=2), drafted(0))
    scrape = house.scrape
    of_model = {"label": "position", "draft_source": "model"}
    went = scrape.values("spec_decode_num_draft_tokens_per_pos_total", **of_model)
    assert went == {"0": 3, "1": 3, "2": 2, "3": 2}
    right = scrape.values("spec_decode_num_accepted_tokens_per_pos_total", **of_model)
    assert right == {"0": 2, "1": 1, "2": 0, "3": 0}


def test_a_round_is_held_back_while_a_stop_string_may_cut_it(house):
    session = house.session()
    for _ in range(LAG):
        session.applied(PLAIN, 0.0)
    assert house.scrape.total("rounds_total") == 0
    session.applied(PLAIN, 0.0)
    assert house.scrape.total("rounds_total") == 1
    session.close(Ledger().counters())
    assert house.scrape.total("rounds_total") == LAG + 1


rounds = st.lists(st.integers(0, 4).map(drafted), min_size=1, max_size=LAG)


@given(rounds, st.integers(0, 50))
def test_a_cut_leaves_the_metrics_where_it_leaves_the_sessions_counters(records, kept):
    house = House()
    kept = min(kept, 1 + sum(record.committed for record in records))
    counters = house.run(PREFILL, *records, kept=kept).counters(kept)
    scrape = house.scrape
    assert scrape.total("rounds_total") == counters.rounds
    assert scrape.total("committed_tokens_total") == counters.committed
    assert scrape.total("spec_decode_num_accepted_tokens_total") == counters.accepted
    assert scrape.total("spec_decode_num_raw_accepted_tokens_total") == counters.raw_accepted
    assert scrape.total("discarded_rounds_total") == counters.discarded_rounds
    right = scrape.values("spec_decode_num_accepted_tokens_per_pos_total", "position")
    assert tuple(right.values()) == counters.accepted_by_position


def test_the_mean_acceptance_length_looks_back_a_window(house):
    house.run(*[drafted(4)] * WINDOW)
    assert house.scrape.total("mean_acceptance_length") == 5
    house.run(*[drafted(0)] * (WINDOW // 2))
    assert house.scrape.total("mean_acceptance_length") == 3


def test_a_depth_is_reached_by_all_that_went_deeper():
    assert reached([0, 1, 0, 2], [5, 2, 1, 0]) == [3, 1, 0]
    assert reached([0, 0], [0, 0]) == []


def test_costs_are_what_waits_and_answers_add_up_to(house):
    session = house.session(waited_s=0.5)
    opened = Verdict((7,), 0, 0, 0, timings=Timings(queue_us=1000), prefill_only=True)
    session.verified(opened, 0.0)
    carried = Transfer(sent_bytes=90, received_bytes=50, encode_ns=9000, decode_ns=7000, hops=2)
    verdict = Verdict((8, 9), 1, 1, 2, timings=Timings(queue_us=20, compute_us=300), transfer=carried)
    session.verified(verdict, 0.0)
    timings = Timings(queue_us=5, compute_us=60)
    session.proposed(Proposal(DraftTree.chain((8, 1)), timings=timings, transfer=carried), timed=True)
    session.proposed(Proposal(DraftTree.empty(), timings=timings, transfer=carried), timed=False)
    costs = session.costs
    assert costs.queue_us == 501_000
    assert (costs.validator_queue_us, costs.validator_compute_us) == (20, 300)
    assert (costs.draft_queue_us, costs.draft_compute_us) == (5, 60)
    assert (costs.validator_sent_bytes, costs.validator_received_bytes) == (90, 50)
    assert (costs.draft_sent_bytes, costs.draft_received_bytes) == (180, 100)
    assert (costs.encode_us, costs.decode_us, costs.hops) == (27, 21, 6)
    # Both began at the clock's zero.
    assert costs.prefill_us > 0
    assert costs.verify_us > 0


def test_each_wait_is_observed_under_its_phase(house):
    session = house.session()
    session.looked_up(0.0)
    session.waited(0.0)
    session.verified(Verdict((7,), 0, 0, 0, prefill_only=True), 0.0)
    session.applied(PREFILL, 0.0)
    session.verified(Verdict((7,), 0, 0, 0), 0.0)
    session.applied(PLAIN, 0.0)
    counts = house.scrape.values("round_duration_seconds_count", "phase")
    seen = ("lookup", "draft", "prefill", "verify", "verify_queue", "verify_compute", "round")
    assert counts == {**dict.fromkeys(counts, 0), **dict.fromkeys(seen, 1)}
    assert house.scrape.total("request_queue_time_seconds_count") == 1
