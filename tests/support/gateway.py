"""A gateway as it runs, with a scripted scheduler and a scripted validator behind it: fixtures to import."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from gateway.server import serve
from gateway.settings import GatewaySettings
from outrider.client import OutriderClient
from outrider.telemetry import NO_TRACING
from outrider.text.tokenizer import Tokenizer as TextTokenizer
from outrider.text.vocabulary import fingerprint, vocabulary
from outrider.wire.worker import TokenizerFiles
from tests.support.scripted import info_of, scripted_backend

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'tool' %}{{ raise_exception('No tools here') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}\n{% endfor %}<|assistant|>"
)


def train() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["one two three four five, one two three"] * 3, trainer)
    # An end token that would show: not every model marks its own as special.
    tokenizer.add_tokens([AddedToken("<end>", special=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


@pytest.fixture(scope="session")
def files() -> TokenizerFiles:
    tokenizer_json = train().to_str().encode()
    return TokenizerFiles(
        tokenizer_json, TEMPLATE, {"bos_token": "<s>"}, fingerprint(vocabulary(tokenizer_json))
    )


@pytest.fixture(scope="session")
def tokenizer(files) -> TextTokenizer:
    return TextTokenizer(files.tokenizer_json)


@pytest.fixture(scope="session")
def ids(tokenizer):
    """ids("text") without special tokens."""
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


@pytest.fixture(scope="session")
def end_id(ids) -> int:
    return int(ids("<end>")[0])


@pytest.fixture(scope="session")
def info(files, end_id):
    return info_of(files, vocab_size=end_id + 1, eos_ids=(end_id,))


@pytest.fixture
async def backend(files, info):
    async with scripted_backend(files, info) as backend:
        yield backend


@asynccontextmanager
async def running_gateway(backend, *, tracing=NO_TRACING, **settings):
    """The address of a gateway in front of the backend."""
    ready, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
    chosen = GatewaySettings(scheduler=backend.address, port=0, grace_s=0.2, **settings)
    task = asyncio.create_task(serve(chosen, ready=ready, stop=stop, tracing=tracing))
    await asyncio.wait({ready, task}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield f"127.0.0.1:{ready.result()}"
    finally:
        stop.set()
        await task


@pytest.fixture
async def client(backend):
    async with running_gateway(backend) as address, OutriderClient(address) as client:
        yield client
