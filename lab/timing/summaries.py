"""What a benchmark section says of its samples: every figure follows from the samples beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from lab.timing import disturbance, paired, verdict
from lab.timing.conditions import BUSY_SHARE
from lab.timing.flags import MEANINGS
from lab.timing.sampling import Blocks, StopRule
from lab.timing.statistics import summarise

DISPATCH_BOUND = 0.5
"""A latency of which the dispatch floor is more than this share tells of the host."""


def sampled(blocks: Blocks, rule: StopRule) -> dict[str, Any]:
    """Samples of the kernel, their summary, and how the sampling went."""
    samples = blocks.samples_ms["kernel"]
    summary = summarise(samples)
    interval = summary.interval
    return {
        "samples_ms": samples,
        "median_ms": float(np.median(samples)),
        "summary": {
            "lo_ms": interval.lo if interval else None,
            "hi_ms": interval.hi if interval else None,
            "q1_ms": summary.q1_ms,
            "q3_ms": summary.q3_ms,
            "min_ms": summary.min_ms,
            "max_ms": summary.max_ms,
            "outliers": summary.outliers,
        },
        "drift": asdict(disturbance.drift(samples)),
        "noise": asdict(disturbance.noise(samples)),
        "sampling": {
            "reason": blocks.reason,
            "elapsed_s": blocks.elapsed_s,
            "seed": blocks.seed,
            "order": [" ".join(names) for names in blocks.order],
            **asdict(rule),
        },
    }


def compared(blocks: Blocks, threshold: float, baseline: dict[str, Any] | None) -> dict[str, Any]:
    """`control`, `paired` and `verdict`: those that the arms of the blocks allow.

    Args:
        blocks: samples of `kernel`, and of `control` and `baseline` where there are any.
        threshold: the smallest share of difference that counts as one.
        baseline: the configuration of the baseline's kernel.
    """
    said: dict[str, Any] = {}
    floor = None
    if "control" in blocks.samples_ms:
        found = _ratio(blocks, "control", threshold, None)
        said |= {"control": found, "verdict": found["verdict"]}
        floor = found["own_noise"]
    if "baseline" in blocks.samples_ms:
        assert baseline is not None
        found = _ratio(blocks, "baseline", threshold, floor)
        said |= {"paired": {"baseline": baseline, **found}, "verdict": found["verdict"]}
    return said


def _ratio(blocks: Blocks, other: str, threshold: float, floor: float | None) -> dict[str, Any]:
    ratio = paired.ratio(blocks.ratios("kernel", other), seed=blocks.seed)
    margin = verdict.margin(threshold, floor)
    return {
        "samples_ms": blocks.samples_ms[other],
        "median_ms": float(np.median(blocks.samples_ms[other])),
        "ratio": ratio.median,
        "ratio_lo": ratio.interval.lo if ratio.interval else None,
        "ratio_hi": ratio.interval.hi if ratio.interval else None,
        "pairs": ratio.pairs,
        "resamples": paired.RESAMPLES,
        "seed": ratio.seed,
        "threshold": threshold,
        "noise_floor": floor,
        "margin": margin,
        "own_noise": verdict.noise_floor(ratio.interval) if other == "control" else None,
        "verdict": verdict.verdict(ratio.interval, margin),
    }


def flags(section: dict[str, Any], floors_ms: Sequence[float]) -> list[str]:
    """The words of lab/timing/flags.py that hold for a section."""
    conditions = section["conditions"]
    floor_share = float(np.median(floors_ms)) / section["median_ms"]
    seen = {
        "dispatch-bound": section["used"] == "latency" and floor_share > DISPATCH_BOUND,
        "drift": section["drift"]["detected"],
        "noisy": section["noise"]["detected"],
        "busy": (conditions["others_cpu_share"] or 0) > BUSY_SHARE,
        "parallel": conditions["parallel_jobs"] > 1 or conditions["other_workers"] > 0,
        "shared-device": (conditions["foreign_accelerator_processes"] or 0) > 0,
    }
    assert seen.keys() == MEANINGS.keys()
    return [name for name, holds in seen.items() if holds]
