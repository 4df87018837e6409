"""The ratio of two programs from paired blocks: its median and a bootstrap interval of that.

Pairing divides out what both sides of a block had in common. The interval is the percentile
bootstrap of SciPy. Percentile intervals of few values are too narrow: the level is widened as
Hesterberg proposes (What Teachers Should Know About the Bootstrap, The American Statistician 69
(2015), 371-386, "expanded percentile interval"), from the normal's quantile to that of Student's t
times sqrt(n / (n - 1)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from lab.timing.statistics import Interval

LEAST_PAIRS = 20
RESAMPLES = 4000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """Median of paired ratios; the interval is None below `LEAST_PAIRS` pairs."""

    median: float
    interval: Interval | None
    pairs: int
    seed: int


def ratio(ratios: Sequence[float], *, seed: int, resamples: int = RESAMPLES) -> Ratio:
    """Median of the ratios and its interval; the same ratios and seed give the same numbers.

    Args:
        ratios: numerator over denominator, one a block, all above 0.
        seed: what the resamples are drawn from.
        resamples: how many.
    """
    values = np.asarray(ratios, dtype=np.float64)
    interval = None
    if values.size >= LEAST_PAIRS:
        interval = _bootstrap(values, seed, resamples)
    return Ratio(float(np.median(values)), interval, int(values.size), seed)


def _bootstrap(
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], seed: int, resamples: int
) -> Interval:
    if np.ptp(values) == 0:  # SciPy calls that degenerate and answers NaN
        return Interval(float(values[0]), float(values[0]))
    found = stats.bootstrap(
        (values,),
        np.median,
        method="percentile",
        confidence_level=expanded_level(values.size),
        n_resamples=resamples,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


def expanded_level(n: int) -> float:
    """The nominal level whose percentile interval of n values covers `CONFIDENCE`, about."""
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * math.sqrt(n / (n - 1))
    return float(2 * stats.norm.cdf(quantile) - 1)
