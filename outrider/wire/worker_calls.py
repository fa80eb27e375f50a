"""The unary calls of every worker (WorkerService in worker.proto)."""

from __future__ import annotations

from outrider.v1 import worker_pb2 as pb
from outrider.wire.worker import (
    ModelInfo,
    WorkerLoad,
    info_from_pb,
    info_to_pb,
    load_from_pb,
    load_to_pb,
)


def encode_model_info(info: ModelInfo) -> pb.GetModelInfoResponse:
    return pb.GetModelInfoResponse(info=info_to_pb(info))


def decode_model_info(message: pb.GetModelInfoResponse | pb.ReloadResponse) -> ModelInfo:
    return info_from_pb(message.info)


def encode_load(load: WorkerLoad) -> pb.GetLoadResponse:
    return pb.GetLoadResponse(load=load_to_pb(load))


def encode_reload(info: ModelInfo) -> pb.ReloadResponse:
    return pb.ReloadResponse(info=info_to_pb(info))


def decode_reload_request(message: pb.ReloadRequest) -> str:
    """The model asked for; empty: the present one again."""
    return message.model


def model_info_request() -> pb.GetModelInfoRequest:
    return pb.GetModelInfoRequest()


def load_request() -> pb.GetLoadRequest:
    return pb.GetLoadRequest()


def reload_request(model: str) -> pb.ReloadRequest:
    return pb.ReloadRequest(model=model)


def tokenizer_request() -> pb.GetTokenizerRequest:
    return pb.GetTokenizerRequest()


def decode_load(message: pb.GetLoadResponse) -> WorkerLoad:
    return load_from_pb(message.load)
