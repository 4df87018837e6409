"""task=compare: two sets of runs, cell by cell; a regression makes the exit code 1."""

from __future__ import annotations

from pathlib import Path

from lab import records
from lab.cells.cell import Cell, Outcome
from lab.errors import UserError
from lab.records import CompareSection
from lab.report import before_after
from lab.report.before_after import Found


def preflight(cell: Cell) -> None:
    """Refuse a missing side before anything is written."""
    _sides(cell)


def run(cell: Cell, directory: Path) -> Outcome:
    """Compare, and write compare.csv and compare.md into the run directory."""
    from lab.report import compared  # pandas takes its time to import

    settings = cell.config.compare
    before, after = _sides(cell)
    cells = before_after.compare(
        before, after, threshold=settings.threshold, max_regression=settings.max_regression
    )
    files = {
        "compare.csv": compared.table(cells),
        "compare.md": compared.page(cells, str(settings.before), str(settings.after)),
    }
    for name, text in files.items():
        records.write_atomically(directory / name, text)
    return Outcome(
        CompareSection(
            before=str(settings.before),
            after=str(settings.after),
            max_regression=settings.max_regression,
            threshold=settings.threshold,
            cells=cells,
            regressions=sum(one.regression for one in cells),
            compared=sum(one.verdict != "missing" for one in cells),
            files=list(files),
        ),
        evidence=None,
    )


def _sides(cell: Cell) -> tuple[dict[str, Found], dict[str, Found]]:
    settings = cell.config.compare
    if not settings.before or not settings.after:
        raise UserError(
            "task=compare needs compare.before=DIR and compare.after=DIR: runs, sweeps, or records"
        )
    before = before_after.read(Path(settings.before), "compare.before")
    return before, before_after.read(Path(settings.after), "compare.after")
