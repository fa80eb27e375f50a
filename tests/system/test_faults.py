"""Parts of a running deployment are taken away: the answer stays what it would have been."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from outrider.client import Completion, OutriderClient, PromptIds, SamplingParameters
from outrider.rpc.errors import NoEqualReplica, Unavailable
from outrider.wire.draft import Propose
from outrider.wire.inference import Prompt
from outrider.wire.state import WorkerStatus
from outrider.wire.worker import Header, TokenizerFiles
from tests.support.calls import free_port, load_of, model_info
from tests.support.cluster import Cluster, Process, start_all
from tests.support.deployment import (
    Answer,
    Deployment,
    Front,
    Question,
    holder_of,
    prefilling,
    rounds_more,
    until,
    until_idle,
)
from tests.support.scripted_workers import (
    DraftBrain,
    Events,
    Held,
    hostile,
    scripted_draft,
    serving,
    silent,
)
from tests.support.tcp_proxy import TcpProxy

MODEL = "smollm2"
# Small chunks: a prompt takes many forwards, and there is time to act between them; each time it is asked.
SMALL = (
    *("--num-threads", "1", "--kv-budget-mib", "128", "--prefill-chunk", "64", "--no-prefix-cache"),
    *("--lease-s", "5", "--grace-s", "60"),
)
PATIENT, HASTY = "120", "0.5"

PENALTIES = {"presence_penalty": 0.7, "frequency_penalty": 0.4, "logprobs": 2}
GREEDY = SamplingParameters(temperature=0.0, max_tokens=48, min_tokens=40, **PENALTIES)  # type: ignore[arg-type]
SAMPLED = replace(GREEDY, temperature=0.8)

SHORT = "The river runs past the old mill, and in the evening"
LONG = "".join(f"{number}. The river runs past the old mill.\n" for number in range(48))


def question(sampling: SamplingParameters, *, prompt: Prompt = SHORT, k: int = 2) -> Question:
    return Question(prompt, sampling, seed=20_240_601, k=k)


BOTH = [question(GREEDY), question(SAMPLED)]
LONG_BOTH = [
    question(replace(sampling, max_tokens=24, min_tokens=20), prompt=LONG) for sampling in (GREEDY, SAMPLED)
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("faults")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def started(cluster: Cluster) -> Iterator[Deployment]:
    validators = [cluster.validator(MODEL, *SMALL) for _ in range(2)]
    draft = cluster.draft(MODEL, *SMALL)
    start_all(*validators, draft)
    with ExitStack() as stack:
        proxies = [stack.enter_context(TcpProxy(each.address)) for each in validators]
        yield Deployment(validators, draft, proxies)


@pytest.fixture
def deployment(started: Deployment) -> Deployment:
    started.revive()
    return started


def new_front(cluster: Cluster, validators: list[str], drafts: list[str], *arguments: str) -> Front:
    scheduler = cluster.process(
        "services.scheduler",
        *("--validators", ",".join(validators), "--drafts", ",".join(drafts)),
        *("--grace-s", "60", *arguments),
    )
    scheduler.address = f"127.0.0.1:{free_port()}"  # known to the gateway before it is there
    gateway = cluster.gateway(scheduler, "--grace-s", "60")
    start_all(scheduler, gateway)
    return Front(scheduler, gateway)


@pytest.fixture(scope="module")
def pair(cluster: Cluster, started: Deployment) -> Front:
    """Before two equal validators and a draft."""
    addresses = [proxy.address for proxy in started.proxies]
    return new_front(cluster, addresses, [started.draft.address])


@pytest.fixture(scope="module")
def lone(cluster: Cluster, started: Deployment) -> Front:
    """Before one validator, for whose return it waits long."""
    return new_front(cluster, [started.proxies[0].address], [], "--reopen-deadline-s", PATIENT)


class Unequal(NamedTuple):
    """A validator of other bits, behind a proxy of its own."""

    process: Process
    proxy: TcpProxy


@pytest.fixture(scope="module")
def starting(cluster: Cluster) -> Process:
    """The same, not waited for: it may start while a test waits for something else."""
    return cluster.validator(MODEL, *SMALL, "--dtype", "float32").launch()


@pytest.fixture(scope="module")
def unequal(starting: Process) -> Iterator[Unequal]:
    starting.wait_until_ready()
    with TcpProxy(starting.address) as proxy:
        yield Unequal(starting, proxy)


@pytest.fixture
async def client(pair: Front, deployment: Deployment):
    """Of the pair, once one of its validators and the draft are there."""
    await pair.ready(num_validators=1, num_drafts=1)
    async with OutriderClient(pair.gateway.address) as client:
        yield client


def assert_equal(answer: Completion, undisturbed: Completion) -> None:
    assert answer.token_ids == undisturbed.token_ids
    assert answer.logprobs == undisturbed.logprobs
    assert len(answer.logprobs) == len(answer.token_ids)
    assert answer.text == undisturbed.text
    assert answer.final.finish_reason is undisturbed.final.finish_reason
    assert answer.final.numerics_id == undisturbed.final.numerics_id
    assert not answer.final.changed_replica


# One of two equal validators is lost.


@pytest.mark.parametrize("moment", ["in an answer", "in prefill", "between send and verdict"])
async def test_c55_a_killed_validator_leaves_no_trace_in_the_answers(client, deployment, pair, moment):
    asked = LONG_BOTH if moment == "in prefill" else BOTH
    undisturbed = await asyncio.gather(*(deployment.undisturbed(client, each) for each in asked))
    killed, other = deployment.validators[0], deployment.proxies[1]
    await pair.ready(num_validators=2)
    # Both sessions are on one validator; it is stopped until the other one is there to take over.
    other.lose()
    await pair.lost(other.address)
    answers = [Answer(client, each) for each in asked]
    if moment == "in prefill":
        await prefilling([killed])
    else:
        await rounds_more(answers, 4)
    await _stop_with_a_round_in_flight(deployment, 0)
    other.refusing = False
    await pair.ready(num_validators=2)
    if moment == "in an answer":
        killed.send(signal.SIGCONT)
        await rounds_more(answers, 2)
    num_before = [answer.num_rounds for answer in answers]
    assert (num_before == [0, 0]) is (moment == "in prefill")
    killed.kill()
    killed.launch()  # as whoever supervises it would
    for answer, before, expected in zip(answers, num_before, undisturbed, strict=True):
        completion = await answer.completion()
        assert_equal(completion, expected)
        assert completion.final.counters.reopens == 1
        assert answer.num_rounds - before >= 5


# The draft is lost.


async def test_c59_c61_a_draft_that_is_killed_costs_speed_only(client, deployment, pair):
    undisturbed = await asyncio.gather(*(deployment.undisturbed(client, each) for each in BOTH))
    answers = [Answer(client, each) for each in BOTH]
    await rounds_more(answers, 4)
    deployment.draft.kill()
    await _finish_without_a_draft(answers, undisturbed)
    # Back again, it drafts for new sessions.
    await asyncio.to_thread(deployment.draft.start)
    await pair.ready(num_validators=1, num_drafts=1)
    answer = Answer(client, BOTH[0])
    await _drafts(deployment)
    assert_equal(await answer.completion(), undisturbed[0])


async def _finish_without_a_draft(answers: list[Answer], undisturbed: Sequence[Completion]) -> None:
    num_before = [answer.num_rounds for answer in answers]
    for answer, before, expected in zip(answers, num_before, undisturbed, strict=True):
        completion = await answer.completion()
        assert_equal(completion, expected)
        assert completion.final.draft_status == "absent"
        assert completion.final.counters.missed_proposals >= 5
        assert completion.final.counters.reopens == 0
        assert answer.num_rounds - before >= 5


async def test_c53_a_draft_that_is_killed_between_send_and_proposal_and_is_back_goes_on(
    client, deployment, pair
):
    await pair.ready(num_validators=2)
    asked = BOTH[1]
    undisturbed = await deployment.undisturbed(client, asked)
    answer = Answer(client, asked)
    await answer.rounds(4)
    deployment.draft.send(signal.SIGSTOP)
    # Rounds that ask it are answered without it.
    await rounds_more([answer], 2)
    holder = await holder_of(deployment.validators)
    # The session waits while the draft is away, and then has it again.
    await _stop_with_a_round_in_flight(deployment, holder)
    deployment.draft.kill()
    await asyncio.to_thread(deployment.draft.start)
    await pair.ready(num_validators=1, num_drafts=1)
    assert (await load_of(deployment.draft.address)).num_sessions == 0
    deployment.validators[holder].send(signal.SIGCONT)
    await _drafts(deployment)
    num_before = answer.num_rounds
    completion = await answer.completion()
    assert_equal(completion, undisturbed)
    assert completion.final.counters.missed_proposals >= 1
    assert answer.num_rounds - num_before >= 5
    # It is the target's own model: in step with the session it is right almost always.
    assert completion.final.counters.accepted > 0.5 * completion.final.counters.drafted


async def test_c61_a_draft_that_is_killed_in_prefill_costs_speed_only(client, deployment):
    undisturbed = await asyncio.gather(*(deployment.undisturbed(client, each) for each in LONG_BOTH))
    answers = [Answer(client, each) for each in LONG_BOTH]
    await prefilling([deployment.draft])
    deployment.draft.kill()
    assert [answer.num_rounds for answer in answers] == [0, 0]
    await _finish_without_a_draft(answers, undisturbed)


async def _drafts(deployment: Deployment) -> None:
    """Wait until the draft holds the session."""

    async def holds() -> bool:
        return (await load_of(deployment.draft.address)).num_sessions == 1

    await until(holds)


# Drafts that are there and do not do what they should.


class Scripted(NamedTuple):
    """A front whose draft each test scripts, at this port."""

    front: Front
    port: int


@pytest.fixture(scope="module")
def scripted(cluster: Cluster, started: Deployment) -> Scripted:
    port = free_port()
    drafts = [f"127.0.0.1:{port}"]
    return Scripted(new_front(cluster, [started.proxies[0].address], drafts, "--draft-wait-ms", "200"), port)


class LostStep(DraftBrain):
    """Loses the place of the first session that it is given, after two rounds."""

    def round(self, header: Header, command: Propose, held: Held) -> Events:
        if header.round > 2 and header.session == self.received[0].header.session:
            return [self._stale(header, held)]
        return super().round(header, command, held)


def _hostile() -> dict[str, object]:
    return {"brain": DraftBrain(propose=hostile(seed=3))}


def _late() -> dict[str, object]:
    return {"brain": DraftBrain(propose=hostile(seed=3)), "delay_s": 0.5}


def _silent() -> dict[str, object]:
    return {"brain": DraftBrain(propose=silent)}


def _lost_step() -> dict[str, object]:
    return {"brain": LostStep(propose=hostile(seed=3))}


def _wrong_tokenizer() -> dict[str, object]:
    return {"tokenizer": TokenizerFiles(b'{"model": {"vocab": {"a": 0, "b": 1}}}', "", {}, "another")}


def _later_revision() -> dict[str, object]:
    return {"revision": (7, 9)}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(_hostile, "refused:a proposal of 300 nodes", id="c43-hostile"),
        pytest.param(_late, "slow", id="c59-late"),
        pytest.param(_silent, "slow", id="c59-silent"),
        pytest.param(_lost_step, "refused:the draft lost step", id="c60-lost-step"),
        pytest.param(_wrong_tokenizer, "refused:tokenizers differ: ", id="c41-wrong-tokenizer"),
        pytest.param(
            _later_revision, "refused:the worker speaks protocol revisions 7 to 9", id="c78-later-revision"
        ),
    ],
)
async def test_a_draft_that_can_not_be_used_costs_speed_only(scripted, deployment, script, said):
    front = scripted.front
    await front.draft_is(WorkerStatus.UNREACHABLE)
    await front.ready(num_validators=1)
    changes = script()
    info = await model_info(deployment.validators[0].address)
    if tokenizer := changes.get("tokenizer"):
        info = replace(info, model="another", tokenizer_fingerprint=tokenizer.tokenizer_fingerprint)
    worker = replace(scripted_draft(silent, info), **changes)
    async with OutriderClient(front.gateway.address) as client:
        asked = question(replace(SAMPLED, max_tokens=24, min_tokens=20), k=4)
        undisturbed = await deployment.undisturbed(client, asked)
        async with serving(worker, scripted.port):
            await front.draft_is(WorkerStatus.READY, WorkerStatus.REFUSED)
            # The second one shows that nothing else suffers.
            answers = [Answer(client, asked), Answer(client, asked)]
            completions = [await answer.completion() for answer in answers]

            async def forgotten() -> bool:
                return not worker.brain.sessions

            await until(forgotten)
    for completion in completions:
        assert_equal(completion, undisturbed)
    statuses = [completion.final.draft_status for completion in completions]
    assert any(status.startswith(said) for status in statuses), statuses
    assert sum(completion.final.counters.missed_proposals for completion in completions) >= 1


# The only validator is lost.


async def test_a_validator_that_comes_back_goes_on(lone, deployment, starting):
    await lone.ready(num_validators=1)
    asked = BOTH[1]
    async with OutriderClient(lone.gateway.address) as client:
        undisturbed = await deployment.undisturbed(client, asked)
        answer = Answer(client, asked)
        await answer.rounds(4)
        validator = deployment.validators[0]
        validator.kill()
        num_before = answer.num_rounds
        await asyncio.to_thread(validator.start)
        completion = await answer.completion()
    assert_equal(completion, undisturbed)
    assert completion.final.counters.reopens == 1
    assert answer.num_rounds - num_before >= 5


async def test_c55_a_stream_that_is_cut_resumes_the_session_that_the_validator_kept(lone, deployment):
    await lone.ready(num_validators=1)
    proxy = deployment.proxies[0]
    ids = range(1000, 1200)
    asked = question(GREEDY, prompt=PromptIds(tuple(ids)))
    async with OutriderClient(lone.gateway.address) as client:
        undisturbed = await deployment.undisturbed(client, asked)
        answer = Answer(client, asked)
        await answer.rounds(3)
        proxy.cut()
        await answer.rounds(6)
        # Now a verdict is given, and lost on its way.
        proxy.swallowing = True

        async def is_lost() -> bool:
            return bool(proxy.num_swallowed)

        await until(is_lost)
        proxy.cut()
        proxy.swallowing = False
        num_before = answer.num_rounds
        completion = await answer.completion()
    assert_equal(completion, undisturbed)
    assert completion.final.counters.reopens == 2
    assert answer.num_rounds - num_before >= 5
    # The prompt went over once per answer: a session that is opened again would carry it again.
    prompt = np.asarray(ids, dtype="<i4").tobytes()
    assert sum(sent.count(prompt) for sent in proxy.sent) == 2


async def test_without_a_validator_the_answer_ends_with_one_error(cluster, deployment):
    proxy = deployment.proxies[0]
    front = new_front(cluster, [proxy.address], [], "--reopen-deadline-s", HASTY)

    async def lose(_: Answer) -> None:
        proxy.lose()

    answer = await _ends_for_want_of_a_replica(front, lose)
    # What was delivered until then is right, and the next request is answered.
    proxy.refusing = False
    await front.ready(num_validators=1)
    async with OutriderClient(front.gateway.address) as client:
        undisturbed = await Answer(client, question(GREEDY)).completion()
    assert tuple(answer.token_ids) == undisturbed.token_ids[: len(answer.token_ids)]


async def test_a_validator_of_other_bits_is_no_replica(cluster, deployment, unequal):
    proxies = [deployment.proxies[0], unequal.proxy]
    addresses = [proxy.address for proxy in proxies]
    front = new_front(cluster, addresses, [], "--reopen-deadline-s", HASTY)
    await front.ready(num_validators=2)

    async def lose(answer: Answer) -> None:
        proxies[await _busiest(answer, proxies)].lose()

    await _ends_for_want_of_a_replica(front, lose)
    [lost] = [proxy for proxy in proxies if proxy.refusing]
    await front.lost(lost.address)
    await front.ready(num_validators=1)
    unequal.proxy.refusing = False


async def test_a_change_of_replica_is_said_where_it_is_allowed(cluster, deployment, unequal):
    proxies = [deployment.proxies[0], unequal.proxy]
    validators = [deployment.validators[0], unequal.process]
    addresses = [proxy.address for proxy in proxies]
    front = new_front(cluster, addresses, [], "--reopen-deadline-s", HASTY, "--failover", "any")
    await front.ready(num_validators=2)
    async with OutriderClient(front.gateway.address) as client:
        answer = Answer(client, question(replace(GREEDY, max_tokens=64, min_tokens=64), k=1))
        await answer.rounds(4)
        lost = await _busiest(answer, proxies)
        proxies[lost].lose()
        completion = await answer.completion()
    unequal.proxy.refusing = False
    assert completion.final.changed_replica
    assert completion.final.counters.reopens == 1
    assert completion.final.numerics_id == (await model_info(validators[1 - lost].address)).numerics_id
    assert len(completion.token_ids) == len(completion.logprobs) == 64


async def _busiest(answer: Answer, proxies: list[TcpProxy]) -> int:
    """Index of the one behind which the session is."""
    before = [proxy.num_sent for proxy in proxies]
    await rounds_more([answer], 2)
    sent = [proxy.num_sent - before for proxy, before in zip(proxies, before, strict=True)]
    return sent.index(max(sent))


async def _ends_for_want_of_a_replica(front: Front, lose: Callable[[Answer], Awaitable[None]]) -> Answer:
    async with OutriderClient(front.gateway.address) as client:
        answer = Answer(client, question(GREEDY, k=0))
        await answer.rounds(4)
        await lose(answer)
        with pytest.raises(NoEqualReplica) as raised:
            await answer.completion()
    assert raised.value.reason == "NO_EQUAL_REPLICA"
    assert raised.value.retryable
    return answer


# Callers leave, and processes are told to end.


@pytest.mark.parametrize("moment", ["in an answer", "in prefill"])
async def test_c79_a_client_that_leaves_frees_the_session_on_both_sides(client, deployment, pair, moment):
    await pair.ready(num_validators=2)
    await until_idle(deployment.workers)
    endless = replace(SAMPLED, max_tokens=4000, ignore_eos=True)
    answer = Answer(client, question(endless, prompt=LONG if moment == "in prefill" else SHORT))
    if moment == "in prefill":
        await prefilling(deployment.validators)
    else:
        await answer.rounds(4)
    await answer.leave()
    # The answer itself would take many times as long.
    await until_idle(deployment.workers)


async def test_c79_a_gateway_that_dies_frees_its_sessions(client, deployment, pair):
    await pair.ready(num_validators=2)
    await until_idle(deployment.workers)
    answer = Answer(client, question(replace(SAMPLED, max_tokens=4000, ignore_eos=True)))
    await answer.rounds(4)
    pair.gateway.kill()
    with pytest.raises(Unavailable):
        await answer.completion()
    await until_idle(deployment.workers)
    await asyncio.to_thread(pair.gateway.start)
    async with OutriderClient(pair.gateway.address) as another:
        undisturbed = await deployment.undisturbed(another, BOTH[0])
        assert_equal(await Answer(another, BOTH[0]).completion(), undisturbed)


async def test_c62_sessions_of_a_scheduler_that_dies_are_freed_when_their_lease_ends(
    client, deployment, pair
):
    await pair.ready(num_validators=2)
    undisturbed = await deployment.undisturbed(client, BOTH[0])
    await until_idle(deployment.workers)
    answer = Answer(client, question(replace(SAMPLED, max_tokens=4000, ignore_eos=True)))
    await answer.rounds(4)
    pair.scheduler.kill()
    with pytest.raises(Unavailable):
        await answer.completion()
    await asyncio.to_thread(pair.scheduler.start)
    await until_idle(deployment.workers)
    await pair.ready(num_validators=1, num_drafts=1)

    async def answers_again() -> bool:
        # Until the gateway has found it: UNAVAILABLE, which says that it is worth another try.
        with suppress(Unavailable):
            assert_equal(await Answer(client, BOTH[0]).completion(), undisturbed)
            return True
        return False

    await until(answers_again)


async def test_a_validator_that_drains_hands_its_session_over(client, deployment, pair):
    await pair.ready(num_validators=2)
    asked = BOTH[1]
    undisturbed = await deployment.undisturbed(client, asked)
    answer = Answer(client, asked)
    await answer.rounds(4)
    holder = deployment.validators[await holder_of(deployment.validators)]
    assert await asyncio.to_thread(holder.stop) == 0
    completion = await answer.completion()
    assert_equal(completion, undisturbed)
    assert completion.final.counters.reopens == 1


async def test_four_processes_that_are_told_to_end_finish_the_answer_and_exit_with_0(cluster, deployment):
    validator, draft = deployment.validators[0], deployment.draft
    front = new_front(cluster, [validator.address], [draft.address])
    await front.ready(num_validators=1, num_drafts=1)
    asked = BOTH[1]
    async with OutriderClient(front.gateway.address) as client:
        undisturbed = await deployment.undisturbed(client, asked)
        answer = Answer(client, asked)
        await answer.rounds(4)
        processes = [front.gateway, front.scheduler, draft, validator]
        for process in processes:
            process.send(signal.SIGTERM)
        assert_equal(await answer.completion(), undisturbed)
    assert [await asyncio.to_thread(process.wait) for process in processes] == [0, 0, 0, 0]


async def _stop_with_a_round_in_flight(deployment: Deployment, holder: int) -> None:
    deployment.validators[holder].send(signal.SIGSTOP)

    async def owes_verdict() -> bool:
        return deployment.proxies[holder].owed

    await until(owes_verdict)
