"""What the client alone does; answers are tested over the whole way in tests/gateway."""

import socket
from contextlib import aclosing

import grpc
import pytest

from outrider.client import Delta, OutriderClient, SamplingParameters, Speculation
from outrider.rpc import errors
from outrider.v1 import inference_pb2, inference_pb2_grpc
from tests.support.gateway import running_gateway
from tests.support.scripted import Script


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"sampling": SamplingParameters(top_p=0.0)}, "top_p"),
        ({"sampling": SamplingParameters(max_tokens=-1)}, "max_tokens"),
        ({"speculation": Speculation(k=-1)}, "k"),
        ({"speculation": Speculation(w=0)}, "w"),
        ({"speculation": Speculation(min_confidence=1.5)}, "min_confidence"),
        ({"speculation": Speculation(min_confidence=float("nan"))}, "min_confidence"),
        ({"speculation": Speculation(min_k=-1)}, "min_k"),
        ({"speculation": Speculation(min_k=3, max_k=2)}, "min_k"),
        ({"speculation": Speculation(max_k=2**32)}, "max_k"),
        ({"speculation": Speculation(tpot_target_ms=0)}, "tpot_target_ms"),
        ({"speculation": Speculation(finish_target_ms=-1)}, "finish_target_ms"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"choice": -1}, "choice"),
    ],
)
async def test_what_no_message_can_hold_is_refused_before_it_is_sent(options, field):
    async with OutriderClient("127.0.0.1:1") as client:
        with pytest.raises(errors.InvalidArgument, match=f"^{field} is ") as caught:
            await client.complete("one", **options)
    assert caught.value.field == field


@pytest.mark.parametrize("bound", ["min_k", "max_k"])
async def test_a_bound_beside_a_fixed_k_is_refused(bound):
    async with OutriderClient("127.0.0.1:1") as client:
        with pytest.raises(errors.InvalidArgument, match=f"^{bound} bounds a k .* and k is 4") as caught:
            await client.complete("one", speculation=Speculation(k=4, **{bound: 2}))
    assert caught.value.field == bound


@pytest.mark.parametrize(
    ("prompt", "options"), [("\ud800", {}), ("one", {"sampling": SamplingParameters(max_tokens=2**32)})]
)
async def test_what_can_not_be_encoded_is_refused(prompt, options):
    async with OutriderClient("127.0.0.1:1") as client:
        with pytest.raises(errors.InvalidArgument, match="can not be sent"):
            await client.complete(prompt, **options)


async def test_a_gateway_that_is_not_there_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    async with OutriderClient(address) as client:
        with pytest.raises(errors.Unavailable, match=f"no gateway answers at {address}"):
            await client.complete("one")
        with pytest.raises(errors.Unavailable, match=f"no gateway answers at {address}"):
            await client.list_models()
        with pytest.raises(errors.Unavailable, match=f"no gateway answers at {address}"):
            await client.purge()


async def test_all_wishes_of_a_request_reach_the_scheduler(backend, ids):
    script = backend.play(Script([ids("one")]))
    wished = Speculation(min_k=2, max_k=5, tpot_target_ms=30, finish_target_ms=900)
    async with running_gateway(backend) as address, OutriderClient(address) as client:
        await client.complete("one", speculation=wished, store=False, workload="poetry", cache_salt="pepper")
    assert script.request.speculation == wished
    assert (script.request.store, script.request.workload) == (False, "poetry")
    assert script.request.cache_salt == "pepper"


async def test_purge_gives_the_number_of_entries(backend):
    async with running_gateway(backend) as address, OutriderClient(address) as client:
        assert await client.purge() == 7
    assert backend.scheduler.purged == [""]


async def test_a_closed_client_connects_again(backend, ids):
    backend.play(Script([ids("one")]))
    async with running_gateway(backend) as address:
        client = OutriderClient(address)
        texts = []
        for _ in range(2):
            texts.append((await client.complete("one")).text)
            await client.close()
    assert texts == ["one", "one"]


async def test_leaving_early_does_not_disturb_other_answers(backend, ids):
    backend.play(Script([ids("one"), ids(" two")]))
    async with running_gateway(backend) as address, OutriderClient(address) as client:
        async with aclosing(client.generate("one")) as events:
            assert isinstance(await anext(events), Delta)
        assert (await client.complete("one")).text == "one two"


class Odd(inference_pb2_grpc.InferenceServiceServicer):
    """A gateway that breaks its contract in the way that the model's name says."""

    async def Generate(self, request, context):  # noqa: N802  # gRPC's name
        if request.model == "empty event":
            yield inference_pb2.GenerateResponse()
        elif request.model == "no reason":
            yield inference_pb2.GenerateResponse(final=inference_pb2.Final())
        else:
            yield inference_pb2.GenerateResponse(delta=inference_pb2.Delta(text="one"))

    async def ListModels(self, request, context):  # noqa: N802  # gRPC's name
        return inference_pb2.ListModelsResponse()


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        ("empty event", errors.ProtocolViolation, "can not be read"),
        ("no reason", errors.ProtocolViolation, "finish_reason"),
        ("no final", errors.Unavailable, "ended the answer early"),
    ],
)
async def test_an_answer_that_breaks_its_contract_is_an_error(model, kind, message):
    server = grpc.aio.server()
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(Odd(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with OutriderClient(f"127.0.0.1:{port}") as client:
        with pytest.raises(kind, match=message):
            await client.complete("one", model=model)
    await server.stop(0)
