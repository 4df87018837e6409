"""Times of unlike machines are not merged unless asked, and then marked."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples

from lab import report
from lab.errors import UserError
from lab.records import Result
from lab.report import machines


def on(model: str, *overrides: str) -> Result:
    made = samples.timed("kernel=xla", "seq=128", *overrides, ms=1.0)
    environment = made.environment.model_copy(update={"cpu_model": model})
    return made.model_copy(update={"environment": environment})


def test_unlike_machines_are_refused_and_named(tmp_path: Path) -> None:
    samples.keep(on("Abacus"), tmp_path / "runs/a")
    samples.keep(on("Brain", "seq=256"), tmp_path / "runs/b")
    with pytest.raises(UserError, match=r"2 unlike machines .*Abacus.*Brain.*merge_machines=true"):
        report.build([tmp_path / "runs"], tmp_path / "report")
    report.build([tmp_path / "runs"], tmp_path / "report", merge_machines=True)
    page = (tmp_path / "report/report.md").read_text()
    assert "Times of unlike machines stand in this report" in page
    cells = (tmp_path / "report/cells.csv").read_text()
    assert "Abacus" in cells
    assert "Brain" in cells


def test_one_machine_and_failed_cells_elsewhere_are_alike() -> None:
    failed = on("Brain").model_copy(update={"status": "failed", "benchmark": None})
    assert machines.unlike([on("Abacus"), on("Abacus", "seq=256"), failed]) == []
