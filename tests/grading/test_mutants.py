"""Planted defects apply to the grader as it is; `make mutants` plants and runs them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_mutant_finds_the_line_that_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    mutants = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mutants", mutants)
    spec.loader.exec_module(mutants)
    lost = [m.name for m in mutants.MUTANTS if (ROOT / m.file).read_text().count(m.old) != 1]
    assert lost == []
