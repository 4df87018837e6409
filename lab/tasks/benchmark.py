"""task=benchmark: time a cell, if it is right."""

from __future__ import annotations

from pathlib import Path

from lab import worker
from lab.cells.cell import Cell, Outcome


def run(cell: Cell, directory: Path) -> Outcome:
    """Time the cell in a fresh process.

    The evidence is `interpreted` where a Pallas kernel was interpreted, else `measured`, which
    means measured on the device that the record names.
    """
    answer = worker.call(
        "lab.timing.measure:measure",
        {"config": cell.plain()},
        deadline_s=cell.config.deadline_s,
        directory=directory,
    )
    failure = answer.get("gate_failure")
    return Outcome(
        section=answer.get("benchmark", {}),
        evidence="interpreted" if answer["interpret"] else "measured",
        status="failed" if failure else "done",
        reason=f"not timed, because it is wrong: {failure}" if failure else None,
        interpret=answer["interpret"],
        cache_state=answer["cache_state"],
        device=answer["device"],
    )
