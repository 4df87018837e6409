"""Every command in the README and the runbook, as it stands there.

All are composed, quickly; those that a machine without a TPU can run are run, in the slow suite.
"""

from __future__ import annotations

import itertools
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
from documents import README, ROOT, RUNBOOK, blocks

from lab.candidates import catalogue
from lab.command import axes

KERNEL_PAGE = ROOT / "docs/adding_a_kernel.md"
LAB = (["python", "lab/run.py"], [".venv/bin/python", "lab/run.py"], ["lab"])
# What a test does not run, and why.
NOT_RUN = {
    r"^make (sweep|test|audit|mutants|verify)\b": "makes an environment first",
    r"^pip install|^\.venv/bin/pip|^python3\.11 -m venv": "installs from the network",
    r"^gcloud |^tmux |^git (clone|add|commit)": "needs a cloud, a terminal or a user's repository",
}
# Run elsewhere, or only on a TPU or with what came back from one.
ONLY_COMPOSED = {
    r"campaign=(tpu|gpu)\b|task=campaign campaign=kaggle-v5e$": "needs the device",
    r"task=release ": "needs a campaign from a device",
    r"report\.runs=\[DIR": "a placeholder for a directory of runs",
    r"/kaggle/": "Kaggle's own directory",
    r"kernel=whole": "the page's own kernel: tests/kernels/test_template.py",
}


def commands(page: Path) -> Iterator[str]:
    """The page's commands, those in its text too, split at && and without comments."""
    inline = re.findall(r"`((?:python lab/run\.py|lab) [^`]*=[^`]*)`", page.read_text())
    for block in [*blocks(page, "sh"), *(" ".join(text.split()) for text in inline)]:
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.split("&&"):
                words = shlex.join(shlex.split(part, comments=True))
                if words:
                    yield words


EVERY = sorted({(page.name, c) for page in (README, RUNBOOK, KERNEL_PAGE) for c in commands(page)})
OF_LAB = sorted({c for _, c in EVERY if any(shlex.split(c)[: len(x)] == x for x in LAB)})


def arguments(command: str) -> list[str]:
    words = shlex.split(command)
    return words[next(len(x) for x in LAB if words[: len(x)] == x) :]


def cells(overrides: list[str]) -> Iterator[list[str]]:
    """The combinations of `key=a,b`; a glob over the candidates stands for its first and last."""
    names = list(catalogue.entries())
    choices = []
    for override in overrides:
        key, _, value = override.partition("=")
        values = [names[0], names[-1]] if value.startswith("glob(") else [value]
        if not value.startswith(("glob(", "[", "{")):
            values = value.split(",")
        choices.append([f"{key}={v}" for v in values])
    yield from axes.fitted([list(job) for job in itertools.product(*choices)]).jobs


def test_every_command_is_known() -> None:
    assert len(OF_LAB) > 15
    unknown = [
        (page, command)
        for page, command in EVERY
        if command not in OF_LAB
        and command.split()[0] not in ("cd", "#")
        and not any(re.search(pattern, command) for pattern in NOT_RUN)
    ]
    assert not unknown


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
@pytest.mark.parametrize(
    "command", [c for c in OF_LAB if not any(re.search(p, c) for p in ONLY_COMPOSED)]
)
def test_the_command_runs(command: str, tmp_path: Path) -> None:
    """In a folder like a checkout, with a file such as the README asks for."""
    for name in ("lab", "conf", "dataset", "evidence", "hydra_plugins"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "tests/grading/exploits/honest_pallas.py", tmp_path / "mine.py")
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command.replace("/tmp/rehearsal", f"{tmp_path}/rehearsal")],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
