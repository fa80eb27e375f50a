"""One round after another equals plain decoding, whatever is drafted."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.sampling import (
    ROOT,
    DraftTree,
    FinishReason,
    NonFiniteLogits,
    SamplingParameters,
    TokenSampler,
    acceptance,
    judge,
    token_logprobs,
)
from tests.outrider.sampling import reference
from tests.outrider.sampling.reference import STEADY

VOCAB = 257
EOS = 2
PROMPT = (5, 9, 5, 200, 31)
MODEL = reference.random_model(VOCAB, padding=7)

SETTINGS = {
    "greedy": SamplingParameters(temperature=0, max_tokens=64),
    "sampled": SamplingParameters(max_tokens=40),
    "filtered": SamplingParameters(temperature=0.8, top_k=40, top_p=0.9, min_p=0.02, max_tokens=40),
    "penalties": SamplingParameters(
        temperature=0.9, repetition_penalty=1.4, presence_penalty=0.7, frequency_penalty=0.6, max_tokens=40
    ),
    "greedy penalties": SamplingParameters(temperature=0, repetition_penalty=1.5, max_tokens=40),
    "bias": SamplingParameters(logit_bias=((7, -100.0), (8, 4.0), (EOS, 3.0)), max_tokens=40),
    "floor": SamplingParameters(
        logit_bias=((EOS, 6.0), (8, 6.0)), min_tokens=9, stop_ids=(8,), max_tokens=40
    ),
    "ignore": SamplingParameters(logit_bias=((EOS, 5.0),), ignore_eos=True, max_tokens=40),
}


def _end_ids(parameters):
    return frozenset(parameters.stop_ids) | (frozenset() if parameters.ignore_eos else {EOS})


def _sampler(parameters, tokens=PROMPT, *, seed=3, vocab_size=VOCAB):
    return TokenSampler(
        parameters,
        seed=seed,
        tokens=tokens,
        prompt_length=len(PROMPT),
        end_ids=_end_ids(parameters),
        vocab_size=vocab_size,
    )


def _plain(parameters, *, seed=3, max_length=1000, model=MODEL):
    return reference.decode(
        model,
        parameters,
        PROMPT,
        seed=seed,
        end_ids=_end_ids(parameters),
        vocab_size=VOCAB,
        max_length=max_length,
    )


def _rows(model, tokens, tree):
    def row_logits(node):
        return model([*tokens, *(tree.tokens[above] for above in tree.path_to(node))])

    return row_logits


def _speculate(parameters, propose, *, seed=3, max_length=1000, model=MODEL):
    """A whole answer in rounds; `propose(tokens)` gives each round's tree."""
    sampler = _sampler(parameters, seed=seed)
    rounds = []
    while not rounds or rounds[-1].finish_reason is None:
        tokens = sampler.tokens
        tree = propose(list(tokens))
        judgement = judge(tree, _rows(model, tokens, tree), sampler, max_length=max_length)
        assert sampler.tokens == tokens + judgement.committed
        assert [tree.tokens[node] for node in judgement.path] == list(
            judgement.committed[: judgement.accepted]
        )
        assert len(judgement.committed) - judgement.accepted in (0, 1)
        rounds.append(judgement)
    return [token for judgement in rounds for token in judgement.committed], rounds


def _drafts(expected, depth):
    """Proposers by name: oracle, wrong at each index, random, hostile, absent, trees."""
    noise = np.random.default_rng(1)

    def oracle(tokens):
        start = len(tokens) - len(PROMPT)
        # Behind the end the oracle goes on with ids of its own.
        return [*expected[start:], *range(11, 19)][:depth]

    def wrong_at(index):
        def propose(tokens):
            chain = oracle(tokens)
            chain[index] = (chain[index] + 1) % VOCAB
            return DraftTree.chain(chain)

        return propose

    def bushy(tokens):
        chain = oracle(tokens)
        others = [[*chain[:i], *noise.integers(0, VOCAB, depth - i).tolist()] for i in range(depth)]
        return DraftTree.from_candidates([*others, chain, noise.integers(0, VOCAB, depth).tolist()])

    return {
        "absent": lambda tokens: DraftTree.empty(),
        "oracle": lambda tokens: DraftTree.chain(oracle(tokens)),
        "tree": bushy,
        "random": lambda tokens: DraftTree.chain(noise.integers(0, VOCAB, depth).tolist()),
        "hostile": lambda tokens: DraftTree.chain([-1, VOCAB, VOCAB + 3, 2**31 - 1][:depth]),
        **{f"wrong at {index}": wrong_at(index) for index in range(depth)},
    }


