"""task=correctness: the named checks of a kernel against the float64 oracle."""

from __future__ import annotations

from pathlib import Path

from lab import worker
from lab.cells.cell import Cell, Outcome


def run(cell: Cell, directory: Path) -> Outcome:
    """Run every check that makes sense in the cell's scope, in a fresh process."""
    return worker.call(
        "lab.grading.correctness:run_checks",
        {"cell": cell},
        Outcome,
        deadline_s=cell.config.deadline_s,
        directory=directory,
    )
