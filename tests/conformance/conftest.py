"""Houses for the conformance tests: tiny models that do not loop, in one process."""

import random

import pytest
import pytest_asyncio

from outrider.sampling.parameters import SamplingParameters
from tests.support.in_process import running
from tests.support.models import tiny_model, with_noise


@pytest.fixture(scope="session")
def prompts():
    """Prompts whose greedy output does not loop: without that, equality would prove nothing."""
    return [tuple(random.Random(seed).randrange(3, 400) for _ in range(20 + 12 * seed)) for seed in (0, 1, 3)]


@pytest.fixture(scope="session")
def target(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("target"), seed=2)


@pytest.fixture(scope="session")
def noisy(tmp_path_factory, target):
    """A draft that is right about half the time."""
    return with_noise(target, tmp_path_factory.mktemp("draft"), scale=0.05)


@pytest.fixture(scope="session")
def ways():
    """Both ways to choose, by name."""
    greedy = SamplingParameters(temperature=0.0, max_tokens=32, logprobs=2, ignore_eos=True)
    sampled = SamplingParameters(temperature=0.8, top_p=0.95, max_tokens=32, logprobs=2, ignore_eos=True)
    return {"greedy": greedy, "sampled": sampled}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(target, noisy):
    async with running(target, draft=noisy) as house:
        yield house


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def twins(target):
    """A house whose draft model is the target itself."""
    async with running(target, draft=target) as house:
        yield house
