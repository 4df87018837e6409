"""Intervals of medians and of their ratios: where they lie, and how often they hold the truth."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.timing.statistics import median_interval, ratio_interval, summarise

times = st.floats(1e-3, 1e4, allow_nan=False)
many = st.lists(times, min_size=1, max_size=60)


def test_twenty_samples_give_the_sixth_and_the_fifteenth() -> None:
    interval = median_interval([float(n) for n in range(20, 0, -1)])
    assert interval is not None
    assert (interval.lo, interval.hi) == (6.0, 15.0)


@pytest.mark.parametrize(("confidence", "least"), [(0.95, 6), (0.975, 7), (0.5, 2)])
def test_too_few_samples_give_no_interval(confidence: float, least: int) -> None:
    # The extremes enclose the median with probability 1 - 2 * 2**-n.
    assert median_interval([1.0] * (least - 1), confidence=confidence) is None
    assert median_interval([1.0] * least, confidence=confidence) is not None


@given(many)
def test_an_interval_holds_the_sample_median_and_widens_with_confidence(
    samples: list[float],
) -> None:
    narrow = median_interval(samples, confidence=0.8)
    wide = median_interval(samples, confidence=0.99)
    if wide is not None:
        assert narrow is not None
        assert wide.lo <= narrow.lo <= statistics.median(samples) <= narrow.hi <= wide.hi
        assert {wide.lo, wide.hi, narrow.lo, narrow.hi} <= set(samples)


@given(many, st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(samples: list[float], rng: random.Random) -> None:
    shuffled = samples.copy()
    rng.shuffle(shuffled)
    assert median_interval(shuffled) == median_interval(samples)
    assert summarise(shuffled) == summarise(samples)


@given(many, many)
def test_a_ratio_and_its_inverse_have_inverse_intervals(a: list[float], b: list[float]) -> None:
    forth, back = ratio_interval(a, b), ratio_interval(b, a)
    assert (forth is None) == (back is None) == (min(len(a), len(b)) < 7)
    if forth is not None:
        assert back is not None
        assert forth.lo <= statistics.median(a) / statistics.median(b) <= forth.hi
        assert forth.lo == pytest.approx(1 / back.hi)


def test_a_clock_that_stood_still_gives_no_ratio() -> None:
    assert ratio_interval([1.0] * 20, [0.0] * 20) is None


@pytest.mark.parametrize("n", [7, 20, 51])
def test_intervals_hold_the_truth_as_often_as_they_say(n: int) -> None:
    rng = random.Random(n)
    draws = [[rng.lognormvariate(0, 1) for _ in range(n)] for _ in range(3000)]  # median 1
    intervals = [median_interval(draw) for draw in draws]
    held = statistics.fmean(i is not None and i.lo <= 1 <= i.hi for i in intervals)
    exact = 1 - 2 * max(
        tail for k in range(n)
        if (tail := sum(math.comb(n, i) for i in range(k + 1)) / 2**n) <= 0.025
    )  # fmt: skip
    assert exact >= 0.95
    assert held == pytest.approx(exact, abs=0.015)  # four standard errors
    pairs = zip(draws[::2], draws[1::2], strict=True)
    ratios = [ratio_interval(a, b) for a, b in pairs]
    assert statistics.fmean(r is not None and r.lo <= 1 <= r.hi for r in ratios) >= 0.95


@given(many)
def test_a_summary_is_in_order(samples: list[float]) -> None:
    s = summarise(samples)
    assert s.min_ms <= s.q1_ms * (1 + 1e-9)
    median = statistics.median(samples)
    assert s.q1_ms <= median * (1 + 1e-9)
    assert median <= s.q3_ms * (1 + 1e-9) <= s.max_ms * (1 + 2e-9)
    assert 0 <= s.outliers < len(samples)


def test_outliers_are_counted() -> None:
    assert summarise([1.0, 1.1, 0.9, 1.05, 0.95, 9.0]).outliers == 1
    assert summarise([1.0] * 20).outliers == 0
    assert summarise([3.0]) == summarise([3.0, 3.0, 3.0])


@pytest.mark.parametrize("n", [1024, 5000])
def test_thousands_of_samples_do_not_overflow(n: int) -> None:
    interval = median_interval([float(i) for i in range(n)])
    assert interval is not None
    # The normal approximation of the binomial, as a check on the exact sum.
    assert interval.lo == pytest.approx(n / 2 - 1.96 * math.sqrt(n) / 2, abs=3)
