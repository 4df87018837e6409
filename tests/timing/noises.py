"""Synthetic pairs of times whose true ratio is known: the noises of a shared machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

KINDS = ("normal", "skewed", "bursts", "drifting", "correlated")


@dataclass
class Machine:
    """Yields (kernel, baseline) milliseconds, block by block, the order of each drawn anew."""

    kind: str
    ratio: float
    rng: np.random.Generator

    def pairs(self) -> Iterator[tuple[float, float]]:
        moment, level = 0, 0.0
        while True:
            pair = []
            for _ in range(2):
                level = 0.95 * level + self.rng.normal(0, 0.04)
                pair.append(self._noise(moment, level))
                moment += 1
            if self.rng.random() < 0.5:
                pair.reverse()
            yield self.ratio * pair[0], pair[1]

    def _noise(self, moment: int, level: float) -> float:
        rng = self.rng
        if self.kind == "skewed":
            return 1 + rng.exponential(0.2)
        if self.kind == "bursts":  # every tenth sample meets a neighbour
            return rng.lognormal(0, 0.03) * (1 + 2 * (rng.random() < 0.1))
        own = rng.lognormal(0, 0.05)
        if self.kind == "drifting":  # half as slow again in 40 samples, and a wave
            return own * (1 + moment / 80 + 0.2 * np.sin(moment / 5))
        return own * (np.exp(level) if self.kind == "correlated" else 1.0)
