"""Blocks: every arm once a block, in random order, until a rule stops them, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from lab.timing.sampling import Blocks, StopRule, take


def counting(values: Iterator[float]) -> Callable[[], float]:
    return lambda: next(values)


def steady(rule: StopRule, *, seed: int = 0, step_s: float = 0.0, spread: float = 0.0) -> Blocks:
    clock = iter(step_s * n for n in range(100_000))
    wave = iter(1 + spread * (n % 2) for n in range(100_000))
    return take(
        {"a": counting(wave), "b": lambda: 2.0, "c": lambda: 3.0},
        rule,
        seed=seed,
        watched=lambda samples: samples["a"],
        now_s=lambda: next(clock),
    )


def test_a_block_visits_every_arm_once_in_an_order_drawn_from_the_seed() -> None:
    blocks = steady(StopRule(60, 60, 0.1, 1e9))
    assert blocks.reason == "fixed"
    assert all(sorted(names) == ["a", "b", "c"] for names in blocks.order)
    assert {n: len(s) for n, s in blocks.samples_ms.items()} == {"a": 60, "b": 60, "c": 60}
    # No arm is favoured: each of six orders is expected ten times in sixty.
    assert max(Counter(blocks.order).values()) < 25
    assert len(Counter(blocks.order)) == 6
    assert steady(StopRule(60, 60, 0.1, 1e9)).order == blocks.order
    assert steady(StopRule(60, 60, 0.1, 1e9), seed=1).order != blocks.order


def test_ratios_are_those_of_each_block() -> None:
    blocks = steady(StopRule(4, 4, 0.1, 1e9), spread=1.0)
    assert blocks.ratios("a", "b") == [0.5, 1.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("rule", "step_s", "spread", "reason", "count"),
    [
        (StopRule(20, 200, 0.05, 1e9), 0.0, 0.0, "interval", 20),
        (StopRule(20, 50, 0.05, 1e9), 0.0, 1.0, "samples", 50),
        (StopRule(20, 200, 0.05, 10.0), 1.0, 1.0, "time", 20),  # the least come first
        (StopRule(20, 200, 0.05, 30.0), 1.0, 1.0, "time", 30),
    ],
)
def test_a_rule_says_why_it_stopped(
    rule: StopRule, step_s: float, spread: float, reason: str, count: int
) -> None:
    blocks = steady(rule, step_s=step_s, spread=spread)
    assert (blocks.reason, len(blocks.order)) == (reason, count)


def test_a_rule_looks_at_few_moments_only() -> None:
    """An interval looked at after each block would stop at the first that is narrow by luck."""
    looked: list[int] = []

    def watched(samples: object) -> list[float]:
        looked.append(len(samples["a"]))  # type: ignore[index]
        return [1.0, 3.0] * 20

    take({"a": lambda: 1.0}, StopRule(20, 100, 0.01, 1e9), seed=0, watched=watched)
    assert looked == [20, 32, 52, 84]
