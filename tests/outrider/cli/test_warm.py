"""`outrider warm` against a gateway that runs here, and what it does when prompts fail."""

import asyncio
import io
import signal
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from outrider.cli import warming
from outrider.cli.main import app
from outrider.cli.prompts import FilePrompt
from outrider.cli.warming import GIVE_UP, TRIES, Progress, Warming
from outrider.client import OutriderClient, SamplingParameters
from outrider.rpc import errors
from tests.outrider.cli.conftest import run_command, start_command
from tests.support.gateway import running_gateway
from tests.support.scripted import Script

SAMPLING = SamplingParameters(temperature=0.0, max_tokens=256)


@pytest.fixture
async def address(backend, info):
    backend.show(replace(info, context_length=512))  # several turns of a byte or so a token
    async with running_gateway(backend) as address:
        yield address


@pytest.fixture
def answers(backend, tokenizer, ids):
    """Texts that were asked, in order; answers[text] = script says how, and is "one two" unless given."""
    return Answers(backend, tokenizer, Script([ids("one two")]))


class Answers(dict[str, Script]):
    def __init__(self, backend, tokenizer, usual):
        self.asked, self.requests = [], []
        self._tokenizer, self._usual = tokenizer, usual
        backend.scheduler.script_for = self._script_for

    def _script_for(self, request):
        text = self._tokenizer.decode(request.prompt)
        self.asked.append(text)
        self.requests.append(request)
        return self.get(text, self._usual)


def chat(*messages):
    return "".join(f"<|{role}|>{text}\n" for role, text in messages) + "<|assistant|>"


def written(folder, *lines, name="prompts.txt"):
    path = folder / name
    path.write_text("\n".join(lines))
    return str(path)


async def test_each_prompt_is_asked_as_it_will_be_asked(answers, address, tmp_path, ids):
    file = written(tmp_path, '{"prompt": "one"}', '{"turns": ["two", "three"]}', name="some.jsonl")
    flags = ["--system", "short", "--concurrency", "1", "--max-tokens", "17", "--workload", "poetry"]
    code, out, error = await run_command(
        "warm", file, "--server", address, *flags, "--cache-salt", "pepper", "--model", "tiny"
    )
    assert (code, error) == (0, "")
    assert out == f"2 of 2 prompts answered, 3 answers of {3 * len(ids('one two'))} tokens\n"
    system = ("system", "short")
    assert answers.asked == [
        chat(system, ("user", "one")),
        chat(system, ("user", "two")),
        chat(system, ("user", "two"), ("assistant", "one two"), ("user", "three")),
    ]
    for request in answers.requests:
        assert request.sampling == SamplingParameters(temperature=0.0, max_tokens=17)
        assert (request.store, request.workload, request.cache_salt) == (True, "poetry", "pepper")


async def test_raw_prompts_go_out_as_they_stand_from_the_line_given(answers, address, tmp_path):
    file = written(tmp_path, "one", "two", "three")
    code, _, _ = await run_command("warm", file, "--server", address, "--raw", "--from-line", "2")
    assert code == 0
    assert sorted(answers.asked) == ["three", "two"]


async def test_a_prompt_that_fails_is_told_and_stops_no_other(answers, address, tmp_path):
    answers["two"] = Script(refusal=errors.InvalidArgument("two is refused", field="prompt"))
    file = written(tmp_path, "one", "two", "three")
    code, out, error = await run_command("warm", file, "--server", address, "--raw")
    assert code == 1
    assert error == "line 2: two is refused\n"
    assert out.startswith("2 of 3 prompts answered, 2 answers of ")
    assert out.endswith("; 1 failed\n")
    assert answers.asked.count("two") == 1


async def test_it_speaks_for_a_tenant(backend, answers, tmp_path):
    file = written(tmp_path, "one")
    async with running_gateway(backend, tenant_metadata="x-tenant") as address:
        flags = ["--server", address, "--tenant", "blue"]
        code, _, _ = await run_command("warm", file, *flags, OUTRIDER_TENANT_METADATA="x-tenant")
    assert code == 0
    assert [request.tenant for request in answers.requests] == ["blue"]


async def test_ctrl_c_says_where_to_go_on(answers, address, tmp_path, ids):
    hanging = answers["two"] = Script([ids("one")], end=None)
    file = written(tmp_path, "one", "two", "three")
    process = await start_command("warm", file, "--server", address, "--raw", "--concurrency", "1")
    await asyncio.wait_for(hanging.sent.wait(), 60)
    process.send_signal(signal.SIGINT)
    out, error = await process.communicate()
    assert (process.returncode, error) == (130, b"")
    assert out.decode().startswith("1 of 3 prompts answered, 1 answers of ")
    assert out.decode().endswith("; stopped; go on with --from-line 2\n")
    await asyncio.wait_for(hanging.cancelled.wait(), 10)


