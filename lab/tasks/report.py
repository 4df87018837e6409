"""task=report: tables, curves and a page from the records of other runs."""

from __future__ import annotations

from pathlib import Path

from lab import report
from lab.cells.cell import Cell, Outcome
from lab.errors import UserError
from lab.records import ReportSection
from lab.report.load import load


def preflight(cell: Cell) -> None:
    """Refuse missing and empty directories before anything is written."""
    if not cell.config.report.runs:
        raise UserError("task=report needs report.runs=[DIR,...]: run or sweep directories")
    if not all(name.strip() for name in cell.config.report.runs):
        raise UserError("report.runs holds an empty name; give run or sweep directories")
    loaded = load(_directories(cell))
    if not cell.config.report.merge_machines:
        from lab.report import machines  # pandas takes its time to import

        machines.refuse_unlike([entry.result for entry in loaded.entries])


def run(cell: Cell, directory: Path) -> Outcome:
    """Write the report into `report/` under the run directory."""
    settings = cell.config.report
    built = report.build(
        _directories(cell),
        directory / "report",
        overlay=settings.overlay,
        baseline=settings.baseline,
        merge_machines=settings.merge_machines,
    )
    return Outcome(
        ReportSection(
            cells=built.cells,
            comparisons=built.comparisons,
            skipped=list(built.skipped),
            files=[f"report/{name}" for name in built.files],
        ),
        evidence=None,
    )


def _directories(cell: Cell) -> list[Path]:
    return [Path(name) for name in cell.config.report.runs]
