"""task=benchmark: time a cell, if it is right."""

from __future__ import annotations

from pathlib import Path

from lab import worker
from lab.cells.cell import Cell, Outcome
from lab.cells.launchers import parallel_jobs
from lab.kernels import options


def run(cell: Cell, directory: Path) -> Outcome:
    """Time the cell, and its baseline if it has one, in one fresh process.

    The evidence is `interpreted` where any Pallas kernel was interpreted, else `measured`, which
    means measured on the device that the record names. A time that the chip cannot reach makes the
    cell failed; its samples are kept all the same.
    """
    baseline = cell.config.benchmark.baseline
    return worker.call(
        "lab.timing.measure:measure",
        {
            "cell": cell,
            "baseline": None if baseline is None else options.configuration(baseline),
            "parallel_jobs": parallel_jobs(),
        },
        Outcome,
        deadline_s=cell.config.deadline_s,
        directory=directory,
    )
