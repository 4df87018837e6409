"""The runbook's cell is rehearsed as it stands there, with sources on this disk and no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents import RUNBOOK, blocks

# A package like the lab, for the cell alone: it needs nothing, and says how it was called.
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "stand-in"
version = "1"

[project.optional-dependencies]
tpu = []
"""
BACKEND = """
import os, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    if "NO_NETWORK" in os.environ:
        raise SystemExit("no network")
    info, name = "stand_in-1.dist-info", "stand_in-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        named = "Metadata-Version: 2.1\\nName: stand-in\\nVersion: 1\\nProvides-Extra: tpu\\n"
        wheel.writestr(f"{info}/METADATA", named)
        wheel.writestr(f"{info}/WHEEL",
                       "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
        wheel.writestr("stand_in.py", "")
    return name
"""
ENTRY = """
import os, sys
import stand_in
assert "TPU_LIBRARY_PATH" not in os.environ
print("CAMPAIGN", *sys.argv[1:])
sys.exit(int(os.environ.get("CAMPAIGN_EXIT", "0")))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository that can be cloned and installed without a network."""
    folder = tmp_path / "source"
    (folder / "lab").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "lab/run.py").write_text(ENTRY)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a stand-in"]):
        subprocess.run([*git, *command], check=True)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "working/attention-lab"


def cell(source: Path, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the cell with a user's SOURCE, in another place than Kaggle's."""
    (text,) = blocks(RUNBOOK, "python")
    for was, now in (
        ("https://example.org/attention-lab.git", str(source)),
        ("/kaggle/working", str(home.parent)),
    ):
        assert was in text
        text = text.replace(was, now)
    return subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "TPU_LIBRARY_PATH": "the image's", **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def stopped(done: subprocess.CompletedProcess[str]) -> bool:
    """It failed, said in its last line what to do, and did not go on to the campaign."""
    return (
        done.returncode == 1
        and done.stderr.splitlines()[-1].startswith("stopped, exit code ")
        and done.stderr.endswith("then run this cell again\n")
        and "Traceback" not in done.stderr
        and "CAMPAIGN" not in done.stdout
    )


def test_the_cell_recovers_from_a_failed_clone_and_a_failed_installation(
    source: Path, home: Path, tmp_path: Path
) -> None:
    done = cell(tmp_path / "nowhere", home)
    assert stopped(done)
    assert "pip" not in done.stdout

    done = cell(source, home, NO_NETWORK="1")
    assert stopped(done)
    assert (home / ".venv").exists()

    done = cell(source, home, CAMPAIGN_EXIT="1")
    assert done.returncode == 1, "a campaign that fails is not passed over"
    out = f"CAMPAIGN task=campaign campaign=kaggle-v5e campaign.out={home.parent}/campaign"
    assert out in done.stdout

    done = cell(source, home)
    assert done.returncode == 0, done.stderr
    assert out in done.stdout
    assert "clone" not in done.stdout, "a finished clone is kept"
    assert "pip" not in done.stdout, "a finished installation is kept"


@pytest.mark.slow
def test_the_cell_clones_anew_what_a_cut_off_clone_left(source: Path, home: Path) -> None:
    shutil.copytree(source, home)
    (home / "lab/run.py").unlink()
    (home / ".venv/bin").mkdir(parents=True)
    (home / ".venv/bin/python").write_text("half an environment")
    done = cell(source, home)
    assert done.returncode == 0, done.stderr
    assert "CAMPAIGN" in done.stdout
