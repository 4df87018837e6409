"""task=rubric: grade an implementation of attention and print its scorecard."""

from __future__ import annotations

from pathlib import Path

from lab import worker
from lab.cells.cell import Cell, Outcome
from lab.cells.expectations import verdict_is_declared
from lab.errors import UnsupportedCell, UserError
from lab.grading import scorecard
from lab.grading.judge.tiers import TIERS
from lab.records import RubricSection

# One thread a process: small arrays gain nothing from more, and cells may run side by side.
SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SCORECARD = "scorecard.txt"


def preflight(cell: Cell) -> None:
    """Refuse what cannot be graded, before the first cell.

    Raises:
        UserError: `candidate=custom` without a path or function, or an unknown tier.
    """
    candidate = cell.config.candidate
    if candidate.kind == "custom" and (candidate.path is None or candidate.function is None):
        raise UserError("candidate=custom needs candidate.path=FILE and candidate.function=NAME")
    if candidate.tier is not None and candidate.tier not in TIERS:
        raise UserError(f"candidate.tier={candidate.tier}: allowed are {', '.join(TIERS)}")


def run(cell: Cell, directory: Path) -> Outcome:
    """Grade in a fresh process; `scorecard.txt` lies beside the record.

    Raises:
        UnsupportedCell: the softmax scope; the rubric grades attention.
    """
    if cell.config.scope.name != "attention":
        raise UnsupportedCell("the rubric grades attention, not the softmax alone")
    custom = cell.config.candidate.kind == "custom"
    outcome = worker.call(
        f"lab.grading.rubric:{'grade_stranger' if custom else 'grade_shipped'}",
        {"cell": cell},
        Outcome,
        deadline_s=cell.config.deadline_s,
        directory=directory,
        env=SINGLE_THREADED,
    )
    title = scorecard.title(cell.id, cell.plain()["candidate"])
    declared = verdict_is_declared(cell.plain()["candidate"])
    assert isinstance(outcome.section, RubricSection)
    scorecard.write(outcome.section, title, directory / SCORECARD, declared=declared)
    return outcome
