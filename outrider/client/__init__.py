"""The client: generation on text against a gateway, for asyncio."""

from outrider.client.client import DEFAULT_ADDRESS, OutriderClient
from outrider.client.completion import Completion
from outrider.rpc.errors import OutriderError
from outrider.sampling.acceptance import FinishReason, TokenLogprobs
from outrider.sampling.parameters import SamplingParameters
from outrider.wire.generation import Costs, Counters, DraftSource, SourceCounters, Speculation
from outrider.wire.inference import Chat, ChatMessage, Delta, Final, Prompt, PromptIds
from outrider.wire.worker import Exactness, ModelInfo

__all__ = [
    "DEFAULT_ADDRESS",
    "Chat",
    "ChatMessage",
    "Completion",
    "Costs",
    "Counters",
    "Delta",
    "DraftSource",
    "Exactness",
    "Final",
    "FinishReason",
    "ModelInfo",
    "OutriderClient",
    "OutriderError",
    "Prompt",
    "PromptIds",
    "SamplingParameters",
    "SourceCounters",
    "Speculation",
    "TokenLogprobs",
]
