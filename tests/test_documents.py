"""Every command in the README, the runbook and docs/, as it stands there.

All are composed, quickly; those that a machine without a TPU can run are run, in the slow suite.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import samples
from documents import DOCS, README, ROOT, RUNBOOK, blocks, commands, languages

from lab.candidates import catalogue
from lab.command import axes

LAB = (["python", "lab/run.py"], [".venv/bin/python", "lab/run.py"], ["lab"])
PAGES = (README, RUNBOOK, *DOCS)
EVERY = sorted({command for page in PAGES for command in commands(page)})
OF_LAB = [c for c in EVERY if any(shlex.split(c)[: len(x)] == x for x in LAB)]
# What no test runs, and why.
NOT_RUN = {
    r"^make sweep PYTHON": "makes an environment: tests/test_wheel.py has each Python",
    r"^make (test|mutants|audit)$": "the suite, its slow tests, and the evidence of the audit",
    r"^(python -m )?pytest ": "the slow suite itself",
    r"^python -m lab\.grading\.audit\.calibrate": "remakes the grader's thresholds",
    r"^pip install|^\.venv/bin/pip|^python3\.11 -m venv": "installs from the network",
    r"^(gcloud|tmux|cd) |^git (clone|add|commit)": "needs a cloud, a terminal or a repository",
    r"campaign=(tpu|gpu)\b|task=campaign campaign=kaggle-v5e$": "needs the device",
    r"task=release ": "needs a campaign from a device",
    r"/kaggle/": "Kaggle's own directory",
    r"kernel=whole": "the page's own kernel: tests/kernels/test_template.py",
    r"task=tune|sweeper=optuna": "an hour or more, and a new table: tests/command/test_search.py",
}
RUN = [c for c in EVERY if not any(re.search(pattern, c) for pattern in NOT_RUN)]


def arguments(command: str) -> list[str]:
    words = shlex.split(command)
    return words[next(len(x) for x in LAB if words[: len(x)] == x) :]


def cells(overrides: list[str]) -> Iterator[list[str]]:
    """Jobs in which each value of `key=a,b` appears; a glob stands for its first and last."""
    names = list(catalogue.entries())
    choices = []
    for override in overrides:
        key, _, value = override.partition("=")
        values = [names[0], names[-1]] if value.startswith("glob(") else [value]
        if not value.startswith(("glob(", "[", "{")):
            values = value.split(",")
        choices.append([f"{key}={v}" for v in values])
    width = max(map(len, choices))
    jobs = [[values[min(n, len(values) - 1)] for values in choices] for n in range(width)]
    yield from axes.fitted(jobs).jobs


def test_every_command_is_of_a_kind_that_is_run() -> None:
    assert len(OF_LAB) > 15
    known = ("make ", "python -m lab.")
    assert not [c for c in RUN if c not in OF_LAB and not c.startswith(known)]


@pytest.mark.parametrize("pattern", NOT_RUN)
def test_every_exception_is_needed(pattern: str) -> None:
    assert any(re.search(pattern, command) for command in EVERY)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_no_command_hides_in_a_block_that_is_not_read(page: Path) -> None:
    assert languages(page) <= {"", "python", "sh"}
    output = "\n".join(blocks(page, ""))
    assert not re.search(r"^\W*(python|lab|make|pip|git|pytest)\b", output, re.MULTILINE)


@pytest.mark.parametrize("command", [c for c in EVERY if c.startswith("make ")])
def test_every_target_is_one(command: str) -> None:
    rehearsed = ["make", "--dry-run", *shlex.split(command)[1:]]
    done = subprocess.run(rehearsed, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [c for c in OF_LAB if "kernel=whole" not in c])
def test_every_command_composes(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "evidence").symlink_to(ROOT / "evidence")
    monkeypatch.chdir(tmp_path)
    given = [a for a in arguments(command) if not a.startswith(("-", "hydra.", "hydra/"))]
    for job in cells(given) if given else []:
        samples.cell(*job)


@pytest.mark.slow
@pytest.mark.parametrize("command", RUN)
def test_the_command_runs(command: str, tmp_path: Path) -> None:
    """In a folder like a checkout, with a file and two sweeps such as the pages ask for."""
    for name in (
        "lab",
        "conf",
        "dataset",
        "evidence",
        "hydra_plugins",
        "Makefile",
        "pyproject.toml",
    ):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "tests/grading/exploits/honest_pallas.py", tmp_path / "mine.py")
    for sweep in ("runs/OLD", "runs/NEW", "DIR"):
        for kernel in ("pallas", "xla"):
            made = samples.timed(f"kernel={kernel}", ms=1.0)
            samples.keep(made, tmp_path / sweep / made.cell_id)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    here = command.replace("/tmp/rehearsal", f"{tmp_path}/rehearsal")
    done = subprocess.run(
        ["bash", "-c", re.sub("^make ", "make --old-file=.venv/.ready ", here)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=7200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
