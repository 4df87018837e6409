"""The command as a whole: what it imports, where it writes, how it is stopped, and installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import samples
from commands import ROOT, Lab, command

from lab.candidates import catalogue

# Runs the entry in this very process, then says which of the heavy packages it has imported.
WATCHED = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
heavy = {"jax", "jaxlib", "libtpu", "torch"} & set(sys.modules)
print("heavy:", sorted(heavy), "pandas" in sys.modules)
"""
TINY = ["kernel=xla", "shape=tiny", "benchmark.samples=1", "benchmark.warmups=0"]


def watched(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *command(*arguments)[1:]],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for kernel, ms in (("xla", 1.0), ("pallas", 4.0)):
        samples.keep(samples.timed(f"kernel={kernel}", ms=ms), tmp_path / "kept" / kernel)
    return tmp_path / "kept"


def test_help_is_for_newcomers_and_imports_neither_jax_nor_pandas(tmp_path: Path) -> None:
    said = watched("--help", cwd=tmp_path)
    assert "heavy: [] False" in said
    for word in ("Usage:", "kernel: flash, jax_flash", "hydra.sweep.dir", "Exit codes", "minutes"):
        assert word in said
    assert not list(tmp_path.iterdir())


def test_help_is_not_buried_under_candidates(lab: Lab) -> None:
    said = lab("--help").stdout
    assert len(said.splitlines()) < 70
    assert "candidate: custom, reference, and " in said
    assert "wrong-gqa: " not in said
    listed = lab("--help", "candidate").stdout
    for name, entry in catalogue.entries().items():
        assert f"  {name}: {entry.description.split()[0]}" in listed
    assert lab("--help", "dtype").stdout == "dtype: bf16, f32\n"


def test_outside_of_its_environment_it_says_what_to_activate(tmp_path: Path) -> None:
    """-S: an interpreter without any site-packages, as a system's Python is to the lab."""
    script = command("task=doctor")[1:]
    done = subprocess.run(
        [sys.executable, "-S", *script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {sys.executable} has no hydra: activate the environment")
    assert "source .venv/bin/activate" in line


def test_a_report_imports_no_jax_and_goes_where_it_is_told(tmp_path: Path, runs: Path) -> None:
    said = watched("task=report", "report.runs=[kept]", "hydra.run.dir=here/it is", cwd=tmp_path)
    assert "heavy: [] True" in said
    directory = tmp_path / "here/it is"
    assert json.loads((directory / "result.json").read_text())["report"]["comparisons"] == 1
    assert (directory / "report/slowdown.png").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["here", "kept"]


def test_runs_of_the_same_second_do_not_meet(tmp_path: Path, runs: Path) -> None:
    arguments = command("task=report", "report.runs=[kept]")
    both = [subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert len(list((tmp_path / "runs").glob("*/*/result.json"))) == 2


@pytest.mark.parametrize("flags", [["--cfg", "job"], ["--cfg", "hydra", "--resolve"]], ids=" ".join)
def test_hydra_shows_the_configuration_without_running(lab: Lab, flags: list[str]) -> None:
    done = lab(*flags)
    assert done.returncode == 0
    assert done.stderr == ""
    assert ("seq: 256" in done.stdout) == (flags == ["--cfg", "job"])


@pytest.mark.parametrize(
    ("kibibytes", "subdirectory"), [(0, ".hydra"), (2, "null")], ids=["Hydra's files", "our files"]
)
def test_a_full_disk_is_one_error_and_exit_code_1(
    tmp_path: Path, runs: Path, kibibytes: int, subdirectory: str
) -> None:
    # A limit on the size of files stands in for a full disk. The shell sets it, because a process
    # that has imported jax should not fork.
    limited = ["bash", "-c", f'ulimit -f {kibibytes}; exec "$@"', "bash"]
    done = subprocess.run(
        limited
        + command(
            "task=report", "report.runs=[kept]", "hydra.run.dir=out",
            f"hydra.output_subdir={subdirectory}",
        ),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert "File too large" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out/result.json").exists()


SLOW = """
import time

def attention(q, k, v, *, causal, key_mask, scale):
    time.sleep(600)
"""


@pytest.mark.parametrize(
    "stop", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_stopped_sweep_keeps_its_cells_and_makes_its_tables(
    tmp_path: Path, stop: signal.Signals
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    process = subprocess.Popen(
        command(
            "-m", "hydra.sweep.dir=out", "candidate=custom,reference", "seq=16",
            "candidate.path=slow.py", *TINY,
        ),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        status: list[Path] = []
        while process.poll() is None and not status:
            time.sleep(0.1)
            status = list((tmp_path / "out").glob("benchmark-custom-*/status.json"))
        process.send_signal(stop)
        out, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "Traceback" not in error
    assert "error: interrupted; resume with the same command and hydra.sweep.dir=out" in error
    assert "2 of 2 cells did not finish" in error
    assert "1 cell: 1 interrupted" in out
    assert json.loads(status[0].read_text())["status"] == "interrupted"
    rows = (tmp_path / "out/report/cells.csv").read_text().splitlines()
    assert len(rows) == 1 + 1


@pytest.mark.slow
def test_an_installed_wheel_works_from_anywhere(tmp_path: Path, runs: Path) -> None:
    site = tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(ROOT)]
    subprocess.run([sys.executable, *install], check=True, timeout=300)
    assert (site / "lab/conf/config.yaml").is_file()
    program = "import lab.run; print(lab.run.__file__); lab.run.main()"

    def lab(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert str(site) in lab("--help")
    lab("task=report", "report.runs=[kept]", "hydra.run.dir=out")
    assert "slowdown.png" in (tmp_path / "out/report/report.md").read_text()
    lab("-m", "hydra.sweep.dir=sweep", "seq=16,24", *TINY)
    record = json.loads(next((tmp_path / "sweep").glob("*/result.json")).read_text())
    assert record["status"] == "done"
    assert record["environment"]["commit"] is None, "somebody else's repository is not ours"
    checkout = samples.timed(*TINY, f"seq={record['cell']['seq']}", ms=1.0)
    assert record["cell_id"] == checkout.cell_id
    assert record["code_sha256"] == checkout.code_sha256