class Flaky(Script):
    """Refuses so many times, then answers."""

    def __init__(self, rounds, num_refusals):
        super().__init__(rounds)
        self.left = num_refusals

    @property
    def refusal(self):
        self.left -= 1
        return errors.Unavailable("full", retry_after_s=0.001) if self.left >= 0 else None

    @refusal.setter
    def refusal(self, _):
        pass


async def warmed(address, num_prompts, concurrency=1):
    """A run over prompts "1", "2" and so on, and what it said."""
    prompts = [FilePrompt(number, (str(number),)) for number in range(1, num_prompts + 1)]
    run = Warming(prompts, {"model": "", "sampling": SAMPLING}, system="", raw=True)
    said = io.StringIO()
    async with OutriderClient(address) as client:
        with Progress(Console(file=said), num_prompts) as progress:
            await run.run(client, progress, concurrency)
    return run, said.getvalue()


async def test_what_is_refused_for_a_while_is_asked_again(answers, address, ids):
    answers["1"] = Flaky([ids("one")], TRIES - 1)
    run, said = await warmed(address, 1)
    assert (run.num_answers, run.num_failed, said) == (1, 0, "")
    assert answers.asked == ["1"] * TRIES


async def test_a_prompt_that_is_refused_for_good_fails_and_the_others_go_on(answers, address, ids):
    answers["1"] = Flaky([ids("one")], TRIES)
    run, said = await warmed(address, 3)
    assert (run.num_answers, run.num_failed, said) == (2, 1, "line 1: full\n")
    assert not run.is_given_up


async def test_a_gateway_that_is_gone_ends_the_run_with_a_place_to_go_on(answers, address, monkeypatch, ids):
    monkeypatch.setattr(warming, "PAUSE_S", 0.0)
    for number in range(2, 99):
        answers[str(number)] = Flaky([ids("one")], 99)
    run, said = await warmed(address, 50)
    assert run.is_given_up
    assert run.summary().startswith("1 of 50 prompts answered")
    assert run.summary().endswith(f"{GIVE_UP} failed; the gateway is gone; go on with --from-line 2")
    assert said.count("\n") == GIVE_UP


async def test_no_more_than_so_many_are_asked_at_one_time(answers, address, backend, ids):
    gate = asyncio.Semaphore(0)
    for number in range(1, 6):
        answers[str(number)] = Script([ids("one")], gate=gate)
    task = asyncio.create_task(warmed(address, 5, concurrency=2))
    for num_begun in (2, 3):
        while len(answers.asked) < num_begun:  # noqa: ASYNC110  # the gateway answers in its own time
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert len(answers.asked) == num_begun
        gate.release()
    for _ in range(5):
        gate.release()
    run, _ = await task
    assert run.num_answers == 5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 1, "no gateway answers at 127.0.0.1:1"),
        (["--max-tokens", "0"], 1, "max_tokens is 0; give"),
        (["--from-line", "4"], 2, "has no prompt from line 4 on; lower --from-line"),
        (["--raw", "--system", "x"], 2, "a raw prompt has no system message"),
        (["--tenant", "blue"], 2, "--tenant needs --tenant-metadata KEY"),
        (["--tenant", "blue", "--tenant-metadata", "X-Tenant"], 2, "--tenant-metadata is 'X-Tenant'; give"),
        (["--tenant", "blå", "--tenant-metadata", "x"], 2, "give printable ASCII"),
    ],
)
def test_what_can_not_work_is_one_line_before_anything_is_asked(tmp_path, arguments, code, message):
    file = written(tmp_path, "one")
    result = CliRunner().invoke(app, ["warm", file, "--server", "127.0.0.1:1", *arguments])
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        ('{"prompt": "one"}\nWhy?', [], "line 2: this is no JSON"),
        ('{"prompt": "one"}\n{"turns": ["one", "two"]}', ["--raw"], "line 2: several turns need the chat"),
    ],
)
def test_a_bad_line_is_named(tmp_path, content, flags, message):
    file = written(tmp_path, content, name="some.jsonl")
    result = CliRunner().invoke(app, ["warm", file, *flags])
    assert result.exit_code != 0
    assert message in result.stderr


async def test_another_model_is_refused_once(address, tmp_path):
    code, out, error = await run_command(
        "warm", written(tmp_path, "one", "two"), "--server", address, "--model", "x"
    )
    assert (code, out) == (1, "")
    assert error == "error: model 'x' is not served; ask for tiny\n"
