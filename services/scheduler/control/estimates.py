"""Estimates that forget: a decayed mean, and a decayed least-squares fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(slots=True)
class DecayedMean:
    """The mean of samples whose weight falls by `decay` with each newer one."""

    decay: float
    # Sum of the weights; at most 1 / (1 - decay).
    weight: float = 0.0
    _sum: float = 0.0

    def add(self, value: float) -> None:
        """Take one sample in."""
        self.weight = self.weight * self.decay + 1.0
        self._sum = self._sum * self.decay + value

    def value(self, default: float = 0.0) -> float:
        """The mean; `default` without samples."""
        return self._sum / self.weight if self.weight else default


class LinearFit:
    """Least squares over samples that count less with each newer one; a ridge pulls towards `start`.

    Fits seconds as non-negative weights times features. Of features that always change together the ridge
    alone decides which has how much.

    Args:
        start: weights before any sample.
        scale: how far each weight may well be from there, in seconds per unit of its feature.
        decay: weight of a sample against the one after it.
    """

    def __init__(self, start: Sequence[float], scale: Sequence[float], decay: float) -> None:
        self._start = np.array(start, dtype=np.float64)
        self._ridge = np.diag(np.square(_NOISE_S / np.array(scale, dtype=np.float64)))
        self._products = np.zeros_like(self._ridge)
        self._seen = np.zeros_like(self._start)
        self._decay = decay
        self.weights: tuple[float, ...] = tuple(start)
        """Seconds per unit of each feature, none below 0."""
        self.num_samples = 0

    def add(self, features: Sequence[float], seconds: float) -> None:
        """Take one sample in."""
        x = np.array(features, dtype=np.float64)
        self._products = self._products * self._decay + np.outer(x, x)
        self._seen = self._seen * self._decay + x * seconds
        self.num_samples += 1
        found = np.linalg.solve(self._products + self._ridge, self._seen + self._ridge @ self._start)
        self.weights = tuple(max(0.0, float(each)) for each in found)

    def predict(self, features: Sequence[float]) -> float:
        """Seconds, never negative."""
        return sum(weight * feature for weight, feature in zip(self.weights, features, strict=True))


_NOISE_S = 0.005
"""How far a sample may well be off."""
