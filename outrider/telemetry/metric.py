"""What the declaration of one metric says."""

from __future__ import annotations

import enum
from dataclasses import dataclass

PREFIX = "outrider_"


class Kind(enum.Enum):
    """The types of Prometheus that are used here."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    # A gauge that is always 1: its labels tell.
    INFO = "info"


class In(enum.Enum):
    """The processes that export a metric."""

    GATEWAY = "gateway"
    SCHEDULER = "scheduler"
    VALIDATOR = "validator"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of series.

    Attributes:
        stem: the name without the prefix.
        kind: its type.
        processes: who exports it.
        help: its definition, in one or two sentences.
        labels: all of them bounded; never an id of a request or a session.
        buckets: upper bounds of a histogram.
    """

    stem: str
    kind: Kind
    processes: tuple[In, ...]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """As it is scraped; a histogram's series add _bucket, _sum and _count to it."""
        return PREFIX + self.stem
