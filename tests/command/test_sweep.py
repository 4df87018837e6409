"""Sweeps from the command line: tables, failures, resumption, launchers."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from commands import Lab, command

TINY = ["shape=tiny", "benchmark.samples=3", "benchmark.max_samples=3", "benchmark.warmups=1"]
# A candidate that is right, but raises at one length: how a cell is made to fail among others.
FRAGILE = """
import jax.numpy as jnp

def attention(q, k, v, *, causal, key_mask, scale):
    T, S, D = q.shape[2], k.shape[2], q.shape[3]
    if T == 40:
        raise RuntimeError("forty is too much")
    k, v = (jnp.repeat(x.astype(jnp.float32), q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    s = jnp.einsum("bhtd,bhsd->bhts", q.astype(jnp.float32), k, precision="highest") / D**0.5
    s = jnp.where(jnp.tril(jnp.ones((T, S), bool), S - T), s, -jnp.inf)
    p = jnp.exp(s - s.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    return jnp.einsum("bhts,bhsd->bhtd", p, v, precision="highest").astype(q.dtype)
"""


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def without_times(path: Path) -> list[dict[str, str]]:
    timed = ("_ms", "slowdown", "slowdown_lo", "slowdown_hi", "iqr_share", "outliers", "flags")
    timed += ("achieved_tflops", "achieved_gb_s", "times_floor", "peak_bytes", "inner_calls")
    return [{k: v for k, v in row.items() if not k.endswith(timed)} for row in table(path)]


def test_a_sweep_leaves_records_tables_and_a_curve(lab: Lab, tmp_path: Path) -> None:
    sweep = ["-m", "hydra.sweep.dir=out", "kernel=pallas,xla", "seq=16,32", *TINY]
    done = lab(*sweep)
    assert done.returncode == 0, done.stderr
    assert "4 cells: 4 done" in done.stdout
    report = tmp_path / "out/report"
    cells, comparisons = table(report / "cells.csv"), table(report / "comparisons.csv")
    assert len(cells) == 4
    assert [(row["kernel"], row["seq"]) for row in comparisons] == [
        ("pallas", "16"),
        ("pallas", "32"),
    ]
    assert {row["evidence"] for row in comparisons} == {"interpreted"}
    for row in comparisons:
        ratio = float(row["kernel_ms"]) / float(row["baseline_ms"])
        assert float(row["slowdown"]) == pytest.approx(ratio)
    assert "interpreted: not a performance claim" in (report / "slowdown.svg").read_text()
    assert (report / "slowdown.png").stat().st_size > 10_000
    record = json.loads(next((tmp_path / "out").glob("*pallas*s16*/result.json")).read_text())
    assert len(record["benchmark"]["samples_ms"]) == 3
    assert record["interpret"] is True
    assert record["cache_state"] == "cold"

    again = lab(*sweep)  # resumed: nothing is left to do, and nothing changes
    assert again.returncode == 0
    rerun = json.loads(next((tmp_path / "out").glob("*pallas*s16*/result.json")).read_text())
    assert rerun == record


def test_one_failing_cell_is_a_row_and_hides_nothing(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "fragile.py").write_text(FRAGILE)
    done = lab(
        "-m", "hydra.sweep.dir=out", "kernel=xla", "candidate=reference,custom",
        "candidate.path=fragile.py", "candidate.function=attention", "seq=24,40,56", *TINY,
    )  # fmt: skip
    assert done.returncode == 1
    assert "forty is too much" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    rows = table(tmp_path / "out/report/cells.csv")
    assert [row["status"] for row in rows].count("done") == 5
    (failed,) = [row for row in rows if row["status"] == "failed"]
    assert "forty is too much" in failed["reason"]
    assert "Traceback" in (tmp_path / "out" / failed["directory"] / "error.txt").read_text()
    assert len(table(tmp_path / "out/report/comparisons.csv")) == 2
    assert "forty is too much" in (tmp_path / "out/report/report.md").read_text()
    assert "no result" in (tmp_path / "out/report/slowdown.svg").read_text()


def test_a_deadline_is_a_timeout(lab: Lab, tmp_path: Path) -> None:
    done = lab("kernel=xla", "hydra.run.dir=out", "deadline_s=0.2", *TINY)
    assert done.returncode == 1
    record = json.loads((tmp_path / "out/result.json").read_text())
    assert record["status"] == "timeout"
    assert "0.2 s" in record["reason"]


def test_killed_and_resumed_gives_the_tables_of_an_undisturbed_sweep(
    lab: Lab, tmp_path: Path
) -> None:
    axes = ["kernel=xla", "candidate=reference,naive", "seq=16,24", *TINY]
    process = subprocess.Popen(
        command("-m", "hydra.sweep.dir=killed", *axes),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    finished: list[Path] = []
    while len(finished) < 1 and process.poll() is None:
        time.sleep(0.05)
        finished = list((tmp_path / "killed").glob("*/result.json"))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = sorted((tmp_path / "killed").glob("*/result.json"))
    assert 1 <= len(finished) < 4
    for status in (tmp_path / "killed").glob("*/status.json"):
        assert status.with_name("result.json") in finished or '"running"' in status.read_text()
    before = {path: path.read_bytes() for path in finished}

    resumed = lab("-m", "hydra.sweep.dir=killed", *axes)
    undisturbed = lab("-m", "hydra.sweep.dir=whole", *axes)
    assert resumed.returncode == undisturbed.returncode == 0
    assert {path: path.read_bytes() for path in finished} == before
    for name in ("cells.csv", "comparisons.csv"):
        assert without_times(tmp_path / "killed/report" / name) == without_times(
            tmp_path / "whole/report" / name
        )


def test_a_truncated_result_is_named_and_run_again(lab: Lab, tmp_path: Path) -> None:
    sweep = ["-m", "hydra.sweep.dir=out", "kernel=xla", "seq=16,24", *TINY]
    assert lab(*sweep).returncode == 0
    victim = next((tmp_path / "out").glob("*s16*/result.json"))
    victim.write_bytes(victim.read_bytes()[:200])
    report = lab("task=report", "report.runs=[out]", "hydra.run.dir=report")
    assert report.returncode == 0
    page = (tmp_path / "report/report/report.md").read_text()
    assert f"{victim.parent.name}/result.json" in page
    assert len(table(tmp_path / "report/report/cells.csv")) == 1
    assert lab(*sweep).returncode == 0
    assert json.loads(victim.read_text())["status"] == "done"


@pytest.mark.slow
def test_the_joblib_launcher_gives_the_same_records(lab: Lab, tmp_path: Path) -> None:
    axes = ["kernel=xla", "candidate=reference,naive", "seq=16,24", *TINY]
    basic = lab("-m", "hydra.sweep.dir=basic", *axes)
    joblib = lab("-m", "hydra.sweep.dir=joblib", "hydra/launcher=joblib", *axes)
    assert basic.returncode == joblib.returncode == 0, joblib.stderr
    assert without_times(tmp_path / "basic/report/cells.csv") == without_times(
        tmp_path / "joblib/report/cells.csv"
    )
