from hypothesis import given
from hypothesis import strategies as st

from outrider.wire.generation import Counters, DraftSource, SourceCounters
from services.scheduler.rounds import Ledger, Part, RoundRecord


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


NGRAM, MODEL = DraftSource.NGRAM, DraftSource.MODEL


def test_a_proposal_of_two_sources_counts_for_both():
    joined = RoundRecord(
        committed=4,
        accepted=3,
        raw_accepted=3,
        drafted=6,
        source=MODEL,
        depth=6,
        parts=(Part(NGRAM, 2, 2, 2, 2), Part(MODEL, 4, 4, 1, 1)),
    )
    alone = RoundRecord(committed=1, accepted=0, raw_accepted=0, drafted=3, source=MODEL, depth=3)
    counters = ledger(joined, alone).counters()
    assert counters.by_source == (SourceCounters(NGRAM, 2, 2), SourceCounters(MODEL, 7, 1))
    assert sum(each.drafted for each in counters.by_source) == counters.drafted
    # Cut behind the first token: the model's one is not kept, nor the lookup's second.
    cut = ledger(joined).counters(kept=1)
    assert cut.by_source == (SourceCounters(NGRAM, 2, 1), SourceCounters(MODEL, 4, 0))
    assert cut.accepted == 1


@given(st.lists(rounds, max_size=8), st.integers(0, 40))
def test_a_cut_keeps_what_lies_before_it(records, kept):
    whole = ledger(*records).counters()
    cut = ledger(*records).counters(kept)
    assert cut.committed == min(kept, whole.committed)
    assert cut.accepted <= min(whole.accepted, cut.committed)
    assert cut.rounds + cut.discarded_rounds == whole.rounds
