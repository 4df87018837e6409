"""The interval of a paired ratio: what it is, and how often it holds the truth."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest
from timing.noises import KINDS, Machine

from lab.timing import paired
from lab.timing.sampling import StopRule, relative_width, take
from lab.timing.statistics import Interval

RULE = StopRule(least=20, most=200, target=0.05, limit_s=1e9)


def test_the_same_ratios_and_seed_give_the_same_interval() -> None:
    ratios = [1 + 0.01 * (i * 7 % 20) for i in range(20)]
    one, two = paired.ratio(ratios, seed=3), paired.ratio(ratios, seed=3)
    assert one == two
    assert one.median == statistics.median(ratios)
    assert one.interval is not None
    assert min(ratios) <= one.interval.lo <= one.median <= one.interval.hi <= max(ratios)


def test_few_pairs_give_no_interval_and_equal_ones_a_point() -> None:
    assert paired.ratio([1.0] * (paired.LEAST_PAIRS - 1), seed=0).interval is None
    assert paired.ratio([1.5] * 20, seed=0).interval == Interval(1.5, 1.5)


def test_the_level_is_widened_for_few_pairs_and_not_for_many() -> None:
    assert paired.expanded_level(20) == pytest.approx(0.968, abs=0.001)
    assert paired.expanded_level(10_000) == pytest.approx(0.95, abs=0.001)


def coverage(kind: str, trials: int, sizes: int | None, resamples: int) -> float:
    """How often the interval holds the truth; `sizes` None samples by the stop rule."""
    truth, held = 1.1, 0
    for trial in range(trials):
        pairs = Machine(kind, truth, np.random.default_rng([trial, KINDS.index(kind)])).pairs()
        if sizes is None:
            ratios = by_the_rule(pairs, trial)
        else:
            ratios = [a / b for a, b in itertools.islice(pairs, sizes)]
        interval = paired.ratio(ratios, seed=trial, resamples=resamples).interval
        assert interval is not None
        held += interval.lo <= truth <= interval.hi
    return held / trials


def by_the_rule(pairs: object, seed: int) -> list[float]:
    current: list[float] = []

    def arm(which: int) -> float:
        if not current:
            current.extend(next(pairs))  # type: ignore[call-overload]
        value = current[which]
        current[which] = -1
        if current == [-1, -1]:
            current.clear()
        return value

    blocks = take(
        {"kernel": lambda: arm(0), "baseline": lambda: arm(1)},
        RULE,
        seed=seed,
        watched=lambda s: [a / b for a, b in zip(s["kernel"], s["baseline"], strict=True)],
    )
    return blocks.ratios("kernel", "baseline")


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_hold_the_truth_about_as_often_as_they_say(kind: str) -> None:
    # 200 trials know 95 percent to within 4.6 (three standard errors); the slow test knows more.
    assert 0.90 <= coverage(kind, 200, 20, 1000) <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [20, 30, 100, None])
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_hold_the_truth_in_93_to_97_percent(kind: str, sizes: int | None) -> None:
    assert 0.93 <= coverage(kind, 2000, sizes, 2000) <= 0.97


def test_unpaired_medians_of_drifting_samples_would_not_do() -> None:
    """The control of the above: a drift that the pairing did not divide out breaks the interval."""
    truth, held = 1.1, 0
    for trial in range(100):
        pairs = Machine("drifting", truth, np.random.default_rng(trial)).pairs()
        first = [a for a, _ in itertools.islice(pairs, 20)]
        then = [b for _, b in itertools.islice(pairs, 20)]
        ratios = [a / b for a, b in zip(first, then, strict=True)]
        interval = paired.ratio(ratios, seed=trial, resamples=500).interval
        assert interval is not None
        held += interval.lo <= truth <= interval.hi
    assert held < 50


def test_the_expected_width_is_that_of_a_median() -> None:
    assert relative_width([1.0] * 3) is None
    assert relative_width([1.0] * 6) == 0
    values = [float(x) for x in np.random.default_rng(0).normal(10, 1, 400)]
    interval = paired.ratio(values, seed=0).interval
    assert interval is not None
    assert relative_width(values) == pytest.approx((interval.hi - interval.lo) / 10, rel=0.2)
