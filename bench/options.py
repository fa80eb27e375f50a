"""What a run is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bench.configurations import Configuration, Layout
from bench.workloads import Prompt
from outrider.sampling.parameters import SamplingParameters


@dataclass(frozen=True, slots=True)
class Options:
    """One run. Minutes bound a part's measuring; starting processes comes on top."""

    prompts: tuple[Prompt, ...]
    """In the order in which they are asked."""
    configurations: tuple[Configuration, ...]
    layouts: Mapping[str, Layout]
    peers: tuple[str, ...]
    sampling: SamplingParameters
    num_tokens: int
    repeats: int
    short: bool
    """Less of everything."""
    levels: tuple[int, ...]
    """Sessions at a time."""
    rates: tuple[str, ...]
    """Of arrivals: shares of the saturation such as 0.5, or requests per second such as 2/s."""
    minutes: float | None
    say: Callable[[str], None]

    def limit(self, *, full: float, short: float) -> float:
        """Minutes of one part."""
        return self.minutes if self.minutes is not None else short if self.short else full

    def usable(self, *, has_draft: bool, names: Collection[str] = ()) -> list[Configuration]:
        """Configurations that the models can run, which takes a draft at most; of these `names`, if any."""
        return [
            each
            for each in self.configurations
            if (has_draft or not self.layout(each).draft) and (not names or each.name in names)
        ]

    def layout(self, configuration: Configuration) -> Layout:
        """Where a configuration runs."""
        return self.layouts[configuration.layout]
