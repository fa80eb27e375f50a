"""Bad requests, over the wire: each ends with one status that names the field and the fix."""

from dataclasses import replace

import grpc
import pytest

from outrider.client import Chat, ChatMessage, OutriderClient, PromptIds
from outrider.rpc import errors
from outrider.sampling.parameters import SamplingParameters
from outrider.v1 import inference_pb2, inference_pb2_grpc, tensor_pb2
from tests.support.gateway import running_gateway
from tests.support.scripted import Script, scripted_backend

USER = ChatMessage("user", "one")

BAD = {
    "unknown model": (
        ("one",),
        {"model": "gpt"},
        errors.NotFound,
        "model",
        "'gpt' is not served; ask for 'tiny'",
    ),
    "empty prompt": (("",), {}, errors.InvalidArgument, "prompt", "prompt is empty; give some text"),
    "empty chat": ((Chat(()),), {}, errors.InvalidArgument, "chat.messages", "give at least one"),
    "no role": (
        (Chat((USER, ChatMessage("", "one"))),),
        {},
        errors.InvalidArgument,
        "chat.messages[1].role",
        "is empty",
    ),
    "what the template refuses": (
        (Chat((ChatMessage("tool", "one"),)),),
        {},
        errors.InvalidArgument,
        "chat",
        "No tools here",
    ),
    "empty ids": ((PromptIds(()),), {}, errors.InvalidArgument, "prompt_ids", "give at least one id"),
    "negative id": ((PromptIds((1, -1)),), {}, errors.InvalidArgument, "prompt_ids", "holds -1"),
    "id beyond the last": ((PromptIds((9999,)),), {}, errors.InvalidArgument, "prompt_ids", "holds 9999"),
    "prompt beyond the context": (
        ("one two " * 40,),
        {},
        errors.ContextExceeded,
        "prompt",
        "context of 64 tokens must hold them",
    ),
    "chat beyond the context": (
        (Chat((USER,) * 40),),
        {},
        errors.ContextExceeded,
        "chat",
        "context of 64 tokens must hold them",
    ),
    "prompt that fills the context": (
        (PromptIds((1,) * 64),),
        {},
        errors.ContextExceeded,
        "prompt_ids",
        "shorten prompt_ids",
    ),
    "prompt of too many bytes": (
        ("one two " * 999,),
        {},
        errors.InvalidArgument,
        "prompt",
        "send at most 2000",
    ),
    "chat of too many bytes": (
        (Chat((ChatMessage("user", "one two " * 999),)),),
        {},
        errors.InvalidArgument,
        "chat",
        "send at most 2000",
    ),
    "17 stops": (
        ("one",),
        {"stop": [str(n) for n in range(17)]},
        errors.InvalidArgument,
        "stop",
        "at most 16",
    ),
    "empty stop": (("one",), {"stop": ["x", ""]}, errors.InvalidArgument, "stop", "empty string"),
    "biased id beyond the last": (
        ("one",),
        {"sampling": SamplingParameters(logit_bias=((9999, 1.0),))},
        errors.InvalidArgument,
        "sampling.logit_bias",
        "names id 9999",
    ),
}


@pytest.fixture
async def small_client(backend):
    async with running_gateway(backend, max_prompt_bytes=2000) as address, OutriderClient(address) as client:
        yield client


@pytest.mark.parametrize("case", BAD)
async def test_bad_input_is_one_clear_error(backend, small_client, case):
    arguments, options, kind, field, message = BAD[case]
    script = backend.play(Script())
    with pytest.raises(kind) as caught:
        await small_client.complete(*arguments, **options)
    assert type(caught.value) is kind
    assert caught.value.field == field
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert script.request is None


async def raw_error(address, request):
    """What a client without our checks is told."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = inference_pb2_grpc.InferenceServiceStub(channel).Generate(request)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
    return errors.error_from_rpc(caught.value)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (inference_pb2.GenerateRequest(), "prompt"),
        (inference_pb2.GenerateRequest(prompt="one", sampling={"top_p": 0.0}), "sampling.top_p"),
        (inference_pb2.GenerateRequest(prompt="one", sampling={"temperature": -1.0}), "sampling.temperature"),
        (inference_pb2.GenerateRequest(prompt="one", sampling={"max_tokens": 0}), "sampling.max_tokens"),
        (
            inference_pb2.GenerateRequest(
                prompt_ids=tensor_pb2.Tensor(datatype=tensor_pb2.DATA_TYPE_FP32, shape=[1], data=b"1234")
            ),
            "prompt_ids",
        ),
    ],
)
async def test_a_foreign_clients_bad_message_names_its_field(backend, request_, field):
    backend.play(Script())
    async with running_gateway(backend) as address:
        error = await raw_error(address, request_)
    assert type(error) is errors.InvalidArgument
    assert error.field == field


async def test_16_stops_and_a_prompt_that_leaves_room_for_one_token_are_fine(backend, client, ids):
    script = backend.play(Script([ids("one")]))
    await client.complete(PromptIds((1,) * 63), stop=[f"never {n}" for n in range(16)])
    assert len(script.request.prompt) == 63


@pytest.mark.parametrize(
    ("template", "why"), [("", "has no chat template"), ("{% for %}", "chat template is broken")]
)
async def test_a_chat_without_a_usable_template_says_to_send_a_prompt(files, info, ids, template, why):
    async with (
        scripted_backend(replace(files, chat_template=template), info) as backend,
        running_gateway(backend) as address,
        OutriderClient(address) as client,
    ):
        backend.play(Script([ids("one")]))
        with pytest.raises(errors.InvalidArgument, match=f"{why}.*send the text as prompt") as caught:
            await client.complete(Chat((USER,)))
        assert caught.value.field == "chat"
        assert (await client.complete("one")).text == "one"
