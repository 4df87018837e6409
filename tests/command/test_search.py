"""Searches by Optuna: what is refused, what may win, and the command that fills the table."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from commands import ROOT, Lab, run_many

from lab import records
from lab.command import searches
from lab.errors import UserError
from lab.kernels import winners
from lab.records import Result
from lab.tasks import tune

pytest.importorskip("optuna", reason="searches need: pip install 'attention-lab[tune]'")
OPTUNA = ["-m", "hydra/sweeper=optuna"]
CELL = ["task=compile", "kernel=flash", "seq=128"]
KEPT = sorted((ROOT / "evidence" / "tuning").glob("*/*.json"))


def test_what_no_search_can_rate_is_refused_before_the_first_cell(tmp_path: Path) -> None:
    axis = "kernel.block_q=128,256"
    cases = {
        "add task=compile": [*OPTUNA, "kernel=flash", axis],
        "could win": [*OPTUNA, *CELL, axis, "compile.prove=false"],
        "give seq one value": [*OPTUNA, "task=compile", "kernel=flash", "seq=128,256"],
        "kernel.block_q is 200": [*OPTUNA, *CELL, "kernel.block_q=128,200"],
        "needs values": [*OPTUNA, *CELL],
        "add hydra/sweeper=optuna": ["-m", "+experiment=tune-forward", "seq=128"],
        "no such case": ["task=tune", "tune=flash", "tune.only=[forward-3]"],
        "tune=NAME": ["task=tune"],
        "not a folder": ["task=tune", "tune.runs=[nosuch]"],
    }
    for (words, _), done in zip(
        cases.items(), run_many(list(cases.values()), tmp_path), strict=True
    ):
        assert done.returncode == 2, (words, done.stderr)
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert not list(tmp_path.glob("run*/runs"))


@pytest.fixture(scope="module")
def kept() -> Result:
    """A record that earned an entry."""
    if not KEPT:
        pytest.skip("no record of a winner is here")
    return records.read(KEPT[0], Result)


def changed(result: Result, **values: object) -> Result:
    assert result.compile is not None
    return result.model_copy(update={"compile": result.compile.model_copy(update=values)})


def test_only_proved_cells_have_an_objective(kept: Result) -> None:
    assert kept.compile is not None
    assert searches.objective(kept) == kept.compile.rating
    for proved in (False, None):
        assert searches.objective(changed(kept, values_proved=proved)) == math.inf
    assert searches.objective(changed(kept, estimated_ms=None)) == kept.compile.estimated_cycles
    nothing = changed(kept, estimated_ms=None, estimated_cycles=None)
    assert searches.objective(nothing) == math.inf
    assert searches.objective(None) == math.inf


def test_an_unproved_cell_wins_nothing_however_fast(kept: Result) -> None:
    assert kept.compile is not None
    fast = changed(kept, values_proved=False, estimated_ms=1e-9, estimated_cycles=1)
    target = kept.compile.target
    assert tune.winner([fast, kept], target) is kept
    assert tune.winner([fast], target) is None
    with pytest.raises(UserError, match="not proved"):
        tune.entry_of(fast, KEPT[0])
    assert "none may win" in searches.said([fast])[0]


def test_the_same_kernel_keeps_its_faster_entry_and_another_kernel_replaces_it(
    kept: Result,
) -> None:
    entry = tune.entry_of(kept, KEPT[0])
    slower = entry.model_copy(
        update={"earned": entry.earned.model_copy(update={"estimated_cycles": 10**9})}
    )
    assert tune.entered([entry], slower) == ([entry], "kept")
    assert tune.entered([slower], entry) == ([entry], "entered")
    old = entry.model_copy(
        update={"earned": entry.earned.model_copy(update={"kernel_sha256": "older"})}
    )
    assert tune.entered([old], slower) == ([slower], "entered")


def test_a_search_returns_its_objective_and_its_winner_enters_a_table(
    lab: Lab, tmp_path: Path
) -> None:
    pytest.importorskip("libtpu", reason="needs the TPU compiler: pip install '.[tpu]'")
    search = [
        *OPTUNA, *CELL, "hydra.sweep.dir=out", "kernel.block_q=128", "kernel.block_k=128",
        "kernel.lookahead=1,2", "hydra.sweeper.n_trials=2", "hydra.sweeper.n_jobs=1",
        "hydra.sweeper.sampler.seed=1",
    ]  # fmt: skip
    done = lab(*search)
    assert done.returncode == 0, done.stderr
    assert "as given" in done.stdout
    found = [records.read(p, Result) for p in (tmp_path / "out").glob("*/result.json")]
    best = (tmp_path / "out/optimization_results.yaml").read_text()
    cheapest = min(searches.objective(result) for result in found)
    assert f"best_value: {cheapest}" in best

    again = lab(*search)  # the same trials, and nothing to run
    assert again.returncode == 0
    assert [records.read(p, Result) for p in (tmp_path / "out").glob("*/result.json")] == found

    entered = lab(
        "task=tune", "target=v5e", "tune.runs=[out]", "tune.table=table.json",
        "tune.records=kept", "hydra.run.dir=tuned",
    )  # fmt: skip
    assert entered.returncode == 0, entered.stderr
    (entry,) = winners.table(tmp_path / "table.json")
    assert entry.earned.estimated_ms == cheapest
    (path,) = (tmp_path / "kept/v5e").iterdir()
    assert winners.sha256(path) == entry.earned.record
    assert json.loads(path.read_text())["compile"]["values_proved"] is True
