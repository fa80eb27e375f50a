from hypothesis import given
from hypothesis import strategies as st

from outrider.wire.generation import Counters
from services.scheduler.rounds import Ledger, RoundRecord


def ledger(*records):
    result = Ledger()
    for record in records:
        result.apply(record)
    return result


PREFILL = RoundRecord(committed=1, accepted=0, raw_accepted=0, drafted=0, prefill_only=True)
FULL = RoundRecord(committed=5, accepted=4, raw_accepted=4, drafted=4)
HALF = RoundRecord(committed=3, accepted=2, raw_accepted=2, drafted=4)


def test_the_prompts_own_pass_enters_neither_side():
    assert ledger(PREFILL).counters() == Counters()
    assert ledger(PREFILL, FULL, HALF).counters() == Counters(
        rounds=2, committed=8, drafted=8, accepted=6, raw_accepted=6
    )


def test_c11_a_cut_inside_a_round():
    counters = ledger(PREFILL, FULL, HALF).counters(kept=3)
    assert counters == Counters(
        rounds=1, committed=2, drafted=4, accepted=2, raw_accepted=4, discarded_rounds=1
    )


def test_c11_a_cut_between_rounds_and_before_all():
    assert ledger(PREFILL, FULL, HALF).counters(kept=6).committed == 5
    assert ledger(PREFILL, FULL).counters(kept=0) == Counters(discarded_rounds=1)


rounds = st.builds(
    lambda accepted, drafted, own: RoundRecord(
        committed=accepted + own, accepted=accepted, raw_accepted=accepted, drafted=accepted + drafted
    ),
    accepted=st.integers(0, 4),
    drafted=st.integers(0, 4),
    own=st.just(1),
)


@given(st.lists(rounds, max_size=8), st.integers(0, 40))
def test_a_cut_keeps_what_lies_before_it(records, kept):
    whole = ledger(*records).counters()
    cut = ledger(*records).counters(kept)
    assert cut.committed == min(kept, whole.committed)
    assert cut.accepted <= min(whole.accepted, cut.committed)
    assert cut.rounds + cut.discarded_rounds == whole.rounds
