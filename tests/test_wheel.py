"""A wheel of this tree, in a fresh environment, grades a right file from another directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT

RIGHT = ROOT / "tests/grading/exploits/honest_pallas.py"


def interpreter(version: str) -> str | None:
    """A Python of that version that runs: on the path, or one of pyenv's, which shims may hide."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for python in (shutil.which(name), *sorted(pyenv.glob(f"versions/{version}.*/bin/{name}"))):
        if (
            python
            and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            return str(python)
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    make = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(make, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = out.glob("*.whl")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_a_fresh_environment_accepts_a_right_file(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    """The newest libraries that this Python gets from the package index, as a user has them."""
    if (python := interpreter(version)) is None:
        pytest.skip(f"no python{version} here: install it (pyenv install {version}), run again")
    environment = tmp_path / "environment"
    for command in (
        [python, "-m", "venv", str(environment)],
        [str(environment / "bin/python"), "-m", "pip", "install", "--quiet", str(wheel)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
        assert done.returncode == 0, done.stderr

    (tmp_path / "elsewhere").mkdir()
    shutil.copy(RIGHT, tmp_path / "mine.py")
    done = subprocess.run(
        [
            str(environment / "bin/lab"), "task=rubric", "candidate=custom",
            "candidate.path=../mine.py", "candidate.function=attention", "hydra.run.dir=out",
        ],
        cwd=tmp_path / "elsewhere",
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Traceback" not in done.stdout + done.stderr
    record = json.loads((tmp_path / "elsewhere/out/result.json").read_text())
    assert (record["rubric"]["verdict"], record["rubric"]["score"]) == ("accepted", 100)
    assert record["environment"]["python"].startswith(version)
