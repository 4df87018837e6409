# ruff: noqa: INP001, T201 - a script
"""Fit how copies behave to public kernel timings: the four figures in lab/tpu/chips.py.

    python scripts/fit_copies.py SWEEP_DIRECTORY [MOST_STEPS]

reads the compiled cells of evidence/tpu-v5e-compiled/public_kernels.py (kept with
compile.keep_dumps=true), executes their schedules anew for each trial of the figures, and prints
the least-squares fit of the relative error with each point's error, and its error when it is left
out (by the fit's own linearisation). Takes minutes: a step of the fit executes every schedule five
times.
"""

from __future__ import annotations

import sys
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from lab import records
from lab.records import Result
from lab.report.kernel_timings import KernelPoint, match
from lab.tpu import chips
from lab.tpu.schedule import bundles
from lab.tpu.schedule.execute import NoEstimate, execute
from lab.tpu.schedule.timeline import Machine

NAMES = ("dma_latency_ns", "read_share", "write_share", "piece_ns")
STEP = np.array([-40.0, 0.02, 0.02, 0.2])  # of the finite differences
REACH = np.array([150.0, 0.1, 0.1, 0.4])  # of one iteration
ITERATIONS = 3
CLOCK_GHZ, HBM_GB_S = 1.5, 819  # of a v5e


def estimate_ms(job: tuple[Path, np.ndarray]) -> float:
    """The time of one kept schedule with trial figures."""
    path, figures = job
    machine = Machine(CLOCK_GHZ, HBM_GB_S, **dict(zip(NAMES, figures, strict=True)))
    found = execute(bundles.read(path), machine)
    return float("nan") if isinstance(found, NoEstimate) else found.ms


def main(sweep: Path, most_steps: int) -> None:
    """Fit and print."""
    schedules: list[Path] = []
    points: list[KernelPoint] = []
    for path in sorted(sweep.rglob("result.json")):
        result = records.read(path, Result)
        for point in match([result]):
            assert result.compile is not None
            (op,) = [op.name for op in result.compile.ops if op.kind == "pallas"]
            dump = bundles.find_dump(path.parent / str(result.compile.files.dumps), op)
            if point.steps <= most_steps and dump is not None:
                schedules.append(dump)
                points.append(point)
    measured = np.array([point.measured_ms for point in points])
    figures = np.array([chips.DMA_LATENCY_NS, chips.READ_SHARE, chips.WRITE_SHARE, chips.PIECE_NS])
    with Pool() as pool:

        def errors(trial: np.ndarray) -> np.ndarray:
            times = pool.map(estimate_ms, [(path, trial) for path in schedules], chunksize=1)
            return np.array(times) / measured - 1

        for _ in range(ITERATIONS):
            now = errors(figures)
            slopes = np.stack(
                [(errors(figures + STEP * unit) - now) / (STEP @ unit) for unit in np.eye(4)], 1
            )
            change, *_ = np.linalg.lstsq(slopes, -now, rcond=None)
            figures = figures + np.clip(change, -REACH, REACH)
        final = errors(figures)
    hat = np.diag(slopes @ np.linalg.pinv(slopes))
    left_out = final / (1 - hat)
    print(dict(zip(NAMES, figures.round(4).tolist(), strict=True)))
    for point, error, without in zip(points, final, left_out, strict=True):
        print(f"{point.kernel} {point.options}: {error:+.3f}, left out {without:+.3f}")
    print(
        f"{len(points)} points: mean {abs(final).mean():.4f}, left out {abs(left_out).mean():.4f}"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 40_000)
