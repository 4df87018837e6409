"""What a benchmark section says of its samples: every figure follows from the samples beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TypedDict

import numpy as np
from pydantic import JsonValue

from lab.records.benchmark import (
    BenchmarkSection,
    Compared,
    Drift,
    Noise,
    Paired,
    Sampling,
    Summary,
    Verdict,
)
from lab.timing import disturbance, verdict
from lab.timing import paired as ratios
from lab.timing.conditions import BUSY_SHARE
from lab.timing.flags import MEANINGS
from lab.timing.sampling import Blocks, StopRule
from lab.timing.statistics import summarise

DISPATCH_BOUND = 0.5
"""A latency of which the dispatch floor is more than this share tells of the host."""


class Sampled(TypedDict):
    """Samples of the kernel, their summary, and how the sampling went."""

    samples_ms: list[float]
    median_ms: float
    summary: Summary
    drift: Drift
    noise: Noise
    sampling: Sampling


class Comparisons(TypedDict, total=False):
    """Those that the arms of the blocks allow."""

    control: Compared
    paired: Paired
    verdict: Verdict


def sampled(blocks: Blocks, rule: StopRule) -> Sampled:
    """What follows from the kernel's own samples."""
    samples = blocks.samples_ms["kernel"]
    return {
        "samples_ms": samples,
        "median_ms": float(np.median(samples)),
        "summary": summarise(samples),
        "drift": disturbance.drift(samples),
        "noise": disturbance.noise(samples),
        "sampling": Sampling(
            reason=blocks.reason,
            elapsed_s=blocks.elapsed_s,
            seed=blocks.seed,
            order=[" ".join(names) for names in blocks.order],
            **asdict(rule),
        ),
    }


def compared(
    blocks: Blocks, threshold: float, baseline: Mapping[str, JsonValue] | None
) -> Comparisons:
    """Control and baseline, each against the kernel.

    Args:
        blocks: samples of `kernel`, and of `control` and `baseline` where there are any.
        threshold: the smallest share of difference that counts as one.
        baseline: the configuration of the baseline's kernel.
    """
    said: Comparisons = {}
    floor = None
    if "control" in blocks.samples_ms:
        control = _ratio(blocks, "control", threshold, None)
        said |= {"control": control, "verdict": control.verdict}
        floor = control.own_noise
    if "baseline" in blocks.samples_ms:
        assert baseline is not None
        found = _ratio(blocks, "baseline", threshold, floor)
        paired = Paired(baseline=dict(baseline), **dict(found))
        said |= {"paired": paired, "verdict": found.verdict}
    return said


def _ratio(blocks: Blocks, other: str, threshold: float, floor: float | None) -> Compared:
    ratio = ratios.ratio(blocks.ratios("kernel", other), seed=blocks.seed)
    margin = verdict.margin(threshold, floor)
    return Compared(
        samples_ms=blocks.samples_ms[other],
        median_ms=float(np.median(blocks.samples_ms[other])),
        ratio=ratio.median,
        ratio_lo=ratio.interval.lo if ratio.interval else None,
        ratio_hi=ratio.interval.hi if ratio.interval else None,
        pairs=ratio.pairs,
        resamples=ratios.RESAMPLES,
        seed=ratio.seed,
        threshold=threshold,
        noise_floor=floor,
        margin=margin,
        own_noise=verdict.noise_floor(ratio.interval) if other == "control" else None,
        verdict=verdict.verdict(ratio.interval, margin),
    )


def flags(section: BenchmarkSection) -> list[str]:
    """The words of lab/timing/flags.py that hold for a measured section."""
    drift, noise, conditions = section.drift, section.noise, section.conditions
    assert drift
    assert noise
    assert conditions
    assert section.dispatch_floor_ms is not None
    floor_share = section.dispatch_floor_ms / section.median_ms
    seen = {
        "dispatch-bound": section.used == "latency" and floor_share > DISPATCH_BOUND,
        "drift": drift.detected,
        "noisy": noise.detected,
        "busy": (conditions.others_cpu_share or 0) > BUSY_SHARE,
        "parallel": conditions.parallel_jobs > 1 or conditions.other_workers > 0,
        "shared-device": (conditions.foreign_accelerator_processes or 0) > 0,
    }
    assert seen.keys() == MEANINGS.keys()
    return [name for name, holds in seen.items() if holds]
