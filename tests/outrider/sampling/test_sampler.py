"""What a session chooses, and from which distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.sampling import (
    PURPOSE_TOKEN,
    NonFiniteLogits,
    SamplingParameters,
    TokenSampler,
    gumbel,
    noise_key,
    uniform_bits,
)
from outrider.sampling.sampler import NUM_RIVALS
from tests.outrider.sampling import reference
from tests.outrider.sampling.reference import STEADY

VOCAB = 12
LOGITS = np.random.default_rng(5).normal(0, 1, VOCAB).astype(np.float32)
NONE: frozenset[int] = frozenset()


def _sampler(parameters=None, *, tokens=(1, 2, 3), prompt_length=2, end_ids=NONE, vocab_size=VOCAB, **noise):
    return TokenSampler(
        parameters or SamplingParameters(),
        seed=noise.get("seed", 0),
        choice=noise.get("choice", 0),
        tokens=tokens,
        prompt_length=prompt_length,
        end_ids=end_ids,
        vocab_size=vocab_size,
    )


SETTINGS = {
    "nothing": SamplingParameters(),
    "temperature": SamplingParameters(temperature=0.6),
    "top-k": SamplingParameters(top_k=5),
    "top-p": SamplingParameters(top_p=0.8),
    "min-p": SamplingParameters(min_p=0.2),
    "filters": SamplingParameters(temperature=1.4, top_k=9, top_p=0.9, min_p=0.1),
    "penalties": SamplingParameters(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3),
    "bias": SamplingParameters(logit_bias=((3, -100.0), (4, 1.0))),
    "floor": SamplingParameters(min_tokens=5),
}
END = frozenset({6})
TOKENS = (1, 2, 2, 6, 3, 3)


def _expected(parameters):
    row = reference.processed(LOGITS, parameters, TOKENS, 3, END)
    return reference.distribution(row, parameters)


def _draws(parameters, seeds=4000):
    """The tokens at two neighbouring positions for many seeds: [seeds, 2]."""
    rows = []
    for seed in range(seeds):
        sampler = _sampler(parameters, seed=seed, tokens=TOKENS, prompt_length=3, end_ids=END)
        here = sampler.choose(LOGITS)
        # One position on with the same counts: the prompt grows instead of the output.
        later = _sampler(parameters, seed=seed, tokens=(1, *TOKENS), prompt_length=4, end_ids=END)
        rows.append((here, later.choose(LOGITS)))
    return np.array(rows)


@pytest.mark.parametrize("name", SETTINGS)
def test_choices_follow_the_filtered_softmax(name):
    probabilities = _expected(SETTINGS[name])
    draws = _draws(SETTINGS[name])
    for column in range(2):
        counts = np.bincount(draws[:, column], minlength=VOCAB)
        assert reference.chi_square_z(counts, probabilities) < 4
    # The distribution test has teeth: the unprocessed softmax does not fit what was drawn.
    if name != "nothing":
        plain = np.exp(LOGITS.astype(np.float64))
        assert reference.chi_square_z(np.bincount(draws[:, 0], minlength=VOCAB), plain / plain.sum()) > 4


def test_neighbouring_positions_are_independent():
    probabilities = _expected(SETTINGS["temperature"])
    draws = _draws(SETTINGS["temperature"])
    likely = np.argsort(-probabilities)[:4]
    groups = np.full(VOCAB, 4)
    groups[likely] = np.arange(4)
    merged = np.bincount(groups, weights=probabilities)
    pairs = groups[draws[:, 0]] * 5 + groups[draws[:, 1]]
    assert reference.chi_square_z(np.bincount(pairs, minlength=25), np.outer(merged, merged).ravel()) < 4


@settings(**STEADY)
@given(
    row=st.lists(st.floats(-8, 8, width=32), min_size=VOCAB, max_size=VOCAB),
    tokens=st.lists(st.integers(0, VOCAB - 1), min_size=3, max_size=8),
    seed=st.integers(0, 2**64 - 1),
    choice=st.integers(0, 3),
    temperature=st.sampled_from([0.0, 0.5, 1.0]),
    top_p=st.sampled_from([0.9, 1.0]),
    repetition=st.sampled_from([0.7, 1.0, 1.3]),
    presence=st.sampled_from([-0.5, 0.0, 1.1]),
    floor=st.integers(0, 6),
)
def test_choices_equal_the_reference(
    row, tokens, seed, choice, temperature, top_p, repetition, presence, floor
):
    parameters = SamplingParameters(
        temperature=temperature,
        top_p=top_p,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=presence / 3,
        min_tokens=floor,
        logit_bias=((3, -100.0), (4, 1.5)),
    )
    logits = np.array(row, dtype=np.float32)
    sampler = _sampler(parameters, seed=seed, choice=choice, tokens=tokens, end_ids=END)
    scores = reference.processed(logits, parameters, tokens, 2, END)
    where = {"seed": seed, "choice": choice, "tokens": tokens, "prompt_length": 2, "end_ids": END}
    expected = reference.choose(logits, parameters, **where)
    chosen = sampler.choose(logits)
    # float32 may round two logits together that differ in the reference; those are no difference.
    assert chosen == expected or scores[chosen] == pytest.approx(scores[expected], abs=1e-5)


@settings(**STEADY)
@given(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=VOCAB, max_size=VOCAB), st.integers(1, 14))
def test_rank_begins_with_the_choice(row, width):
    logits = np.array(row, dtype=np.float32)
    for parameters in (SamplingParameters(temperature=0), SamplingParameters(), SamplingParameters(top_k=4)):
        sampler = _sampler(parameters)
        ranked = sampler.rank(logits, width)
        kept = sampler.kept(logits)
        assert ranked[0][0] == sampler.choose(logits)
        assert len(ranked) == min(width, kept.ids.size)
        assert len({each.token for each in ranked}) == len(ranked)
        assert {each.token for each in ranked} <= set(kept.ids.tolist())


@pytest.mark.parametrize("name", SETTINGS)
def test_ranked_logprobs_are_those_of_the_processed_distribution(name):
    probabilities = _expected(SETTINGS[name])
    ranked = _sampler(SETTINGS[name], tokens=TOKENS, prompt_length=3, end_ids=END).rank(LOGITS, VOCAB)
    assert sorted(each.token for each in ranked) == np.flatnonzero(probabilities).tolist()
    for token, logprob, _ in ranked:
        assert logprob == pytest.approx(np.log(probabilities[token]), abs=1e-6)


def test_greedy_confidence_is_the_probability():
    ranked = _sampler(SamplingParameters(temperature=0)).rank(LOGITS, 3)
    exact = np.exp(LOGITS.astype(np.float64))
    for token, _, confidence in ranked:
        assert confidence == pytest.approx(exact[token] / exact.sum())


@pytest.mark.parametrize("name", SETTINGS)
def test_confidence_is_the_share_of_the_score_and_noise_counts(name):
    """By its definition: softmax of logit + temperature * noise, and not the probability."""
    parameters = SETTINGS[name]
    differs = False
    for seed in range(30):
        sampler = _sampler(parameters, seed=seed, tokens=TOKENS, prompt_length=3, end_ids=END)
        kept = sampler.kept(LOGITS)
        noise = gumbel(uniform_bits(noise_key(seed, 0, PURPOSE_TOKEN, len(TOKENS)), kept.ids))
        lifted = np.exp(parameters.temperature * (kept.values + noise))
        best_few = np.sort(lifted)[::-1][:NUM_RIVALS]
        token, logprob, confidence = sampler.rank(LOGITS, 1)[0]
        assert confidence == pytest.approx(lifted.max() / best_few.sum())
        assert kept.ids[lifted.argmax()] == token
        differs |= abs(confidence - np.exp(logprob)) > 0.1
    assert differs


def test_greedy_ranks_by_logit_and_ties_go_to_the_smaller_id():
    logits = np.array([1, 3, 3, 0] + [-9] * 8, dtype=np.float32)
    sampler = _sampler(SamplingParameters(temperature=0, top_k=1))
    assert sampler.choose(logits) == 1
    assert [each.token for each in sampler.rank(logits, 4)] == [1, 2, 0, 3]


def test_c05_greedy_takes_the_argmax_of_processed_logits():
    # The draft's id 0 has the larger raw probability, and with a repetition penalty it is not the argmax.
    logits = np.array([2.0, 1.9, 0.0], dtype=np.float32)
    parameters = SamplingParameters(temperature=0, repetition_penalty=1.5)
    assert _sampler(parameters, tokens=(0,), prompt_length=1, vocab_size=3).choose(logits) == 1


def test_c12_end_ids_are_masked_below_the_floor():
    logits = np.zeros(VOCAB, dtype=np.float32)
    logits[[6, 7]] = 30, 20
    sampler = _sampler(SamplingParameters(min_tokens=2), tokens=(1, 2), end_ids=frozenset({6, 7}))
    for floor_reached in (False, False, True):
        assert (sampler.choose(logits) == 6) == floor_reached
        assert (6 in sampler.kept(logits).ids) == floor_reached
        sampler.append(1)


def test_c18_the_prompt_counts_for_repetition_alone():
    logits = np.array([1.0, 0.9, 0.0], dtype=np.float32)

    def choose(**changes):
        parameters = SamplingParameters(temperature=0, **changes)
        return _sampler(parameters, tokens=(0, 0), prompt_length=2, vocab_size=3).choose(logits)

    assert choose(repetition_penalty=2.0) == 1
    assert choose(presence_penalty=2.0, frequency_penalty=2.0) == 0


def test_c19_a_banned_id_never_appears():
    logits = np.zeros(VOCAB, dtype=np.float32)
    logits[3] = 500
    for temperature in (0.0, 1.0):
        parameters = SamplingParameters(temperature=temperature, logit_bias=((3, -100.0),))
        for seed in range(200):
            sampler = _sampler(parameters, seed=seed)
            assert sampler.choose(logits) != 3
            assert 3 not in [each.token for each in sampler.rank(logits, VOCAB)]


def test_c15_a_truncated_session_chooses_as_if_nothing_had_happened():
    parameters = SamplingParameters(repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.5)
    sampler = _sampler(parameters, tokens=TOKENS, prompt_length=3)
    before = sampler.kept(LOGITS)
    for token in (3, 4, 4, 1):
        sampler.append(token)
    assert sampler.kept(LOGITS).values.tolist() != before.values.tolist()
    sampler.truncate(len(TOKENS))
    assert sampler.kept(LOGITS).values.tolist() == before.values.tolist()
    assert sampler.tokens == TOKENS


def test_c28_reading_a_choice_changes_nothing():
    sampler = _sampler(seed=8)
    first = [sampler.choose(LOGITS), sampler.rank(LOGITS, 3), sampler.choose(LOGITS)]
    sampler.append(5)
    sampler.choose(LOGITS)
    sampler.truncate(sampler.position - 1)
    assert [sampler.choose(LOGITS), sampler.rank(LOGITS, 3), sampler.choose(LOGITS)] == first


@pytest.mark.parametrize("padding", [0, 1, 100])
def test_c39_padding_ids_are_never_kept(padding):
    padded = np.concatenate((LOGITS, np.full(padding, 99, dtype=np.float32)))
    for parameters in (*SETTINGS.values(), SamplingParameters(temperature=0)):
        for seed in range(20):
            sampler = _sampler(parameters, seed=seed)
            assert sampler.choose(padded) == sampler.choose(LOGITS)
            assert sampler.rank(padded, VOCAB + padding) == sampler.rank(LOGITS, VOCAB)


def test_the_logits_given_are_left_as_they_are():
    row = LOGITS.copy()
    row.flags.writeable = False
    for parameters in SETTINGS.values():
        _sampler(parameters, tokens=TOKENS, prompt_length=3, end_ids=END).choose(row)
    assert np.array_equal(row, LOGITS)


def _spoiled(value, index=4):
    row = np.zeros(VOCAB + 2, dtype=np.float32)
    row[index] = value
    return row


@pytest.mark.parametrize(
    "parameters", [SamplingParameters(temperature=0), SamplingParameters(), SETTINGS["filters"]]
)
@pytest.mark.parametrize(
    "row",
    [_spoiled(np.nan), _spoiled(np.inf), _spoiled(np.nan, VOCAB), np.full(VOCAB, -np.inf, dtype=np.float32)],
)
def test_an_unusable_row_is_an_error(parameters, row):
    sampler = _sampler(parameters)
    with pytest.raises(NonFiniteLogits):
        sampler.choose(row)
    with pytest.raises(NonFiniteLogits):
        sampler.rank(row, 2)


def test_masks_that_leave_no_id_are_an_error():
    banned = SamplingParameters(logit_bias=tuple((token, -100.0) for token in range(VOCAB)))
    with pytest.raises(NonFiniteLogits, match="all are masked"):
        _sampler(banned).choose(LOGITS)


def test_masked_ids_are_allowed_and_never_chosen():
    row = np.full(VOCAB, -np.inf, dtype=np.float32)
    row[[2, 9]] = 0
    for parameters in (SamplingParameters(), SETTINGS["filters"], SamplingParameters(temperature=0)):
        chosen = {_sampler(parameters, seed=seed).choose(row) for seed in range(50)}
        assert chosen <= {2, 9}
        assert {each.token for each in _sampler(parameters).rank(row, 5)} <= {2, 9}


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="seed"):
        _sampler(seed=-1)
    with pytest.raises(ValueError, match="choice"):
        _sampler(choice=2**32)
    with pytest.raises(ValueError, match="vocab_size"):
        _sampler(vocab_size=0)
    with pytest.raises(ValueError, match="width"):
        _sampler().rank(LOGITS, 0)
    with pytest.raises(ValueError, match="shape"):
        _sampler().choose(LOGITS[:5])
    with pytest.raises(ValueError, match="shape"):
        _sampler().choose(LOGITS[None])
