"""Many prompts through one gateway: a few at a time, tried again, counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from outrider.cli.prompts import FilePrompt, explained, prompt_of
from outrider.client import Chat, ChatMessage, OutriderClient, OutriderError, Prompt
from outrider.rpc.errors import NotFound

TRIES = 3
PAUSE_S = 1.0
"""Before a prompt is tried again, when the gateway does not say."""
LONGEST_PAUSE_S = 30.0
GIVE_UP = 10
"""So many prompts in a row that failed for want of a gateway: the rest would, too."""


class Progress:
    """A bar on a terminal; elsewhere failures alone, one line each."""

    def __init__(self, console: Console, num_prompts: int) -> None:
        self._console = console
        columns = (
            TextColumn("answering"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._bars = Bars(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bars.add_task("", total=num_prompts, failed="")

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def done(self, num_failed: int) -> None:
        """One prompt more has had its turn."""
        self._bars.update(self._task, advance=1, failed=f"{num_failed} failed" if num_failed else "")

    def failed(self, line: int, message: str) -> None:
        """Say which prompt has no answer, and why."""
        text = f"line {line}: {' '.join(message.split())}"
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Warming:
    """Answers each prompt once, and knows how far it is.

    Args:
        prompts: in the order of the file.
        options: of `OutriderClient.complete`.
        system: in front of each prompt.
        raw: without chat template; each prompt has one turn then.
    """

    def __init__(
        self, prompts: Sequence[FilePrompt], options: dict[str, Any], *, system: str, raw: bool
    ) -> None:
        self._prompts = prompts
        self._options = options
        self._system = system
        self._raw = raw
        self._open = {each.line for each in prompts}
        # Lines that failed for want of a gateway, since one that did not.
        self._lost: list[int] = []
        self.num_answers = 0
        self.num_tokens = 0
        self.num_failed = 0

    @property
    def num_prompts(self) -> int:
        """Of the file, or what is left of it."""
        return len(self._prompts)

    @property
    def is_given_up(self) -> bool:
        """The gateway was lost for good."""
        return len(self._lost) >= GIVE_UP

    async def check(self, client: OutriderClient) -> None:
        """Raises OutriderError when there is nobody to ask, or not for this model."""
        models = [each.model for each in await client.list_models()]
        wanted = self._options["model"]
        if wanted and wanted not in models:
            raise NotFound(f"model {wanted!r} is not served; ask for {' or '.join(models)}", field="model")

    async def run(self, client: OutriderClient, progress: Progress, concurrency: int) -> None:
        """Answer all, `concurrency` at a time; those that fail are told and counted, and stop no other."""
        waiting = iter(self._prompts)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(self._prompts))):
                group.create_task(self._work(client, progress, waiting))

    def summary(self) -> str:
        """What was done, and how to go on if that was not all."""
        num_done = self.num_prompts - len(self._open) - self.num_failed
        given = f"{self.num_answers} answers of {self.num_tokens} tokens"
        parts = [f"{num_done} of {self.num_prompts} prompts answered, {given}"]
        if self.num_failed:
            parts.append(f"{self.num_failed} failed")
        if self._open:
            why = "the gateway is gone" if self.is_given_up else "stopped"
            parts.append(f"{why}; go on with --from-line {min((*self._open, *self._lost))}")
        return "; ".join(parts)

    async def _work(self, client: OutriderClient, progress: Progress, waiting: Iterator[FilePrompt]) -> None:
        for prompt in waiting:
            if self.is_given_up:
                return
            try:
                await self._answer(client, prompt)
                self._lost.clear()
            except OutriderError as error:
                self.num_failed += 1
                if error.retryable:
                    self._lost.append(prompt.line)
                else:
                    self._lost.clear()
                progress.failed(prompt.line, explained(error))
            self._open.discard(prompt.line)
            progress.done(self.num_failed)

    async def _answer(self, client: OutriderClient, prompt: FilePrompt) -> None:
        """All turns of one prompt, each answer being part of the next question."""
        asked = prompt_of(prompt.turns[0], self._system, raw=self._raw)
        for index, turn in enumerate(prompt.turns):
            if index and isinstance(asked, Chat):
                asked = Chat((*asked.messages, ChatMessage("user", turn)))
            text = await self._complete(client, asked)
            if isinstance(asked, Chat):
                asked = Chat((*asked.messages, ChatMessage("assistant", text)))

    async def _complete(self, client: OutriderClient, asked: Prompt) -> str:
        num_tries = 0
        while True:
            num_tries += 1
            try:
                completion = await client.complete(asked, **self._options)
            except OutriderError as error:
                if num_tries == TRIES or not error.retryable:
                    raise
                await asyncio.sleep(min(error.retry_after_s or PAUSE_S, LONGEST_PAUSE_S))
            else:
                self.num_answers += 1
                self.num_tokens += completion.final.completion_tokens
                return completion.text
