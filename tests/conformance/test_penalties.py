"""Penalties, bias and filters act at every drafted position as they do in plain decoding."""

from dataclasses import replace

import pytest

from outrider.client import DraftSource, Speculation
from outrider.rpc.channel import open_channel
from outrider.rpc.errors import InvalidArgument, error_from_rpc
from outrider.sampling.parameters import SamplingParameters
from outrider.sampling.sampler import TokenSampler
from outrider.sampling.tree import DraftTree
from outrider.v1 import inference_pb2_grpc
from outrider.wire import inference
from outrider.wire.inference import GenerateRequest, PromptIds
from tests.support.divergence import Asked
from tests.support.in_process import EVERY_CASE, ask

pytestmark = pytest.mark.asyncio(loop_scope="module")

PENALTIES = {
    "repetition": {"repetition_penalty": 1.6},
    "presence": {"presence_penalty": 2.0},
    "frequency": {"frequency_penalty": 1.2},
    "all": {"repetition_penalty": 1.3, "presence_penalty": 0.6, "frequency_penalty": 0.4},
}
# Two ids that the target would repeat for ever, so that penalties have something to say.
LOOP = {"logit_bias": ((50, 10.0), (60, 9.5))}
# The same, less strongly.
DRIFT = {"logit_bias": ((50, 3.5), (60, 3.5), (70, 3.5))}
PROCESSORS = {
    **PENALTIES,
    "min_p": {"min_p": 0.3},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.4},
    "temperature": {"temperature": 2.0},
    "logit_bias": {"logit_bias": ((11, 6.0), (70, -100.0))},
}
OUT_OF_RANGE = {
    "repetition_penalty": 0.0,
    "presence_penalty": 2.5,
    "frequency_penalty": -2.5,
    "temperature": -1.0,
    "top_p": 0.0,
    "min_p": 1.5,
    "logit_bias": ((5, 101.0),),
}


@pytest.mark.parametrize(
    ("name", "way"), [(name, way) for name in PENALTIES for way in ("greedy", "sampled") if name != "all"]
)
async def test_c15_penalties_at_a_drafted_position_are_those_of_its_own_prefix(
    house, prompts, ways, name, way
):
    asked = Asked(prompts[0], replace(ways[way], **DRIFT, **PENALTIES[name]))
    answer = await house.check_all(asked)
    unpenalised = house.truth.answer(replace(asked, sampling=replace(ways[way], **DRIFT)))
    assert list(answer.token_ids) != unpenalised.ids


@pytest.mark.conformance
@pytest.mark.parametrize("way", ["greedy", "sampled"])
@pytest.mark.parametrize("name", PROCESSORS)
async def test_c15_c19_every_draft_under_every_processor(house, prompts, ways, name, way):
    for prompt in prompts:
        asked = Asked(prompt, replace(ways[way], max_tokens=64, **PROCESSORS[name]))
        await house.check_all(asked, EVERY_CASE)
        house.check(await house.ask_real(asked, 6), asked)
        house.check(await house.ask_real(asked, 4, 4), asked)


@pytest.mark.parametrize("source", [DraftSource.NONE, DraftSource.NGRAM, DraftSource.MODEL])
async def test_c16_no_source_drops_a_penalty(house, prompts, ways, source):
    for penalty in ("repetition", "presence", "frequency"):
        asked = Asked(prompts[1], replace(ways["greedy"], **LOOP, **PENALTIES[penalty]))
        for w in (1, 3):
            answer = await house.ask_real(asked, speculation=Speculation(k=4, w=w, source=source))
            house.check(answer, asked)
        assert len(set(answer.token_ids)) > 1, f"{penalty} is not applied"
    loop = Asked(prompts[1], replace(ways["greedy"], **LOOP))
    assert len(set((await house.ask_real(loop)).token_ids)) == 1


