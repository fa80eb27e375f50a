"""Every value survives its protobuf form; every broken message is refused by the name of its field."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.sampling.acceptance import FinishReason, TokenLogprobs
from outrider.sampling.parameters import SamplingParameters
from outrider.sampling.tree import DraftTree
from outrider.v1 import draft_pb2, generation_pb2, scheduler_pb2, tensor_pb2, validator_pb2, worker_pb2
from outrider.wire import draft, generation, scheduler, state, tensors, trees, validator, worker

int32 = st.integers(-(2**31), 2**31 - 1)
uint32 = st.integers(0, 2**32 - 1)
uint64 = st.integers(0, 2**64 - 1)
float32 = st.floats(width=32, allow_nan=False)
ids = st.lists(int32, max_size=8).map(tuple)
small_ids = st.lists(uint32, max_size=4).map(tuple)
text = st.text(max_size=8)
session = st.binary(min_size=16, max_size=16)


@st.composite
def draft_trees(draw):
    tokens = draw(ids)
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(len(tokens)))
    return DraftTree(tokens, parents)


sampling = st.builds(
    SamplingParameters,
    temperature=float32,
    top_k=uint32,
    top_p=float32,
    min_p=float32,
    repetition_penalty=float32,
    presence_penalty=float32,
    frequency_penalty=float32,
    logit_bias=st.dictionaries(uint32, float32, max_size=3).map(lambda bias: tuple(sorted(bias.items()))),
    min_tokens=uint32,
    max_tokens=uint32,
    stop_ids=small_ids,
    ignore_eos=st.booleans(),
    logprobs=st.none() | uint32,
)
logprobs = st.lists(
    st.builds(
        TokenLogprobs,
        logprob=float32,
        top_ids=ids,
        top_logprobs=st.lists(float32, max_size=3).map(tuple),
    ),
    max_size=3,
).map(tuple)
failures = st.builds(
    generation.Failure, text, text, retryable=st.booleans(), retry_after_ms=st.none() | uint32
)
positions = st.lists(uint32, max_size=3).map(tuple)
sources = st.sampled_from(generation.DraftSource)
counters = st.builds(
    generation.Counters,
    *([uint32] * 8),
    positions,
    positions,
    st.lists(st.builds(generation.SourceCounters, sources, uint32, uint32), max_size=3).map(tuple),
)
costs = st.builds(generation.Costs, *([st.integers(0, 2**64 - 1)] * 14), uint32)
speculations = st.builds(
    generation.Speculation,
    k=st.none() | uint32,
    w=st.none() | uint32,
    source=st.none() | sources,
    min_k=st.none() | uint32,
    max_k=st.none() | uint32,
    tpot_target_ms=st.none() | uint32,
    finish_target_ms=st.none() | uint32,
)
infos = st.builds(
    worker.ModelInfo,
    model=text,
    weight_fingerprint=text,
    tokenizer_fingerprint=text,
    vocab_size=uint32,
    context_length=uint32,
    numerics_id=text,
    exactness=st.sampled_from(worker.Exactness),
    dtype=text,
    device=text,
    eos_ids=small_ids,
    model_version=text,
    adapter=text,
    instance_id=session,
    max_depth=uint32,
    max_nodes=uint32,
)
loads = st.builds(
    worker.WorkerLoad, uint32, uint32, uint32, uint32, uint64, uint64, st.none() | st.floats(0, 1, width=32)
)
timings = st.builds(worker.Timings, *([uint32] * 5))
headers = st.builds(worker.Header, session, uint32, uint32, uint32, text, text)
common_events = (
    st.builds(worker.Opened, uint32) | st.just(worker.Stale()) | st.builds(worker.SessionError, failures)
)
common_commands = st.just(worker.Resume()) | st.just(worker.Close())

proposes = st.builds(draft.Propose, committed=ids, k=uint32, w=uint32, prefix=ids, assumed=ids)
open_drafts = st.builds(
    draft.OpenDraft,
    tokens=ids,
    prompt_length=uint32,
    sampling=sampling,
    seed=uint64,
    choice=uint32,
    end_ids=small_ids,
    tenant=text,
    cache_salt=text,
    first=st.none() | proposes,
)
proposals = st.builds(
    draft.Proposal,
    tree=draft_trees(),
    sources=st.lists(st.sampled_from(generation.DraftSource), max_size=3).map(tuple),
    logprobs=st.lists(float32, max_size=3).map(tuple),
    confidences=st.lists(st.floats(0, 1, width=32), max_size=3).map(tuple),
    timings=timings,
    model_version=text,
)
verifies = st.builds(validator.Verify, draft_trees())
open_targets = st.builds(
    validator.OpenTarget,
    tokens=ids,
    prompt_length=uint32,
    sampling=sampling,
    seed=uint64,
    choice=uint32,
    tenant=text,
    cache_salt=text,
    numerics_id=text,
    first=st.none() | verifies,
)
verdicts = st.builds(
    validator.Verdict,
    committed=ids,
    accepted=uint32,
    raw_accepted=uint32,
    drafted=uint32,
    path=ids,
    logprobs=logprobs,
    finish_reason=st.none() | st.sampled_from(FinishReason),
    timings=timings,
    model_version=text,
    prefill_only=st.booleans(),
)


def to_worker(commands):
    items = st.lists(st.builds(worker.Addressed, headers, commands), max_size=3)
    return st.builds(
        worker.ToWorker, items, hello=st.none() | st.builds(worker.Hello, session, uint32, uint32)
    )


def from_worker(events):
    return st.builds(
        worker.FromWorker,
        st.lists(st.builds(worker.Addressed, headers, events), max_size=3),
        welcome=st.none() | st.builds(worker.Welcome, infos, uint32, uint32, uint32),
        go_away=st.none() | st.builds(worker.GoAway, uint32),
        load=loads,
    )


def over_the_wire(message):
    """As bytes, which is how it really travels."""
    return type(message).FromString(message.SerializeToString())


@given(to_worker(open_drafts | proposes | common_commands))
def test_draft_requests(message):
    assert draft.decode_request(over_the_wire(draft.encode_request(message))) == message


@given(from_worker(proposals | common_events))
def test_draft_responses(message):
    assert draft.decode_response(over_the_wire(draft.encode_response(message))) == message


@given(to_worker(open_targets | verifies | common_commands))
def test_validator_requests(message):
    assert validator.decode_request(over_the_wire(validator.encode_request(message))) == message


@given(from_worker(verdicts | common_events))
def test_validator_responses(message):
    assert validator.decode_response(over_the_wire(validator.encode_response(message))) == message


@given(
    st.builds(
        scheduler.GenerateRequest,
        prompt=ids,
        sampling=sampling,
        seed=uint64,
        choice=uint32,
        speculation=speculations,
        output_so_far=ids,
        numerics_id=text,
        tenant=text,
        cache_salt=text,
        store=st.booleans(),
        workload=text,
    )
)
def test_generate_requests(request):
    assert scheduler.decode_generate(over_the_wire(scheduler.encode_generate(request))) == request


finished = st.builds(
    scheduler.Finished,
    finish_reason=st.sampled_from(FinishReason),
    counters=counters,
    costs=costs,
    numerics_id=text,
    changed_replica=st.booleans(),
    draft_status=text,
)


@given(
    st.builds(scheduler.Started, session, text, st.sampled_from(worker.Exactness))
    | st.builds(scheduler.Committed, ids, logprobs)
    | finished
    | failures
)
def test_generate_events(event):
    assert scheduler.decode_event(over_the_wire(scheduler.encode_event(event))) == event


@given(st.builds(scheduler.FinishRequest, session, uint32, st.sampled_from(FinishReason)), finished)
def test_finish(request, answer):
    assert scheduler.decode_finish(over_the_wire(scheduler.encode_finish(request))) == request
    encoded = over_the_wire(scheduler.encode_finish_response(answer))
    assert scheduler.decode_finish_response(encoded) == answer


worker_states = st.lists(
    st.builds(state.WorkerState, text, st.sampled_from(state.WorkerStatus), text, st.none() | infos, loads),
    max_size=3,
).map(tuple)


float64 = st.floats(allow_nan=False)
big_positions = st.lists(uint64, max_size=3).map(tuple)
controls = st.builds(
    state.ControlState,
    text,
    uint64,
    float64,
    big_positions,
    st.lists(
        st.builds(state.SourceState, sources, uint64, uint64, big_positions, big_positions), max_size=2
    ).map(tuple),
    st.none() | uint32,
    st.dictionaries(text, float64, max_size=3),
)
alerts = st.builds(
    state.AlertState,
    *([text] * 3),
    st.booleans(),
    st.none() | float64,
    st.none() | float64,
    st.none() | float64,
    text,
    uint64,
)
events = st.builds(state.AlertEvent, uint64, *([text] * 3))


@given(
    st.builds(
        state.SchedulerState,
        worker_states,
        worker_states,
        uint32,
        uint32,
        controls,
        st.lists(alerts, max_size=2).map(tuple),
        st.lists(events, max_size=2).map(tuple),
        st.builds(state.StoreState, text, st.booleans(), text, *([uint64] * 4)),
    )
)
def test_states(state):
    assert scheduler.decode_describe(over_the_wire(scheduler.encode_describe(state))) == state
    assert scheduler.decode_watch(over_the_wire(scheduler.encode_watch(state))) == state


@given(st.binary(max_size=64), text, st.dictionaries(text, text, max_size=3))
def test_tokenizers(json, template, special):
    files = worker.TokenizerFiles(json, template, special, "fingerprint")
    assert worker.tokenizer_from_pb(over_the_wire(worker.tokenizer_to_pb(files))) == files


def test_unset_sampling_has_the_documented_defaults():
    assert generation.sampling_from_pb(generation_pb2.Sampling()) == SamplingParameters()


def test_zero_is_not_unset():
    zero = SamplingParameters(temperature=0.0, max_tokens=0, top_p=0.0, repetition_penalty=0.0, logprobs=0)
    assert generation.sampling_from_pb(generation.sampling_to_pb(zero)) == zero
    asked = generation.Speculation(k=0, w=0)
    assert generation.speculation_from_pb(generation.speculation_to_pb(asked)) == asked


def test_every_field_of_a_sampling_message_is_decoded():
    fields = {field.name for field in dataclasses.fields(SamplingParameters)}
    assert fields == set(generation_pb2.Sampling.DESCRIPTOR.fields_by_name)


# What breaks the contract.

INT32 = tensor_pb2.DATA_TYPE_INT32


@pytest.mark.parametrize(
    ("tensor", "problem"),
    [
        (tensor_pb2.Tensor(datatype=INT32, shape=[2], data=b"\0" * 7), "has 7 bytes, shape [2] needs 8"),
        (tensor_pb2.Tensor(datatype=INT32, shape=[-1], data=b""), "shape [-1] needs -4"),
        (tensor_pb2.Tensor(datatype=INT32, shape=[1, 1], data=b"\0" * 4), "has 2 dimensions, must have 1"),
        (tensor_pb2.Tensor(datatype=INT32, data=b"\0" * 4), "has 0 dimensions, must have 1"),
        (
            tensor_pb2.Tensor(datatype=tensor_pb2.DATA_TYPE_INT64, shape=[1], data=b"\0" * 8),
            "datatype is DATA_TYPE_INT64, must be DATA_TYPE_INT32",
        ),
        (tensor_pb2.Tensor.FromString(b"\x08\x4d\x12\x01\x01"), "datatype is 77"),
    ],
)
def test_malformed_tensors(tensor, problem):
    with pytest.raises(tensors.MalformedMessage) as raised:
        tensors.ids_from_tensor(tensor, "prompt")
    assert raised.value.field == "prompt"
    assert problem in raised.value.problem


def test_nothing_and_an_empty_tensor_are_the_same():
    assert tensors.ids_from_tensor(tensor_pb2.Tensor(), "x") == ()
    assert tensors.ids_from_tensor(tensors.ids_to_tensor(()), "x") == ()


@given(st.lists(int32, max_size=5), st.lists(int32, max_size=5))
def test_any_pair_of_tensors_is_a_tree_or_malformed(tokens, parents):
    try:
        tree = trees.tree_from_pb(tensors.ids_to_tensor(tokens), tensors.ids_to_tensor(parents), "verify")
    except tensors.MalformedMessage as error:
        assert error.field == "verify.parents"  # noqa: PT017  # either outcome is right, and each is checked
    else:
        assert (tree.tokens, tree.parents) == (tuple(tokens), tuple(parents))


@given(st.binary(max_size=80))
def test_bytes_that_parse_decode_or_are_malformed(data):
    """Random bytes raise nothing but what a receiver expects."""
    for message, decode in (
        (draft_pb2.DraftRequest, draft.decode_request),
        (draft_pb2.DraftResponse, draft.decode_response),
        (validator_pb2.VerifyRequest, validator.decode_request),
        (validator_pb2.VerifyResponse, validator.decode_response),
        (scheduler_pb2.SchedulerServiceGenerateRequest, scheduler.decode_generate),
        (scheduler_pb2.SchedulerServiceGenerateResponse, scheduler.decode_event),
        (scheduler_pb2.FinishRequest, scheduler.decode_finish),
    ):
        try:
            parsed = message.FromString(data)
        except Exception:  # noqa: BLE001, S112  # not a message at all: gRPC's own business
            continue
        try:
            decode(parsed)
        except tensors.MalformedMessage as error:
            assert error.field  # noqa: PT017  # reached or not, both are fine


@pytest.mark.parametrize(
    ("decode", "message", "field"),
    [
        (draft.decode_request, draft_pb2.DraftRequest(commands=[{}]), "commands"),
        (draft.decode_response, draft_pb2.DraftResponse(events=[{}]), "events"),
        (validator.decode_request, validator_pb2.VerifyRequest(commands=[{}]), "commands"),
        (validator.decode_response, validator_pb2.VerifyResponse(events=[{}]), "events"),
        (scheduler.decode_event, scheduler_pb2.SchedulerServiceGenerateResponse(), "event"),
        (scheduler.decode_finish, scheduler_pb2.FinishRequest(), "reason"),
        (
            scheduler.decode_event,
            scheduler_pb2.SchedulerServiceGenerateResponse(finished={}),
            "finished.finish_reason",
        ),
    ],
)
def test_empty_events_are_malformed(decode, message, field):
    with pytest.raises(tensors.MalformedMessage) as raised:
        decode(message)
    assert raised.value.field == field


def test_values_of_a_later_revision_claim_nothing():
    assert generation.source_from_pb(99) is None
    assert generation.finish_from_pb(99) is None
    assert worker.exactness_from_pb(99) is worker.Exactness.NEAR_TIE
    later = scheduler_pb2.DescribeResponse(state={"validators": [{"address": "a:1", "status": 99}]})
    assert scheduler.decode_describe(later).validators[0].status is state.WorkerStatus.REFUSED


def test_ids_and_indices_are_packed():
    """A prompt of n ids takes 4 n bytes and a few more."""
    request = scheduler.GenerateRequest((151_935,) * 1000, SamplingParameters(), 0)
    assert len(scheduler.encode_generate(request).SerializeToString()) < 4100


def test_revisions_are_told_by_default():
    hello = worker.Hello(b"0" * 16)
    assert worker.hello_from_pb(worker.hello_to_pb(hello)) == hello
    assert worker_pb2.Hello().minimum_revision == 0