def test_the_model_does_not_loop():
    assert len(set(_plain(SETTINGS["greedy"]))) >= 40


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("depth", [1, 2, 5, 8])
def test_c03_output_does_not_depend_on_the_draft(name, depth):
    parameters = SETTINGS[name]
    expected = _plain(parameters)
    for draft, propose in _drafts(expected, depth).items():
        output, rounds = _speculate(parameters, propose)
        assert output == expected, draft
        if draft == "absent":
            assert [judgement.accepted for judgement in rounds] == [0] * len(expected)
        if draft in ("oracle", "tree"):
            # Every full round is accepted to its end and adds a bonus.
            assert all(judgement.accepted == depth for judgement in rounds[:-1])
            assert len(rounds) == -(-len(expected) // (depth + 1))


@settings(max_examples=25, **STEADY)
@given(seed=st.integers(0, 2**64 - 1), data=st.data())
def test_c03_any_tree_gives_the_same_output(seed, data):
    parameters = data.draw(st.sampled_from(list(SETTINGS.values())))
    expected = _plain(parameters, seed=seed)

    def propose(tokens):
        rest = expected[len(tokens) - len(PROMPT) :]
        candidates = st.tuples(st.integers(0, 6), st.lists(st.integers(0, VOCAB), max_size=3))
        drawn = data.draw(st.lists(candidates, max_size=4))
        return DraftTree.from_candidates([rest[:right] + wrong for right, wrong in drawn])

    assert _speculate(parameters, propose, seed=seed)[0] == expected


def test_c06_the_module_states_the_rule_in_full():
    stated = inspect.getdoc(acceptance)
    for word in ("round", "draft", "k ", "accepted", "correction", "bonus", "committed", "acceptance length"):
        assert f"\n{word}" in stated
    assert "p is the target's distribution, q the draft's" in stated
    assert "its id\n   equals the target's token at its index" in stated


def _scripted(committed, drafted, *, parameters=None, behind=(), max_length=1000):
    """One round in which the target's own tokens are `committed` and then `behind`, come what may."""
    parameters = parameters or SamplingParameters(temperature=0)
    script = [*committed, *behind]
    tree = DraftTree.chain(drafted)

    def row_logits(node):
        row = np.zeros(VOCAB, dtype=np.float32)
        row[script[node + 1]] = 9.0
        return row

    sampler = _sampler(parameters)
    return judge(tree, row_logits, sampler, max_length=max_length), sampler


def test_c07_an_accepted_block_is_cut_behind_its_first_eos():
    judgement, sampler = _scripted([50, 51, EOS, 53, 54, 55], [50, 51, EOS, 53, 54])
    assert judgement.committed == (50, 51, EOS)
    assert (judgement.finish_reason, judgement.stop_id) == (FinishReason.STOP, EOS)
    assert sampler.tokens == (*PROMPT, 50, 51, EOS)


def test_c09_a_block_that_begins_with_eos_leaves_just_eos():
    judgement, _ = _scripted([EOS, 5, EOS, 7, 43, 5], [EOS, 5, EOS, 7, 43])
    assert judgement.committed == (EOS,)
    assert judgement.accepted == 1


@pytest.mark.parametrize("index", range(4))
def test_c12_end_ids_are_masked_at_every_drafted_position(index):
    # The target wants to stop at every position and the draft says so at one of them.
    parameters = SamplingParameters(temperature=0, min_tokens=4, stop_ids=(8,))
    tree = DraftTree.chain([*[60] * index, EOS])
    row = np.zeros(VOCAB, dtype=np.float32)
    row[[EOS, 8, 60]] = 9.0, 8.0, 7.0
    sampler = _sampler(parameters)
    judgement = judge(tree, lambda node: row, sampler, max_length=1000)
    assert judgement.committed == (60,) * (index + 1)
    assert judgement.finish_reason is None
    while sampler.num_output < 4:
        judge(DraftTree.chain([EOS]), lambda node: row, sampler, max_length=1000)
    assert sampler.choose(row) == EOS


def test_c14_no_bonus_follows_an_accepted_eos():
    asked = []
    script = [50, EOS, 99]

    def row_logits(node):
        asked.append(node)
        row = np.zeros(VOCAB, dtype=np.float32)
        row[script[node + 1]] = 9.0
        return row

    sampler = _sampler(SamplingParameters(temperature=0))
    judgement = judge(DraftTree.chain([50, EOS]), row_logits, sampler, max_length=1000)
    assert judgement.committed == (50, EOS)
    assert judgement.accepted == judgement.raw_accepted == 2
    assert asked == [ROOT, 0]


def test_c14_with_ignore_eos_the_block_goes_on():
    parameters = SamplingParameters(temperature=0, ignore_eos=True)
    judgement, _ = _scripted([50, EOS, 52], [50, EOS], parameters=parameters)
    assert judgement.committed == (50, EOS, 52)
    assert judgement.finish_reason is None


def test_c15_each_node_sees_the_penalties_of_its_own_path():
    # After 50 the target repeats 50 unless the penalty sees it; the sibling 60 must not be counted.
    parameters = SamplingParameters(temperature=0, presence_penalty=2.0)
    row = np.zeros(VOCAB, dtype=np.float32)
    row[[50, 60, 70]] = 5.0, 4.5, 3.0
    tree = DraftTree.from_candidates([(60, 50), (50, 60, 70), (50, 50)])
    sampler = _sampler(parameters)
    judgement = judge(tree, lambda node: row, sampler, max_length=1000)
    assert judgement.committed == (50, 60, 50)
    assert [tree.tokens[node] for node in judgement.path] == [50, 60]


def test_c17_a_loop_that_the_penalty_breaks_stays_broken():
    def loop(tokens):
        row = np.zeros(VOCAB, dtype=np.float32)
        row[5 if tokens[-1] == 9 else 9] = 1.5
        row[(tokens[-1] * 7 + len(tokens)) % VOCAB] += 1.2
        return row

    parameters = SamplingParameters(temperature=0, repetition_penalty=2.0, max_tokens=24)
    unbroken = SamplingParameters(temperature=0, max_tokens=24)
    expected = _plain(parameters, model=loop)
    assert len(set(_plain(unbroken, model=loop))) <= 4
    assert len(set(expected)) > 12
    output, _ = _speculate(parameters, lambda tokens: DraftTree.chain([9, 5, 9, 5]), model=loop)
    assert output == expected


def test_c19_a_banned_id_is_refused_at_each_position():
    parameters = SamplingParameters(temperature=0, logit_bias=((77, -100.0),), max_tokens=12)
    row = np.zeros(VOCAB, dtype=np.float32)
    row[[77, 78]] = 9.0, 8.0
    for index in range(5):
        sampler = _sampler(parameters)
        tree = DraftTree.chain([78] * index + [77] * (5 - index))
        judgement = judge(tree, lambda node: row, sampler, max_length=1000)
        assert judgement.committed == (78,) * (index + 1)
        assert judgement.accepted == index


def test_c22_a_drafted_id_outside_the_kept_set_is_refused():
    parameters = SamplingParameters(top_k=3)
    row = np.arange(VOCAB, dtype=np.float32) / 100
    for seed in range(40):
        sampler = _sampler(parameters, seed=seed)
        tree = DraftTree.from_candidates([(token,) for token in range(VOCAB - 3)])
        judgement = judge(tree, lambda node: row, sampler, max_length=1000)
        assert judgement.accepted == 0
        assert judgement.committed[0] >= VOCAB - 3


@pytest.mark.parametrize("name", ["greedy", "sampled", "penalties"])
@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("as_tree", [False, True])
def test_c50_rejection_at_each_index_and_none(name, depth, as_tree):
    parameters = SETTINGS[name]
    expected = _plain(parameters)
    for index in range(depth + 1):
        right, wrong = expected[:index], [(token + 1) % VOCAB for token in expected[index:depth]]
        candidates = [right + wrong]
        if as_tree:
            candidates += [[*expected[:i], (expected[i] + 2) % VOCAB, 1] for i in range(index)]
        tree = DraftTree.from_candidates(candidates)
        sampler = _sampler(parameters)
        judgement = judge(tree, _rows(MODEL, PROMPT, tree), sampler, max_length=1000)
        assert judgement.committed == tuple(expected[: index + 1])
        assert judgement.accepted == judgement.raw_accepted == len(judgement.path) == index
        assert sampler.position == len(PROMPT) + index + 1
        assert sampler.num_output == index + 1
        assert judgement.finish_reason is None


@pytest.mark.parametrize("as_tree", [False, True])
def test_c51_each_token_comes_from_its_own_row(as_tree):
    parameters = SamplingParameters(logprobs=3, max_tokens=30)
    expected = _plain(parameters)
    depth = 4
    candidates = [expected[:depth]]
    if as_tree:
        candidates = [[9, 9, 9], [expected[0], 9, 9], *candidates, [*expected[:3], 9]]
    tree = DraftTree.from_candidates(candidates)
    asked = []

    def row_logits(node):
        asked.append(node)
        return _rows(MODEL, PROMPT, tree)(node)

    judgement = judge(tree, row_logits, _sampler(parameters), max_length=1000)
    assert judgement.committed == tuple(expected[: depth + 1])
    assert asked == [ROOT, *judgement.path]
    for index, (token, logprobs) in enumerate(zip(judgement.committed, judgement.logprobs, strict=True)):
        own_row = MODEL([*PROMPT, *expected[:index]])
        assert logprobs == token_logprobs(own_row, token, 3, VOCAB)


def test_c24_logprobs_equal_those_of_plain_decoding():
    parameters = SamplingParameters(logprobs=2, repetition_penalty=1.3, max_tokens=20)
    expected = _plain(parameters)
    drafts = _drafts(expected, 3)
    runs = {}
    for draft in ("absent", "oracle", "wrong at 1", "tree"):
        _, rounds = _speculate(parameters, drafts[draft])
        runs[draft] = [entry for judgement in rounds for entry in judgement.logprobs]
    assert len(runs["absent"]) == len(expected)
    assert all(run == runs["absent"] for run in runs.values())
    assert len({entry.logprob for entry in runs["absent"]}) > 10


def test_logprobs_are_empty_when_off():
    assert _scripted([50, 51], [50])[0].logprobs == ()


def test_c72_raw_matches_are_counted_apart_from_committed_tokens():
    judgement, _ = _scripted([101, 102, EOS, 104, 105, 106], [101, 102, EOS, 104, 105])
    assert len(judgement.committed) == 3
    assert judgement.accepted == 3
    assert judgement.raw_accepted == 5


def test_raw_matches_end_at_the_first_mismatch_and_at_an_unusable_row():
    judgement, _ = _scripted([101, EOS, 103, 104], [101, EOS, 103, 99])
    assert (judgement.accepted, judgement.raw_accepted) == (2, 3)

    def row_logits(node):
        row = np.full(VOCAB, np.nan if node == 1 else 0.0, dtype=np.float32)
        row[EOS] = 9.0
        return row

    sampler = _sampler(SamplingParameters(temperature=0))
    judgement = judge(DraftTree.chain([EOS, EOS, EOS]), row_logits, sampler, max_length=1000)
    assert judgement.committed == (EOS,)
    assert judgement.raw_accepted == 2


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_max_tokens_cuts_the_block(limit):
    parameters = SamplingParameters(temperature=0, max_tokens=limit)
    judgement, sampler = _scripted([50, 51, 52, 53], [50, 51, 52], parameters=parameters)
    assert judgement.committed == (50, 51, 52, 53)[:limit]
    assert judgement.accepted == min(limit, 3)
    assert judgement.raw_accepted == 3
    assert judgement.finish_reason is FinishReason.LENGTH
    assert judgement.stop_id is None
    assert sampler.num_output == limit


@pytest.mark.parametrize("room", [1, 2, 3, 4])
def test_the_context_cuts_the_block(room):
    judgement, sampler = _scripted([50, 51, 52, 53], [50, 51, 52], max_length=len(PROMPT) + room)
    assert judgement.committed == (50, 51, 52, 53)[:room]
    assert judgement.finish_reason is FinishReason.LENGTH
    assert sampler.position == len(PROMPT) + room


def test_an_end_id_on_the_last_token_counts_as_stop():
    parameters = SamplingParameters(temperature=0, max_tokens=2)
    judgement, _ = _scripted([50, EOS], [50], parameters=parameters)
    assert judgement.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("output", "reason", "stop_id"),
    [((50, 51), FinishReason.LENGTH, None), ((50, EOS), FinishReason.STOP, EOS)],
)
def test_a_session_that_has_ended_commits_nothing(output, reason, stop_id):
    sampler = _sampler(SamplingParameters(temperature=0, max_tokens=2), (*PROMPT, *output))
    judgement = judge(
        DraftTree.chain([1, 2]), lambda node: pytest.fail("no row is needed"), sampler, max_length=99
    )
    assert (judgement.committed, judgement.accepted, judgement.raw_accepted) == ((), 0, 0)
    assert (judgement.finish_reason, judgement.stop_id) == (reason, stop_id)