@pytest.mark.parametrize("field", OUT_OF_RANGE)
async def test_c16_what_can_not_be_applied_is_refused(house, prompts, field):
    sampling = replace(SamplingParameters(), **{field: OUT_OF_RANGE[field]})
    with pytest.raises(InvalidArgument) as caught:
        await ask(house.scripted, Asked(prompts[0], sampling), 4, 1)
    assert caught.value.field == field
    # The same from a client that does not look.
    async with open_channel(house.scripted.address) as channel:
        request = GenerateRequest(PromptIds(prompts[0]), sampling=sampling, seed=1)
        call = inference_pb2_grpc.InferenceServiceStub(channel).Generate(inference.encode_generate(request))
        try:
            async for _ in call:
                pytest.fail("the request is answered")
        except Exception as error:  # noqa: BLE001  # looked at below
            refusal = error_from_rpc(error)
    assert isinstance(refusal, InvalidArgument)
    assert refusal.field == f"sampling.{field}"


@pytest.mark.parametrize("w", [1, 3])
async def test_c17_a_loop_that_the_penalty_breaks_does_not_come_back_with_a_draft_that_proposes_it(
    house, prompts, ways, w
):
    loop = Asked(prompts[0], replace(ways["greedy"], **LOOP))
    broken = replace(loop, sampling=replace(loop.sampling, repetition_penalty=2.0))
    assert set(house.truth.answer(loop).ids) == {50}
    assert len(set(house.truth.answer(broken).ids)) > 12
    house.propose(lambda wish: DraftTree.from_candidates([[50 + i] * wish.k for i in range(wish.w)]))
    house.check(await house.ask(broken, 4, w), broken)
    looping = await house.ask(loop, 4, w)
    house.check(looping, loop)
    assert looping.final.counters.accepted > 20


@pytest.mark.parametrize("way", ["greedy", "sampled"])
async def test_c18_repetition_sees_prompt_and_output_and_presence_the_output_alone(house, prompts, ways, way):
    # The prompt holds the ids about to be generated.
    prompt = (*prompts[0], 50, 60, 50, 60)
    asked = Asked(prompt, replace(ways[way], **LOOP))
    free = house.truth.answer(asked)
    assert free.ids[0] in (50, 60)
    presence = replace(asked, sampling=replace(asked.sampling, presence_penalty=2.0, frequency_penalty=2.0))
    repetition = replace(asked, sampling=replace(asked.sampling, repetition_penalty=4.0))
    answers = {each: await house.check_all(each) for each in (presence, repetition)}
    assert answers[presence].token_ids[0] == free.ids[0]
    assert answers[presence].token_ids[:8] != tuple(free.ids[:8])
    assert not {50, 60} & set(answers[repetition].token_ids[:8])


@pytest.mark.parametrize("name", ["min_p", "top_k", "top_p", "temperature", "logit_bias"])
async def test_c19_every_processor_acts_at_all_drafted_positions(house, prompts, ways, name):
    way = "greedy" if name == "logit_bias" else "sampled"
    asked = Asked(prompts[2], replace(ways[way], **PROCESSORS[name]))
    answer = await house.check_all(asked)
    assert list(answer.token_ids) != house.truth.answer(replace(asked, sampling=ways[way])).ids


@pytest.mark.parametrize("way", ["greedy", "sampled"])
async def test_c19_an_id_biased_to_minus_100_never_appears(house, prompts, ways, way):
    free = house.truth.answer(Asked(prompts[0], ways[way])).ids
    banned = max(set(free), key=free.count)
    asked = Asked(prompts[0], replace(ways[way], logit_bias=((banned, -100.0),)))
    house.propose(lambda wish: DraftTree.chain([banned] * wish.k))
    answer = await house.ask(asked)
    house.check(answer, asked)
    assert banned not in answer.token_ids
    assert answer.final.counters.accepted == 0 < answer.final.counters.drafted


