"""The maths of a choice: noise, processing of logits, the sampler, the draft tree, the acceptance rule."""

from outrider.sampling.acceptance import FinishReason, Judgement, judge
from outrider.sampling.filters import Kept
from outrider.sampling.logprobs import TokenLogprobs, token_logprobs
from outrider.sampling.noise import PURPOSE_TOKEN, gumbel, noise_key, uniform_bits
from outrider.sampling.parameters import InvalidParameter, SamplingParameters
from outrider.sampling.sampler import NonFiniteLogits, TokenSampler
from outrider.sampling.tree import ROOT, DraftTree, InvalidTree

__all__ = [
    "PURPOSE_TOKEN",
    "ROOT",
    "DraftTree",
    "FinishReason",
    "InvalidParameter",
    "InvalidTree",
    "Judgement",
    "Kept",
    "NonFiniteLogits",
    "SamplingParameters",
    "TokenLogprobs",
    "TokenSampler",
    "gumbel",
    "judge",
    "noise_key",
    "token_logprobs",
    "uniform_bits",
]
