# ruff: noqa: INP001, T201 - a script
"""Fit how copies behave to public kernel timings: the four figures in lab/tpu/chips.py.

    python scripts/fit_copies.py SWEEP_DIRECTORY [MOST_STEPS]

reads the compiled cells of evidence/tpu-v5e-compiled/public_kernels.py (kept with
compile.keep_dumps=true), executes their schedules anew for each trial of the figures, and prints
the least-squares fit of the relative error with each point's error, and its error when it is left
out (by the fit's own linearisation). Takes minutes: an iteration executes every schedule five
times.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np

from lab import records
from lab.records import Result
from lab.report.kernel_timings import KernelPoint, match
from lab.tpu.schedule import bundles
from lab.tpu.schedule.execute import NoEstimate, execute
from lab.tpu.schedule.timeline import Machine

Array = np.ndarray[Any, np.dtype[np.float64]]
NAMES = ("dma_latency_ns", "read_share", "write_share", "piece_ns")
START = np.array([500.0, 0.9, 0.75, 0.3])
STEP = np.array([-40.0, 0.02, 0.02, 0.2])  # of the finite differences
REACH = np.array([150.0, 0.1, 0.1, 0.4])  # of one iteration
NEAR = np.array([2.0, 0.002, 0.002, 0.02])  # a change that ends the fit
MOST_ITERATIONS = 8
MOST_STEPS = 40_000
CLOCK_GHZ, HBM_GB_S = 1.5, 819  # of a v5e


@dataclass(frozen=True)
class Fit:
    """The figures by NAMES, and each point's relative error: in the fit, and left out of it."""

    figures: Array
    errors: Array
    left_out: Array


def fit(times_ms: Callable[[Array], Array], measured_ms: Array) -> Fit:
    """Least squares of the relative error, from START, by Gauss and Newton.

    Args:
        times_ms: figures -> the time of each point.
        measured_ms: of each point.
    """

    def errors(figures: Array) -> Array:
        return times_ms(figures) / measured_ms - 1

    figures = START
    for _ in range(MOST_ITERATIONS):
        now = errors(figures)
        slopes = np.stack(
            [(errors(figures + STEP * unit) - now) / (STEP @ unit) for unit in np.eye(4)], axis=1
        )
        change, *_ = np.linalg.lstsq(slopes, -now, rcond=None)
        figures = np.maximum(figures + np.clip(change, -REACH, REACH), 0.0)
        if (abs(change) < NEAR).all():
            break
    final = errors(figures)
    leverage = np.diag(slopes @ np.linalg.pinv(slopes))
    return Fit(figures, final, final / (1 - leverage))


def machine(figures: Array) -> Machine:
    """A v5e whose copies behave as the figures say."""
    return Machine(CLOCK_GHZ, HBM_GB_S, **dict(zip(NAMES, map(float, figures), strict=True)))


def time_ms(job: tuple[Path, Array]) -> float:
    """The time of one kept schedule with trial figures."""
    path, figures = job
    found = execute(bundles.read(path), machine(figures))
    return float("nan") if isinstance(found, NoEstimate) else found.ms


def kept(sweep: Path, most_steps: int) -> list[tuple[Path, KernelPoint]]:
    """The schedules kept in a sweep and the public timing of each, in the order of their paths."""
    found = []
    for path in sorted(sweep.rglob("result.json")):
        result = records.read(path, Result)
        for point in match([result]):
            assert result.compile is not None
            (op,) = [op.name for op in result.compile.ops if op.kind == "pallas"]
            dump = bundles.find_dump(path.parent / str(result.compile.files.dumps), op)
            if point.steps <= most_steps and dump is not None:
                found.append((dump, point))
    return found


def main(sweep: Path, most_steps: int) -> None:
    """Fit and print."""
    schedules = kept(sweep, most_steps)
    if len(schedules) < len(NAMES) + 1:
        sys.exit(f"error: {sweep} keeps {len(schedules)} schedules of public kernels")
    measured = np.array([point.measured_ms for _, point in schedules])
    with Pool() as pool:

        def times(figures: Array) -> Array:
            jobs = [(path, figures) for path, _ in schedules]
            return np.array(pool.map(time_ms, jobs, chunksize=1))

        found = fit(times, measured)
    for (_, point), error, left_out in zip(schedules, found.errors, found.left_out, strict=True):
        print(f"{point.kernel} {point.options}: {error:+.3f}, left out {left_out:+.3f}")
    for name, figure in zip(NAMES, found.figures, strict=True):
        print(f"{name} {figure:.3g}")
    print(
        f"{len(schedules)} points: mean {abs(found.errors).mean():.4f}, "
        f"left out {abs(found.left_out).mean():.4f}"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else MOST_STEPS)
