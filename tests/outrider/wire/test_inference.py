import pytest

from outrider.sampling.acceptance import FinishReason, TokenLogprobs
from outrider.sampling.parameters import SamplingParameters
from outrider.v1 import inference_pb2 as pb
from outrider.wire import inference
from outrider.wire.generation import Costs, Counters, DraftSource, Failure, Speculation
from outrider.wire.inference import Chat, ChatMessage, Delta, Final, GenerateRequest, PromptIds
from outrider.wire.tensors import MalformedMessage
from outrider.wire.worker import Exactness

FULL = {
    "model": "m",
    "sampling": SamplingParameters(temperature=0.5, stop_ids=(1, 2), logprobs=0),
    "seed": 2**64 - 1,
    "stop": ("a", "小"),
    "speculation": Speculation(k=0, w=2, source=DraftSource.MODEL),
    "choice": 3,
    "token_by_token": True,
    "cache_salt": "salt",
    "store": False,
    "workload": "code",
}


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "text 小",
        Chat(()),
        Chat((ChatMessage("system", ""), ChatMessage("user", "小"))),
        PromptIds(()),
        PromptIds((1, -1)),
        None,
    ],
)
@pytest.mark.parametrize("options", [{}, FULL, {"seed": 0}])
def test_a_request_survives_the_wire(prompt, options):
    request = GenerateRequest(prompt, **options)
    message = pb.GenerateRequest.FromString(inference.encode_generate(request).SerializeToString())
    assert inference.decode_generate(message) == request


def test_an_empty_message_has_the_defaults():
    assert inference.decode_generate(pb.GenerateRequest()) == GenerateRequest(None)


@pytest.mark.parametrize(
    "event",
    [
        Delta(),
        Delta("小", (1, 2), (TokenLogprobs(-0.5, (1, 2), (-0.5, -1.5)), TokenLogprobs(-0.25, (), ()))),
        Final(FinishReason.LENGTH, 1, 0, 0, Counters(), "", Exactness.NEAR_TIE),
        Final(
            FinishReason.STOP_STRING,
            7,
            9,
            2**53,
            Counters(1, 2, 3, 4, 5, 6, 7, 8, (3, 2), (1, 0)),
            "id",
            Exactness.BITWISE,
            stop="x",
            changed_replica=True,
            draft_status="slow",
            trace_id="0" * 32,
            costs=Costs(*range(1, 16)),
        ),
        Failure("UNAVAILABLE", "lost", retryable=True, retry_after_ms=0),
        Failure("INTERNAL", "bug"),
    ],
)
def test_an_event_survives_the_wire(event):
    message = pb.GenerateResponse.FromString(inference.encode_event(event).SerializeToString())
    assert inference.decode_event(message) == event


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.GenerateResponse(), "event"),
        (pb.GenerateResponse(final=pb.Final()), "final.finish_reason"),
        (pb.GenerateResponse(delta=pb.Delta(token_ids={"data": b"123"})), "delta.token_ids"),
    ],
)
def test_a_malformed_event_names_its_field(message, field):
    with pytest.raises(MalformedMessage) as caught:
        inference.decode_event(message)
    assert caught.value.field == field
