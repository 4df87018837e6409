"""What the grading tasks refuse before the first cell, and which candidates an audit takes."""

import pytest

from lab.cells.cell import Cell
from lab.cells.config import AuditConfig, CandidateConfig, LabConfig, TaskConfig
from lab.errors import UserError
from lab.tasks import audit, rubric


def cell(task: str, **sections: object) -> Cell:
    candidate = CandidateConfig(name="custom", kind="custom", expected="accepted")
    values = {"task": TaskConfig(task), "kernel": {"name": "xla"}, "candidate": candidate}
    return Cell(LabConfig(**{**values, **sections}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "needs candidate.path=FILE and candidate.function=NAME"),
        ({"path": "mine.py", "function": "f", "tier": "fp8"}, "candidate.tier=fp8: allowed are"),
    ],
)
def test_rubric_preflight(changes: dict[str, str], message: str) -> None:
    candidate = CandidateConfig(name="custom", kind="custom", expected="accepted", **changes)
    with pytest.raises(UserError, match=message):
        rubric.preflight(cell("rubric", candidate=candidate))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (AuditConfig(size="huge"), "audit.size=huge: allowed are quick, full"),
        (AuditConfig(workers=0), "audit.workers=0: allowed is at least 1"),
    ],
)
def test_audit_preflight(settings: AuditConfig, message: str) -> None:
    with pytest.raises(UserError, match=message):
        audit.preflight(cell("audit", audit=settings))


def test_every_regime_of_the_suite_gets_relations_once_at_least() -> None:
    cases = audit.SIZES["full"].cases
    chosen = set(audit.relation_cases(cases))
    assert {c.regime for c in cases if c.name in chosen} == {c.regime for c in cases}
