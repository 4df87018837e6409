"""Verdicts, noise floors, disturbances and physical floors, each shown to answer both ways."""

from __future__ import annotations

import random

import pytest

from lab.timing import disturbance, physical, verdict
from lab.timing.statistics import Interval


@pytest.mark.parametrize(
    ("lo", "hi", "margin", "answer"),
    [
        (1.03, 1.2, 0.02, "slower"),
        (1.01, 1.2, 0.02, "ambiguous"),
        (0.8, 0.97, 0.02, "faster"),
        (0.8, 0.99, 0.02, "ambiguous"),
        (0.99, 1.01, 0.02, "same"),
        (0.5, 2.0, 0.02, "ambiguous"),
        (1.03, 1.2, 0.05, "ambiguous"),
        (1.03, 1.04, 0.05, "same"),  # below the noise floor nothing is a difference
    ],
)
def test_verdicts(lo: float, hi: float, margin: float, answer: str) -> None:
    assert verdict.verdict(Interval(lo, hi), margin) == answer


def test_no_interval_says_nothing() -> None:
    assert verdict.verdict(None, 0.02) == "ambiguous"


def test_the_margin_is_the_larger_of_threshold_and_noise_floor() -> None:
    assert verdict.noise_floor(None) is None
    assert verdict.noise_floor(Interval(0.8, 1.1)) == pytest.approx(0.25)
    assert verdict.margin(0.02, None) == 0.02
    assert verdict.margin(0.02, 0.25) == 0.25
    assert verdict.margin(0.02, 0.01) == 0.02


def test_a_trend_is_found_and_noise_alone_is_not() -> None:
    rng = random.Random(0)
    still = [rng.lognormvariate(0, 0.05) for _ in range(40)]
    rising = [x * (1 + 0.3 * i / 39) for i, x in enumerate(still)]
    assert not disturbance.drift(still).detected
    assert disturbance.drift(rising).detected
    assert disturbance.drift(rising).share == pytest.approx(0.26, abs=0.1)
    assert disturbance.drift([1.0] * 40) == disturbance.Drift(
        share=0.0, p_value=None, detected=False
    )
    assert not disturbance.drift(rising[:5]).detected


def test_a_trend_too_small_to_matter_is_not_called_drift() -> None:
    found = disturbance.drift([1 + 1e-4 * i for i in range(40)])
    assert found.p_value is not None
    assert found.p_value < disturbance.DRIFT_P
    assert not found.detected


def test_noise_is_the_middle_half() -> None:
    assert not disturbance.noise([1.0] * 19 + [50.0]).detected  # an outlier is none of it
    assert disturbance.noise([1.0, 1.2] * 10).detected
    assert not disturbance.noise([1.0, 1.2]).detected


def test_a_time_below_the_floor_is_impossible_and_the_arithmetic_says_why() -> None:
    # 197 TFLOP/s and 819 GB/s: the public peaks of TPU v5e.
    peaks = {"peak_tflops": 197, "peak_hbm_gb_s": 819, "source": "datasheet"}
    compute = physical.floor(flops=197_000_000_000, hbm_bytes=1, **peaks)
    memory = physical.floor(flops=1, hbm_bytes=819_000_000, **peaks)
    assert compute.ms == pytest.approx(1.0)
    assert memory.ms == pytest.approx(1.0)
    assert physical.impossible("median", 1.0, compute, hot=False) is None
    assert physical.impossible("median", 0.99, memory, hot=False) is None
    assert physical.impossible("median", 0.5, compute, hot=True) == (
        "median 0.5 ms is below the chip's floor: 1.97e+11 FLOP / 197 TFLOP/s = 1 ms "
        "(peaks: datasheet)"
    )
    assert "8.19e+08 B / 819 GB/s" in (physical.impossible("x", 0.5, memory, hot=False) or "")
    # What stays in the chip's fast memory between calls need not come from HBM again.
    assert physical.impossible("x", 0.5, memory, hot=True) is None
