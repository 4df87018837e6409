"""The page about the full audit says what its own summary says, and the goals hold in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lab.grading.scorecard import audit_lines

FOLDER = Path(__file__).parents[2] / "evidence" / "grader-audit"


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "summary.json").read_text())
    return found


def test_the_page_holds_the_headline_figures(summary: dict[str, Any]) -> None:
    page = (FOLDER / "README.md").read_text()
    for line in audit_lines(summary):
        assert line.rstrip() in page


def test_the_goals_hold_in_it(summary: dict[str, Any]) -> None:
    assert summary["failures"] == []
    assert summary["suite_kills"]["hits"] == summary["suite_kills"]["n"] >= 60
    assert summary["trial_kills"]["rate"] >= 0.95
    assert summary["false_rejects"]["hits"] == 0
    assert summary["false_rejects"]["n"] >= 3200
    assert summary["right_class"]["rate"] >= 0.9
    assert summary["flips"] == 0


def test_its_tables_agree_with_the_summary(summary: dict[str, Any]) -> None:
    verdicts = pd.read_csv(FOLDER / "verdicts.csv")
    bad = verdicts[verdicts.kind == "known-bad"]
    assert len(bad) == summary["suite_kills"]["n"]
    assert (bad.fault_class == bad.named).sum() == summary["right_class"]["hits"]
    controls = verdicts[verdicts.kind == "control"]
    assert set(controls.verdict) == {"accepted"}
    assert len(pd.read_csv(FOLDER / "equivalents.csv")) == summary["equivalent_pairs"]