def test_an_end_id_at_the_end_of_the_prompt_does_not_end_the_answer():
    sampler = TokenSampler(
        SamplingParameters(temperature=0),
        seed=0,
        tokens=(5, EOS),
        prompt_length=2,
        end_ids=frozenset({EOS}),
        vocab_size=VOCAB,
    )
    row = np.zeros(VOCAB, dtype=np.float32)
    assert judge(DraftTree.empty(), lambda node: row, sampler, max_length=99).committed == (0,)


@pytest.mark.parametrize("bad_row", [ROOT, 0, 1])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_unusable_row_leaves_the_sampler_as_it_was(bad_row, value):
    parameters = SamplingParameters(temperature=0, presence_penalty=0.5)
    sampler = _sampler(parameters, (*PROMPT, 40))
    row = np.zeros(VOCAB, dtype=np.float32)
    row[50:53] = 9.0

    def row_logits(node):
        return np.full(VOCAB, value, dtype=np.float32) if node == bad_row else row

    before = sampler.kept(row).values.tolist()
    with pytest.raises(NonFiniteLogits):
        judge(DraftTree.chain([50, 51, 52]), row_logits, sampler, max_length=1000)
    assert sampler.tokens == (*PROMPT, 40)
    assert sampler.kept(row).values.tolist() == before
    good = judge(DraftTree.chain([50, 51, 52]), lambda node: row, sampler, max_length=1000)
    assert good.committed[:3] == (50, 51, 52)


def test_equal_siblings_count_once_and_the_first_one_is_taken():
    tree = DraftTree((50, 50, 51, 52), (-1, -1, 0, 1))
    row = np.zeros(VOCAB, dtype=np.float32)
    row[50] = 9.0
    judgement = judge(tree, lambda node: row, _sampler(SamplingParameters(temperature=0)), max_length=1000)
    assert judgement.path == (0,)
    assert judgement.committed == (50, 50)


def test_c15_a_session_rebuilt_from_its_tokens_goes_on_alike():
    parameters = SETTINGS["penalties"]
    expected = _plain(parameters)
    for kept in (1, 7, 20):
        sampler = _sampler(parameters, (*PROMPT, *expected[:kept]))
        assert sampler.num_output == kept
        output = list(expected[:kept])
        while len(output) < len(expected):
            tree = DraftTree.chain(expected[len(output) : len(output) + 3])
            judgement = judge(tree, _rows(MODEL, sampler.tokens, tree), sampler, max_length=1000)
            output.extend(judgement.committed)
        assert output == expected
