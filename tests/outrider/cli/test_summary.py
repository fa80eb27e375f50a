from dataclasses import replace

from outrider.cli.generate import _cleaner, _next_pace
from outrider.cli.summary import as_text
from outrider.client import Counters, DraftSource, Exactness, Final, FinishReason, SourceCounters

FINAL = Final(
    finish_reason=FinishReason.LENGTH,
    prompt_tokens=3,
    completion_tokens=9,
    seed=1,
    counters=Counters(rounds=4, committed=8, drafted=16, accepted=4, reopens=1),
    numerics_id="abc",
    exactness=Exactness.NEAR_TIE,
)


def test_c77_the_pace_counts_tokens_and_not_chunks():
    pace = None
    for now_s, num_tokens in ((0.5, 1), (1.0, 4), (1.2, 0), (2.5, 4)):
        pace = _next_pace(pace, now_s, num_tokens)
    assert (pace.first_s, pace.num_tokens, pace.tokens_per_s) == (0.5, 9, 4.0)


def test_one_chunk_has_no_pace():
    assert _next_pace(None, 0.5, 7).tokens_per_s is None
    assert _next_pace(None, 0.5, 0) is None


def test_the_summary_has_what_there_is_and_nothing_else():
    text = as_text(FINAL, None)
    assert "4 rounds · 16 drafted · 4 accepted (25.0%) · tau 2.00 · 1 reopens" in text
    assert "numerics abc (near_tie)" in text
    assert not any(word in text for word in ("trace", "draft absent", "replica", "tokens/s"))


def test_the_summary_tells_acceptance_by_source_where_there_are_several():
    parts = (SourceCounters(DraftSource.MODEL, 12, 3), SourceCounters(DraftSource.CANDIDATE_CACHE, 4, 1))
    counters = replace(FINAL.counters, by_source=parts)
    lines = as_text(replace(FINAL, counters=counters), None).splitlines()
    assert "model 3 of 12 (25.0%) · candidate_cache 1 of 4 (25.0%)" in lines
    alone = replace(counters, by_source=(parts[0], SourceCounters(DraftSource.NGRAM)))
    assert "of 12" not in as_text(replace(FINAL, counters=alone), None)


def test_control_characters_are_shown_and_not_obeyed_on_a_terminal():
    text = "a\x1b[2Jb\x9b\r\n\t小"
    assert _cleaner(is_terminal=False)(text) == text
    assert _cleaner(is_terminal=True)(text) == "a�[2Jb��\n\t小"