async def test_c19_correction_and_bonus_tokens_are_processed_alike(house, prompts, ways):
    # The id is drafted nowhere, so that it can only come as a correction; or up to the last place but one.
    asked = Asked(prompts[0], replace(ways["sampled"], logit_bias=((77, 100.0),)))
    for drafted in (78, 77):
        house.propose(lambda wish, drafted=drafted: DraftTree.chain([drafted] * wish.k))
        answer = await house.ask(asked)
        house.check(answer, asked)
        assert set(answer.token_ids) == {77}
        counters = answer.final.counters
        assert counters.accepted == (0 if drafted == 78 else counters.drafted)


@pytest.mark.parametrize("source", [DraftSource.NGRAM, DraftSource.MODEL])
async def test_c20_logit_bias_is_applied_with_speculation(house, prompts, ways, source):
    free = Asked(prompts[1], ways["greedy"])
    # Lookup finds what is said again and again, the model what it would say itself.
    bias = LOOP if source is DraftSource.NGRAM else {"logit_bias": ((50, 4.0), (60, 5.0))}
    biased = replace(free, sampling=replace(free.sampling, **bias))
    for asked in (free, biased):
        answer = await house.ask_real(asked, speculation=Speculation(k=4, source=source))
        house.check(answer, asked)
    assert answer.final.counters.accepted > 0
    before, after = (house.truth.answer(asked).ids for asked in (free, biased))
    assert before != after
    assert {50, 60} & set(after)


async def test_c21_mirrored_penalties_move_acceptance_and_never_the_ids(twins, prompts, ways):
    own = replace(ways["sampled"], **LOOP, repetition_penalty=1.6, frequency_penalty=0.5)
    asked = Asked(prompts[0], own)

    def mirroring(sampling: SamplingParameters):
        """A draft with the target's weights that processes its logits by these parameters."""

        def propose(wish):
            tokens = list(wish.tokens)
            for _ in range(wish.k):
                sampler = TokenSampler(
                    sampling,
                    seed=wish.generation.seed,
                    tokens=tokens,
                    prompt_length=wish.generation.prompt_length,
                    end_ids=wish.end_ids,
                    vocab_size=twins.truth.info.vocab_size,
                )
                tokens.append(sampler.choose(twins.truth.logits(tokens)))
            return DraftTree.chain(tokens[len(wish.tokens) :])

        return propose

    off = SamplingParameters(temperature=own.temperature, top_p=own.top_p)
    wrong = replace(own, repetition_penalty=0.5, frequency_penalty=-2.0)
    accepted = {}
    for name, sampling in (("off", off), ("wrong", wrong)):
        twins.propose(mirroring(sampling))
        answer = await twins.ask(asked)
        twins.check(answer, asked)
        accepted[name] = answer.final.counters.accepted
    answer = await twins.ask_real(asked)
    twins.check(answer, asked)
    counters = answer.final.counters
    # A draft service mirrors them: one of the target's weights is always right.
    assert counters.accepted == counters.drafted > max(accepted.values())


@pytest.mark.parametrize("filters", [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.2}])
async def test_c22_a_drafted_id_outside_the_kept_set_is_rejected(house, prompts, ways, filters):
    asked = Asked(prompts[0], replace(ways["sampled"], **{"temperature": 1.5, "top_p": 1.0, **filters}))
    right = house.truth.answer(asked).ids

    def best_outside(wish):
        sampler = TokenSampler(
            asked.sampling,
            seed=asked.seed,
            tokens=wish.tokens,
            prompt_length=len(asked.prompt),
            end_ids=frozenset(),
            vocab_size=house.truth.info.vocab_size,
        )
        row = house.truth.logits(wish.tokens)
        kept = set(sampler.kept(row).ids.tolist())
        outside = [int(token) for token in (-row).argsort() if int(token) not in kept][: wish.w]
        rest = right[len(wish.tokens) - len(asked.prompt) + 1 :]
        return DraftTree.from_candidates([[token, *rest][: wish.k] for token in outside])

    house.propose(best_outside)
    for w in (1, 4):
        answer = await house.ask(asked, 3, w)
        house.check(answer, asked)
        assert answer.final.counters.accepted == 0 < answer.final.counters.drafted
