"""Right kernels on fresh seeds: nothing rejected; a wrong one shows that something would be."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from lab.grading.audit import seeds

ARGUMENTS = ["seeds", "--seeds", "2", "--cases", "grouped", "--controls"]


def run(monkeypatch: pytest.MonkeyPatch, control: str, *more: str) -> int:
    monkeypatch.setattr("sys.argv", [*ARGUMENTS, control, *more])
    monkeypatch.setattr(seeds, "LARGE_GROUPS", seeds.LARGE_GROUPS[:1])
    return seeds.main()


def test_a_right_kernel_passes_and_its_row_says_where_it_came_nearest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "seeds.csv"
    assert run(monkeypatch, "repeat-of-inputs", "--out", str(file)) == 0
    said = capsys.readouterr().out
    assert said.startswith("0 of 2 rejected (1 right kernels, 2 seeds each, 2 cases a seed)")
    with file.open(newline="") as table:
        (row,) = csv.DictReader(table)
    assert (row["control"], row["seeds"], row["rejected"]) == ("repeat-of-inputs", "2", "0")
    assert 0 < float(row["worst_units"]) < 1
    assert int(row["seed"]) >= seeds.FIRST_SEED


def test_a_kernel_that_fails_is_counted_once_a_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "key-gradient-gain-103") == 1
    assert capsys.readouterr().out.startswith("2 of 2 rejected")


def test_the_seeds_are_none_that_anything_was_calibrated_or_audited_on() -> None:
    assert seeds.FIRST_SEED > 100_000
    assert {"repeat-of-inputs", "pallas-vmapped"} < set(seeds.CONTROLS)
    assert {case.shape.group for case in seeds.LARGE_GROUPS} == {8, 16}
