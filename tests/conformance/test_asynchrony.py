"""Messages type what is not there, and mirrors yield to the validator."""

import random

import pytest

from outrider.sampling.parameters import SamplingParameters
from outrider.sampling.tree import DraftTree
from outrider.wire import draft, validator
from outrider.wire.draft import Proposal, Propose
from outrider.wire.validator import OpenTarget, Verify
from outrider.wire.worker import Addressed, FromWorker, Header, ToWorker
from tests.support.divergence import Asked

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEADER = Header(b"s" * 16, 1, 2, 20)


def _through_the_wire(command):
    codec = draft if isinstance(command, Propose) else validator
    message = codec.encode_request(ToWorker([Addressed(HEADER, command)]))
    return codec.decode_request(type(message).FromString(message.SerializeToString())).commands[0].event


async def test_c56_an_absent_draft_is_an_empty_tree_and_an_absent_round_is_none():
    empty = _through_the_wire(Verify(DraftTree.empty()))
    assert empty.tree.tokens == empty.tree.parents == ()
    sampling = SamplingParameters(max_tokens=4)
    for first in (None, Verify(DraftTree.empty()), Verify(DraftTree.chain([0]))):
        opening = OpenTarget((5, 6), 2, sampling, seed=1, first=first)
        assert _through_the_wire(opening).first == first
    nothing = Propose(committed=(), k=2)
    assert (_through_the_wire(nothing).prefix, _through_the_wire(nothing).assumed) == ((), ())
    message = draft.encode_response(FromWorker(events=[Addressed(HEADER, Proposal(DraftTree.empty()))]))
    assert draft.decode_response(message).events[0].event.tree.num_nodes == 0


@pytest.mark.parametrize("padding", [-1, 0])
async def test_c56_padding_in_a_proposal_is_never_read_as_a_token(house, prompts, ways, padding):
    """-1 is no id and never reaches the target; 0 is an ordinary one, accepted only where it is right."""
    asked = Asked(prompts[0], ways["greedy"])
    right = house.truth.answer(asked).ids
    noise = random.Random(1)

    def padded(wish):
        done = len(wish.tokens) - len(asked.prompt)
        known = right[done : done + noise.randrange(wish.k + 1)]
        return DraftTree.chain([*known, *[padding] * (wish.k - len(known))])

    house.propose(padded)
    answer = await house.ask(asked, 4)
    house.check(answer, asked)
    counters = answer.final.counters
    if padding < 0:
        # What is no id is cut before it is put to the target; so are those behind it.
        assert counters.drafted == counters.accepted > 0
    else:
        assert counters.drafted > counters.accepted > 0


async def test_c57_a_draft_that_holds_other_tokens_yields_to_the_validator(house, prompts, ways):
    """Its mirror is wrong from the first round on: it proposes for another text, and is told the right."""
    asked = Asked(prompts[0], ways["greedy"])
    right = house.truth.answer(asked).ids
    told = []

    def beside(wish):
        told.append(wish.tokens)
        return DraftTree.chain([(token + 7) % 400 for token in wish.tokens[-wish.k :]])

    house.propose(beside)
    house.check(await house.ask(asked, 4), asked)
    assert told
    for tokens in told:
        assert list(tokens) == [*asked.prompt, *right][: len(tokens)]
