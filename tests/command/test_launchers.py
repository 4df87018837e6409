"""Timings taken in parallel are marked in the record and in every table."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

from commands import Lab


def test_cells_of_a_parallel_launcher_are_marked(lab: Lab, tmp_path: Path) -> None:
    done = lab(
        "-m", "kernel=xla", "shape=tiny", "seq=16,32", "benchmark.quick=true",
        "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "hydra.sweep.dir=sweep",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("result.json")]
    assert len(records) == 2
    for record in records:
        assert record["benchmark"]["conditions"]["parallel_jobs"] == 2
        assert "parallel" in record["benchmark"]["flags"]
    rows = list(csv.DictReader(StringIO((tmp_path / "sweep/report/cells.csv").read_text())))
    assert all("parallel" in row["flags"].split() for row in rows)
    assert "- parallel: other cells" in (tmp_path / "sweep/report/report.md").read_text()
