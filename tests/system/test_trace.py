"""What an operator sees of a request: one trace over four real processes, with every round inside."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import pytest

from outrider.client import Completion, Delta, DraftSource, OutriderClient, SamplingParameters, Speculation
from outrider.telemetry import Attr, GenAi, General, SpanName
from outrider.telemetry.names import is_declared_attribute, is_declared_span
from tests.support.calls import until_drafts_ready
from tests.support.cluster import Cluster, Process, start_all
from tests.support.collector import Collector, ReceivedSpan
from tests.support.models import tiny_model, with_noise
from tests.support.traces import CALLER, SERVED, Trace, count, trace_of, traceparent

PROMPT = "The zebra runs past the old mill"
NUM_TOKENS = 40
K = 4
MODEL = DraftSource.MODEL
# What the processes would otherwise take from the machine: a model this small needs little.
SMALL = {"OUTRIDER_NUM_THREADS": "1", "OUTRIDER_KV_BUDGET_MIB": "16", "OUTRIDER_DTYPE": "float32"}
SERVICES = {"gateway", "scheduler", "draft", "validator"}
CARRIED = {Attr.SENT_BYTES, Attr.RECEIVED_BYTES, Attr.ENCODE_US, Attr.DECODE_US, Attr.HOPS}
COUNTS = (Attr.DRAFTED, Attr.ACCEPTED, Attr.COMMITTED)
ROUND_KEYS = {
    Attr.ROUND,
    Attr.EPOCH,
    Attr.BASE_LENGTH,
    Attr.K,
    Attr.W,
    Attr.SOURCE,
    Attr.DRAFT_STATUS,
    Attr.DISCARDED,
    *COUNTS,
    *CARRIED,
}
WORKER_KEYS = {
    Attr.SESSION_ID,
    Attr.EPOCH,
    Attr.ROUND,
    Attr.BASE_LENGTH,
    Attr.QUEUE_US,
    Attr.COMPUTE_US,
    Attr.BATCH_SIZE,
    Attr.ROWS,
    Attr.MODEL_VERSION,
    Attr.NUMERICS_ID,
}


class Traced(NamedTuple):
    """Four processes that export to the collector."""

    collector: Collector
    processes: dict[str, Process]

    @property
    def gateway(self) -> str:
        return self.processes["gateway"].address


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    folder = tmp_path_factory.mktemp("trace")
    model = tiny_model(folder / "tiny")
    with Collector() as collector, Cluster(folder, {**SMALL, **collector.environment}) as cluster:
        validator = cluster.validator(model)
        draft = cluster.draft(with_noise(model, folder / "draft", scale=0.1))
        start_all(validator, draft)
        scheduler = cluster.scheduler([validator], [draft.address]).start()
        gateway = cluster.gateway(scheduler).start()
        asyncio.run(until_drafts_ready(scheduler.address))
        processes = {"gateway": gateway, "scheduler": scheduler, "draft": draft, "validator": validator}
        yield Traced(collector, processes)


async def answer(
    address: str, *metadata: tuple[str, str], k: int = K, source: DraftSource = MODEL, seed: int = 3
) -> Completion:
    async with OutriderClient(address) as client:
        return await client.complete(
            PROMPT,
            sampling=SamplingParameters(max_tokens=NUM_TOKENS, ignore_eos=True),
            seed=seed,
            speculation=Speculation(k=k, source=source),
            metadata=metadata,
        )


class Seen(NamedTuple):
    """One request, and what the collector got of it."""

    completion: Completion
    trace: Trace
    trace_id: str

    @property
    def rounds(self) -> list[ReceivedSpan]:
        return self.trace.named(SpanName.ROUND)


async def ask(traced: Traced, *, k: int = K, source: DraftSource = MODEL) -> Seen:
    trace_id = secrets.token_hex(16)
    completion = await answer(traced.gateway, traceparent(trace_id), k=k, source=source)
    return Seen(completion, await trace_of(traced.collector, trace_id), trace_id)


@pytest.fixture(scope="module")
def seen(traced: Traced) -> Seen:
    """A request with a draft model that is right about half the time."""
    return asyncio.run(ask(traced))


def test_one_trace_goes_through_all_four_processes(seen: Seen):
    assert seen.completion.final.trace_id == seen.trace_id
    assert {span.service for span in seen.trace.spans} == SERVICES
    assert {span.resource["service.namespace"] for span in seen.trace.spans} == {"outrider"}
    assert len({span.resource["service.instance.id"] for span in seen.trace.spans}) == len(SERVICES)
    # Every span hangs on another one of the trace, up to the caller's.
    known = {span.span_id for span in seen.trace.spans} | {CALLER}
    assert all(span.parent_id in known for span in seen.trace.spans)
    assert [span for span in seen.trace.spans if span.failed] == []


def test_the_top_is_the_request_and_below_it_the_session(seen: Seen):
    chat = seen.trace.one("chat tiny")
    assert (chat.service, chat.kind, chat.parent_id) == ("gateway", "SERVER", CALLER)
    final = seen.completion.final
    assert chat.attributes[GenAi.OPERATION_NAME] == "chat"
    assert chat.attributes[GenAi.REQUEST_MODEL] == chat.attributes[GenAi.RESPONSE_MODEL] == "tiny"
    assert chat.attributes[GenAi.REQUEST_MAX_TOKENS] == NUM_TOKENS
    assert chat.attributes[GenAi.REQUEST_SEED] == 3
    assert chat.attributes[GenAi.RESPONSE_FINISH_REASONS] == ["length"]
    assert chat.attributes[GenAi.USAGE_INPUT_TOKENS] == final.prompt_tokens
    assert chat.attributes[GenAi.USAGE_OUTPUT_TOKENS] == NUM_TOKENS

    (session,) = seen.trace.below(chat)
    assert (session.service, session.name, session.kind) == ("scheduler", SpanName.SESSION, "SERVER")
    counters = final.counters
    expected = {
        Attr.SEED: "3",
        Attr.RULE: "exact",
        Attr.FINISH_REASON: "length",
        Attr.PROMPT_TOKENS: final.prompt_tokens,
        Attr.ROUNDS: counters.rounds,
        Attr.DRAFTED: counters.drafted,
        Attr.ACCEPTED: counters.accepted,
        Attr.COMMITTED: counters.committed,
        Attr.REOPENS: 0,
        Attr.NUMERICS_ID: final.numerics_id,
    }
    assert session.attributes.items() >= expected.items()
    assert seen.trace.below(session) == seen.rounds


def test_a_span_for_every_round_adds_up_to_the_counters(seen: Seen):
    rounds, final = seen.rounds, seen.completion.final
    assert all(round_.attributes.keys() == ROUND_KEYS for round_ in rounds)
    assert [round_.attributes[Attr.ROUND] for round_ in rounds] == list(range(1, len(rounds) + 1))
    length = final.prompt_tokens
    for round_ in rounds:
        assert count(round_, Attr.BASE_LENGTH) == length
        assert count(round_, Attr.EPOCH) == count(round_, Attr.W) == 1
        assert round_.attributes[Attr.DISCARDED] is False
        drafted, accepted, committed = (count(round_, key) for key in COUNTS)
        assert 0 <= accepted <= drafted <= count(round_, Attr.K) <= K
        # The correction or the bonus token comes on top.
        assert committed == accepted + 1
        length += committed
    assert length == final.prompt_tokens + NUM_TOKENS
    drafted, accepted, committed = (sum(count(each, key) for each in rounds) for key in COUNTS)
    assert (drafted, accepted) == (final.counters.drafted, final.counters.accepted)
    # The first pass has no draft to verify: it is a span, and no round of the counters.
    assert (committed, len(rounds)) == (final.counters.committed + 1, final.counters.rounds + 1)
    assert {each.attributes[Attr.SOURCE] for each in rounds} >= {"none", "model"}
    assert 0 < accepted < drafted


def test_a_round_tells_what_its_calls_carried(seen: Seen):
    verified = 0
    for round_ in seen.rounds:
        calls = seen.trace.below(round_)
        for key in CARRIED:
            # Times are cut to whole microseconds.
            carried = sum(count(call, key) for call in calls)
            assert carried <= count(round_, key) <= carried + len(calls)
        for call in calls:
            if call.name == SpanName.VERIFY:
                verified += 1
                first = count(round_, Attr.ROUND) == 1
                # Question and answer; the opening has an answer of its own.
                assert count(call, Attr.HOPS) == 2 + first
                # With a trace context in it of 55 bytes, and back.
                assert 75 < count(call, Attr.SENT_BYTES) < 1000
                assert 75 < count(call, Attr.RECEIVED_BYTES) < 1000
    assert verified == len(seen.rounds)
    costs = seen.completion.final.costs
    verifications = seen.trace.named(SpanName.VERIFY)
    assert sum(count(call, Attr.SENT_BYTES) for call in verifications) == costs.validator_sent_bytes


def test_below_a_round_are_both_calls_and_what_the_workers_did(seen: Seen):
    assert {call.name for _, call in seen.trace.answered} == {SpanName.DRAFT, SpanName.VERIFY}
    for round_, call in seen.trace.answered:
        assert call.kind == "CLIENT"
        (work,) = seen.trace.below(call)
        service = "draft" if call.name == SpanName.DRAFT else "validator"
        assert (work.service, work.name, work.kind) == (service, SERVED[SpanName(call.name)], "SERVER")
        assert work.attributes.keys() >= WORKER_KEYS
        for key in (Attr.ROUND, Attr.BASE_LENGTH):
            assert work.attributes[key] == round_.attributes[key]
        assert count(work, Attr.QUEUE_US) >= 0
        assert count(work, Attr.COMPUTE_US) > 0
        assert count(work, Attr.BATCH_SIZE) == 1
        assert count(work, Attr.ROWS) >= 1


def test_the_validator_tells_the_same_of_a_round_as_the_scheduler(seen: Seen):
    checks = seen.trace.named(SpanName.CHECK)
    assert len(checks) == len(seen.rounds)
    for round_, check in zip(seen.rounds, checks, strict=True):
        assert {key: check.attributes[key] for key in COUNTS} == {
            key: round_.attributes[key] for key in COUNTS
        }
        assert check.attributes[Attr.NUMERICS_ID] == seen.completion.final.numerics_id
    versions = {
        name: {span.attributes[Attr.MODEL_VERSION] for span in seen.trace.named(name)}
        for name in SERVED.values()
    }
    assert [len(each) for each in versions.values()] == [1, 1]
    assert versions[SpanName.PROPOSE] != versions[SpanName.CHECK]


def test_each_pass_of_a_model_is_a_span_below_the_round_that_it_served(seen: Seen):
    assert seen.trace.work
    for work in seen.trace.work:
        forwards = seen.trace.below(work)
        assert forwards
        for forward in forwards:
            assert (forward.name, forward.service) == (SpanName.FORWARD, work.service)
            assert forward.links == ((seen.trace_id, work.span_id),)


@pytest.mark.parametrize(
    ("k", "source"), [(4, MODEL), (4, DraftSource.NGRAM), (0, MODEL), (4, DraftSource.NONE)]
)
async def test_c75_each_round_has_its_verify_span_and_a_draft_span_where_one_is_asked(
    traced: Traced, seen: Seen, k: int, source: DraftSource
):
    own = await ask(traced, k=k, source=source)
    assert own.completion.token_ids == seen.completion.token_ids
    assert sum(count(round_, Attr.COMMITTED) for round_ in own.rounds) == NUM_TOKENS
    drafts = k > 0 and source is not DraftSource.NONE
    assert any(round_.attributes[Attr.K] for round_ in own.rounds) == drafts
    for round_ in own.rounds:
        names = [span.name for span in own.trace.below(round_)]
        # Towards the end there is room for the target's own token alone.
        if not round_.attributes[Attr.K]:
            assert names == [SpanName.VERIFY]
            continue
        assert names[0] == SpanName.DRAFT
        assert names.count(SpanName.VERIFY) == 1
        assert own.trace.below(round_)[0].attributes[Attr.SOURCE] == source.name.lower()
    assert bool(own.trace.named(SpanName.PROPOSE)) == (drafts and source is MODEL)


def test_c30_the_depth_of_each_round_is_recorded(seen: Seen):
    """With them the trace of acceptance can be replayed, also where k changes from round to round."""
    position = 0
    for number, round_ in enumerate(seen.rounds, start=1):
        told = round_.attributes
        assert told[Attr.ROUND] == number
        assert count(round_, Attr.ACCEPTED) <= count(round_, Attr.DRAFTED) <= count(round_, Attr.K)
        assert count(round_, Attr.COMMITTED) == count(round_, Attr.ACCEPTED) + 1
        assert count(round_, Attr.BASE_LENGTH) == count(seen.rounds[0], Attr.BASE_LENGTH) + position
        position += count(round_, Attr.COMMITTED)
    assert {count(round_, Attr.K) for round_ in seen.rounds[1:-4]} == {K}


async def test_a_batched_forward_links_to_every_round_that_it_served(traced: Traced):
    ids = [secrets.token_hex(16) for _ in range(4)]
    await asyncio.gather(
        *(answer(traced.gateway, traceparent(each), seed=number) for number, each in enumerate(ids))
    )
    traces = [await trace_of(traced.collector, each) for each in ids]
    by_id = {(span.trace_id, span.span_id): span for trace in traces for span in trace.spans}
    work = [each for trace in traces for each in trace.work]
    forwards = [forward for trace in traces for forward in trace.named(SpanName.FORWARD)]
    assert all(len(forward.links) == forward.attributes[Attr.BATCH_SIZE] for forward in forwards)
    # One of a proposal that came too late may not be here yet.
    known = [forward for forward in forwards if by_id.keys() >= set(forward.links)]
    shared = [forward for forward in known if len(forward.links) > 1]
    assert shared
    for forward in shared:
        served = [by_id[link] for link in forward.links]
        assert {(each.service, each.name in SERVED.values()) for each in served} == {(forward.service, True)}
        assert len({each.attributes[Attr.SESSION_ID] for each in served}) == len(served)
        assert forward.parent_id == served[0].span_id
    assert {link for forward in forwards for link in forward.links} >= {
        (each.trace_id, each.span_id) for each in work
    }
    assert max(count(each, Attr.BATCH_SIZE) for each in work) > 1


async def test_a_request_without_a_trace_begins_one(traced: Traced):
    completion = await answer(traced.gateway)
    trace = await trace_of(traced.collector, completion.final.trace_id)
    assert trace.one("chat tiny").parent_id == ""


async def test_a_cancelled_request_ends_its_spans(traced: Traced):
    trace_id = secrets.token_hex(16)
    async with OutriderClient(traced.gateway) as client:
        sampling = SamplingParameters(max_tokens=400, ignore_eos=True)
        events = client.generate(PROMPT, sampling=sampling, metadata=[traceparent(trace_id)])
        async with aclosing(events):
            assert isinstance(await anext(events), Delta)
    trace = await trace_of(traced.collector, trace_id, whole=False)
    chat, session = trace.one("chat tiny"), trace.one(SpanName.SESSION)
    assert chat.failed
    assert chat.attributes[General.ERROR_TYPE] == "cancelled"
    assert session.attributes[Attr.FINISH_REASON] == "cancelled"
    *rounds, last = trace.named(SpanName.ROUND)
    assert not any(round_.attributes[Attr.DISCARDED] for round_ in rounds)
    assert last.parent_id == session.span_id


async def test_a_refused_request_is_a_failed_span(traced: Traced):
    trace_id = secrets.token_hex(16)
    async with OutriderClient(traced.gateway) as client:
        with pytest.raises(Exception, match="is not served"):
            await client.complete(PROMPT, model=PROMPT, metadata=[traceparent(trace_id)])
    spans = await asyncio.to_thread(
        traced.collector.wait_for, lambda spans: any(span.trace_id == trace_id for span in spans)
    )
    (chat,) = [span for span in spans if span.trace_id == trace_id]
    # Whatever was put where a model's name belongs is not spread.
    assert chat.name == "chat tiny"
    assert (chat.failed, chat.attributes[General.ERROR_TYPE]) == (True, "NOT_FOUND")


async def test_who_is_not_sampled_leaves_no_span_anywhere(traced: Traced):
    unsampled = secrets.token_hex(16)
    completion = await answer(traced.gateway, traceparent(unsampled, sampled=False))
    assert completion.final.trace_id == ""
    await ask(traced)  # what is exported in order has come
    assert unsampled not in {span.trace_id for span in traced.collector.spans}


async def test_where_tracing_is_off_nothing_is_exported(traced: Traced, seen: Seen, tmp_path: Path):
    """Neither by a process that traces nothing, nor by the workers behind it."""
    workers, trace_id = traced.processes, secrets.token_hex(16)
    off = {**traced.collector.environment, "OTEL_SDK_DISABLED": "true"}
    with Cluster(tmp_path, off) as cluster:
        scheduler = cluster.scheduler([workers["validator"]], [workers["draft"].address]).start()
        gateway = cluster.gateway(scheduler).start()
        completion = await answer(gateway.address, traceparent(trace_id))
        # A stop delivers what waits, if anything does.
        assert [gateway.stop(), scheduler.stop()] == [0, 0]
    assert completion.token_ids == seen.completion.token_ids
    # The caller's own trace is still what the answer belongs to.
    assert completion.final.trace_id == trace_id
    await ask(traced)
    assert trace_id not in {span.trace_id for span in traced.collector.spans}


def test_no_span_tells_what_was_said(traced: Traced, seen: Seen):
    spans = traced.collector.spans
    assert {span.service for span in spans} == SERVICES
    assert {span.name for span in spans if not is_declared_span(span.name)} == set()
    assert {key for span in spans for key in span.attributes if not is_declared_attribute(key)} == set()
    texts = [str(value) for span in spans for value in (span.name, *span.attributes.values())]
    logs = [process.log for process in traced.processes.values()]
    said = (PROMPT, "zebra", seen.completion.text)
    assert not [text for text in (*texts, *logs) if any(part in text for part in said)]
    # Lists could hold token ids; the one that there is holds words.
    lists = {key for span in spans for key, value in span.attributes.items() if isinstance(value, list)}
    assert lists == {GenAi.RESPONSE_FINISH_REASONS}
