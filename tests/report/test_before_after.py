"""task=compare: verdicts, regressions, gaps, and what differs, from records alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import samples
from commands import Lab

from lab.cells import expectations
from lab.errors import UserError
from lab.records import ComparedCell, Result
from lab.report import before_after, compared

XLA = ("kernel=xla", "seq=128")


def timed(ms: float, *overrides: str, **changes: Any) -> Result:
    return samples.result(samples.cell(*XLA, *overrides), samples.benchmark(ms) | changes)


def other(result: Result, **environment: Any) -> Result:
    return result.model_copy(
        update={"environment": result.environment.model_copy(update=environment)}
    )


def paired(ms: float, ratio: float) -> dict[str, Any]:
    found = {
        "samples_ms": [1.0] * 20,
        "median_ms": 1.0,
        "ratio": ratio,
        "ratio_lo": 0.995 * ratio,
        "ratio_hi": 1.005 * ratio,
        "pairs": 20,
        "resamples": 4000,
        "seed": 0,
        "threshold": 0.02,
        "noise_floor": None,
        "margin": 0.02,
        "own_noise": None,
        "verdict": "slower",
        "baseline": {"name": "xla"},
    }
    return samples.benchmark(ms) | {"paired": found}


def one(before: Result | None, after: Result | None, **limits: float) -> ComparedCell:
    def side(result: Result | None) -> dict[str, before_after.Found]:
        return {} if result is None else {"case": before_after.Found(result, "result.json")}

    kept = {"threshold": 0.02, "max_regression": 0.1} | limits
    (found,) = before_after.compare(side(before), side(after), **kept)
    return found


@pytest.mark.parametrize(
    ("after_ms", "verdict", "regression"),
    [(1.0, "same", False), (1.5, "slower", True), (1.08, "slower", False), (0.5, "faster", False)],
)
def test_a_cell_before_and_after(after_ms: float, verdict: str, regression: bool) -> None:
    found = one(timed(1.0), timed(after_ms))
    assert (found.verdict, found.regression) == (verdict, regression)
    assert found.ratio == pytest.approx(after_ms)
    assert found.ratio_lo is not None
    assert found.ratio_hi is not None
    assert found.ratio_lo < after_ms < found.ratio_hi


def test_few_samples_are_ambiguous() -> None:
    few = samples.result(samples.cell(*XLA), samples.benchmark(2.0, samples=5))
    assert one(timed(1.0), few).verdict == "ambiguous"


def test_a_controls_noise_floor_is_the_least_margin() -> None:
    control = paired(1.2, 1.0)["paired"] | {"own_noise": 0.3}
    del control["baseline"]
    found = one(timed(1.0), timed(1.2, control=control))
    assert (found.verdict, found.margin) == ("same", 0.3)


def test_missing_cells_are_rows_and_failed_ones_are_regressions() -> None:
    gone = one(timed(1.0), None)
    assert (gone.verdict, gone.regression, gone.note) == ("missing", False, "after: no such cell")
    failed = samples.result(samples.cell(*XLA), status="failed", reason="it broke")
    broken = one(timed(1.0), failed)
    assert (broken.verdict, broken.regression) == ("missing", True)
    assert broken.note == "after: failed: it broke"
    assert not one(failed, timed(1.0)).regression


def test_unlike_machines_stand_side_by_side_but_are_no_regression() -> None:
    found = one(timed(1.0), other(timed(2.0), cpu_model="Abacus", jax="9.9"))
    assert found.verdict == "slower"
    assert not found.regression
    assert {"machine", "jax"} <= set(found.differs)
    assert "unlike machines" in (found.note or "")


def test_paired_cells_are_compared_relative_to_their_baseline() -> None:
    """The machine became half as fast; the kernel, next to its baseline, did not."""
    before = samples.result(samples.cell(*XLA), paired(1.0, 1.5))
    after = samples.result(samples.cell(*XLA), paired(2.0, 1.5))
    found = one(before, after)
    assert (found.verdict, found.ratio) == ("same", 1.0)
    assert found.note == "relative to xla"
    assert one(before, other(after, jax="9.9")).ratio == 2.0


def test_sides_are_read_from_runs_raw_records_and_evidence(tmp_path: Path) -> None:
    samples.keep(timed(1.0), tmp_path / "runs/a")
    (found,) = before_after.read(tmp_path, "compare.before").values()
    assert found.path == "runs/a/result.json"
    root = Path(__file__).resolve().parents[2]
    raw = before_after.read(root / "dataset/raw/local-cpu", "compare.before")
    assert sum(found.result.task == "benchmark" for found in raw.values()) == 20
    estimates = before_after.read(root / "evidence/tpu-v5e-compiled/sweep", "compare.before")
    same = before_after.compare(estimates, estimates, threshold=0.02, max_regression=0.1)
    assert {cell.verdict for cell in same} == {"same"}
    assert all(cell.before_peak_bytes for cell in same)
    for nowhere in (tmp_path / "none", root / "docs"):
        with pytest.raises(UserError, match=r"compare\.after="):
            before_after.read(nowhere, "compare.after")


def test_the_tables_of_a_comparison(tmp_path: Path) -> None:
    cells = [one(timed(1.0), timed(1.5)), one(timed(1.0), None)]
    page = compared.page(cells, "old", "new")
    assert "2 cases: 1 missing, 1 slower." in page
    assert "slower **(regression)**" in page
    assert len({line.count("|") for line in page.splitlines() if line.startswith("|")}) == 1
    assert compared.table(cells).splitlines()[1].startswith("case,slower,True,")


def test_the_command_exits_1_on_a_regression(lab: Lab, tmp_path: Path) -> None:
    samples.keep(timed(1.0), tmp_path / "old/a")
    samples.keep(timed(1.3), tmp_path / "new/a")
    arguments = ["task=compare", "compare.before=old", "compare.after=new"]
    worse = lab(*arguments, "hydra.run.dir=out")
    assert worse.returncode == 1, worse.stdout + worse.stderr
    assert "REGRESSION" in worse.stdout
    assert "over compare.max_regression=0.1" in worse.stdout
    kept = json.loads((tmp_path / "out/result.json").read_text())
    assert kept["compare"]["regressions"] == 1
    assert (tmp_path / "out/compare.md").is_file()
    fine = lab(*arguments, "compare.max_regression=0.5")
    assert fine.returncode == 0, fine.stdout + fine.stderr


def test_nothing_in_common_is_no_success() -> None:
    section = {
        "before": "a", "after": "b", "max_regression": 0.1, "threshold": 0.02,
        "cells": [one(timed(1.0), None).model_dump(mode="json")],
        "regressions": 0, "compared": 0, "files": [],
    }  # fmt: skip
    made = samples.result(samples.cell("task=compare"), section)
    assert expectations.surprises(made) == ("no case has a time on both sides",)
