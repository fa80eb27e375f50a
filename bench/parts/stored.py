"""What the shared store is worth: prompts that come again, again edited, and after others of their kind."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.configurations import CONFIGURATIONS, DEFAULT, PLAIN, Configuration
from bench.options import Options
from bench.parts.speedup import as_json
from bench.spread import spread
from bench.stage import Stage
from bench.turns import Turn, answer, check_equal
from bench.workloads import Prompt
from outrider.sampling.parameters import SamplingParameters

EDIT = "Return the whole file below, unchanged, and nothing else.\n\n```python\n"
NUM_LINES = 24
CHANGED_LINES = 3
NUM_FILES = 3


async def run(stage: Stage, options: Options) -> dict[str, Any]:
    """Plain decoding, then the same prompt without and with what the store has; all ids are compared."""
    plain = CONFIGURATIONS[PLAIN]
    drafted = replace(CONFIGURATIONS[DEFAULT if stage.has_draft else "ngram"], store=True)
    await stage.only({plain.layout, drafted.layout})
    asking = _Asking(stage, options, plain, drafted)
    await asking.warm_up()
    repeated = [await asking.again(prompt, prompt) for prompt in options.prompts]
    files = [_files(number) for number in range(NUM_FILES)]
    edited = [await asking.again(first, second) for first, second in files]
    learnt = await asking.after_others(options.prompts)
    return {
        "num_tokens": options.num_tokens,
        "summary": {
            "first time / plain": _ratio(repeated, "cold"),
            "again / plain": _ratio(repeated, "warm"),
            f"a file, first time / plain ({NUM_LINES} lines)": _ratio(edited, "cold"),
            f"the file with {CHANGED_LINES} lines changed / plain": _ratio(edited, "warm"),
            "after other prompts of the kind / without them": as_json(spread(learnt)),
        },
    }


class _Asking:
    """Asks both layouts; each question has a salt, which keeps what the store has apart."""

    def __init__(self, stage: Stage, options: Options, plain: Configuration, drafted: Configuration) -> None:
        self._stage = stage
        self._options = options
        self._plain = plain
        self._drafted = drafted
        self._sampling = replace(SamplingParameters(temperature=0.0), max_tokens=options.num_tokens)

    async def warm_up(self) -> None:
        """The first turn of each is not counted."""
        for configuration in (self._plain, self._drafted):
            await self._ask(configuration, self._options.prompts[0], _salt())

    async def again(self, first: Prompt, second: Prompt) -> dict[str, float]:
        """Rates of `second`: plain, cold, and after `first` was answered; cold is that of `first`."""
        salt = _salt()
        plain = await self._ask(self._plain, second, salt)
        cold = await self._ask(self._drafted, first, salt)
        warm = await self._ask(self._drafted, second, salt)
        check_equal(plain, PLAIN, warm, "with the store")
        rates = {"plain": plain.rate, "cold": cold.rate, "warm": warm.rate}
        self._options.say(
            f"{second.name}: plain {plain.rate:.1f}  first time {cold.rate:.1f}  again {warm.rate:.1f} tok/s"
        )
        return rates

    async def after_others(self, prompts: Sequence[Prompt]) -> list[float]:
        """The first half of each kind is answered; ratios of the others, with what was learnt and without."""
        ratios = []
        for kind in dict.fromkeys(prompt.workload for prompt in prompts):
            members, salt = [prompt for prompt in prompts if prompt.workload == kind], _salt()
            half = len(members) // 2
            for prompt in members[:half]:
                await self._ask(self._drafted, prompt, salt)
            for prompt in members[half:]:
                without = await self._ask(replace(self._drafted, store=False), prompt, salt)
                learnt = await self._ask(self._drafted, prompt, salt)
                check_equal(without, "without the store", learnt, "with the store")
                ratios.append(learnt.rate / without.rate)
                self._options.say(f"{prompt.name}: {ratios[-1]:.2f} with the patterns of others")
        return ratios

    async def _ask(self, configuration: Configuration, prompt: Prompt, salt: str) -> Turn:
        client = await self._stage.client(self._options.layout(configuration))
        return await answer(client, prompt, configuration, self._sampling, cache_salt=salt)


def _salt() -> str:
    return secrets.token_hex(8)


def _ratio(rates: Sequence[dict[str, float]], name: str) -> dict[str, float] | None:
    return as_json(spread(each[name] / each["plain"] for each in rates))


def _files(number: int) -> tuple[Prompt, Prompt]:
    """A file, and the same one with some lines changed; both are to be returned as they are."""
    lines = [f"PORT_{line} = {8000 + 37 * line + number}  # of service {line}" for line in range(NUM_LINES)]
    changed = list(lines)
    for line in range(CHANGED_LINES):
        at = (line + 1) * NUM_LINES // (CHANGED_LINES + 1)
        changed[at] = f"HOST_{at} = 'host-{number}-{at}.example.org'"
    first, second = (
        Prompt(f"file-{number}-{name}", "file", EDIT + "\n".join(text) + "\n```")
        for name, text in (("first", lines), ("edited", changed))
    )
    return first, second
