"""Samples of several programs in interleaved, randomised blocks, until a stop rule is met.

A block visits every arm once, in an order drawn anew. What changes slowly (a clock, a neighbour's
load) then meets all arms of a block alike, and no arm is always the second. No jax here: an arm is
anything that says how many milliseconds it took.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

from lab.records.benchmark import StopReason

Arm = Callable[[], float]
"""One sample of a program, in milliseconds."""

_GROWTH = 1.6
"""From one look at the interval to the next, the number of blocks grows by this factor."""


@dataclass(frozen=True)
class StopRule:
    """When there are samples enough.

    Attributes:
        least: blocks that are always taken.
        most: blocks that are never exceeded.
        target: expected width of the median's interval, over the median, that is narrow enough.
        limit_s: seconds after which no block begins, once there are `least`.
    """

    least: int
    most: int
    target: float
    limit_s: float

    def reason(self, taken: int, elapsed_s: float, width: float | None) -> StopReason | None:
        """Why to stop now, or None to go on; `width` None means that it was not looked at."""
        if taken < self.least:
            return None
        if self.least == self.most:
            return "fixed"
        if width is not None and width <= self.target:
            return "interval"
        if taken >= self.most:
            return "samples"
        return "time" if elapsed_s >= self.limit_s else None


@dataclass(frozen=True)
class Blocks:
    """What was sampled: `samples_ms[arm][block]`, and the order of the arms in each block."""

    samples_ms: dict[str, list[float]]
    order: list[tuple[str, ...]]
    seed: int
    reason: StopReason
    elapsed_s: float

    def ratios(self, numerator: str, denominator: str) -> list[float]:
        """The ratio of two arms within each block."""
        pairs = zip(self.samples_ms[numerator], self.samples_ms[denominator], strict=True)
        return [a / b for a, b in pairs]


def take(
    arms: Mapping[str, Arm],
    rule: StopRule,
    *,
    seed: int,
    watched: Callable[[Mapping[str, Sequence[float]]], Sequence[float]],
    now_s: Callable[[], float] = time.monotonic,
) -> Blocks:
    """Sample the arms block by block until the rule stops it.

    Args:
        arms: the programs by name.
        rule: when to stop.
        seed: what the orders are drawn from.
        watched: of all samples, those whose median the rule wants to know well. It looks after
            20, 32, 52, ... blocks: a rule that looks after each stops at a lucky one, and the
            interval then holds the truth less often than it says.
        now_s: a clock in seconds.
    """
    draw = random.Random(seed)  # noqa: S311 - an order, not a secret
    samples: dict[str, list[float]] = {name: [] for name in arms}
    order: list[tuple[str, ...]] = []
    begun = now_s()
    look = rule.least
    reason: StopReason | None = None
    while reason is None:
        names = list(arms)
        draw.shuffle(names)
        for name in names:
            samples[name].append(arms[name]())
        order.append(tuple(names))
        width = None
        if len(order) == look:
            width = relative_width(watched(samples))
            look = math.ceil(look * _GROWTH)
        reason = rule.reason(len(order), now_s() - begun, width)
    return Blocks(samples, order, seed, reason, now_s() - begun)


def relative_width(values: Sequence[float]) -> float | None:
    """The expected width of the 95% interval of the median, over the median; None below 4 values.

    The standard error of a normal sample's median is sqrt(pi / 2) sigma / sqrt(n), and sigma is the
    interquartile range over 1.349. The width of the interval itself would be a worse guide: where
    it is narrow by luck it tends to miss the truth, and to stop then is to pick those.
    """
    if len(values) < 4:
        return None
    q1, median, q3 = quantiles(values, n=4, method="inclusive")
    sigma = (q3 - q1) / 1.349
    return 2 * 1.96 * math.sqrt(math.pi / 2 / len(values)) * sigma / median if median > 0 else None
