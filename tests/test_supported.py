"""`make test-supported`, with stand-ins for the interpreters: what it runs, and when it fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from documents import ROOT

# An interpreter whose environments have the jax that was asked for, or what it calls the newest.
PYTHON = """#!/bin/sh
home="$(dirname "$0")/.."
case "$*" in
*"-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python";;
*"-m pip"*)
    case "$*" in
    *jax==*) echo "$*" | sed -E 's/.* jax==([0-9.]+) .*/\\1/';;
    *) echo "$NEWEST";;
    esac > "$home/jax";;
*importlib.metadata*) cat "$home/jax";;
*pytest*) [ "$BREAKS_SUITE" != "$(cat "$home/jax")" ];;
*task=audit*) [ "$BREAKS_AUDIT" != "$(cat "$home/jax")" ];;
esac
"""
OLDEST = "0.10.2"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/supported.sh", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "scripts/supported.sh").chmod(0o755)
    (tmp_path / "bin").mkdir()
    for version in ("3.11", "3.13"):
        python = tmp_path / f"bin/python{version}"
        python.write_text(PYTHON)
        python.chmod(0o755)
    return tmp_path


def supported(checkout: Path, *pythons: str, **env: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [str(checkout / "scripts/supported.sh"), *(str(checkout / "bin" / p) for p in pythons)],
        env={**os.environ, "NEWEST": "0.12.0.1", "BREAKS_SUITE": "", "BREAKS_AUDIT": "", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.stderr, done.stderr
    lines = [line.replace(f"{checkout}/bin/", "") for line in done.stdout.splitlines()]
    return done.returncode, lines[1:]


def test_each_python_runs_the_oldest_and_the_newest_jax(checkout: Path) -> None:
    assert supported(checkout, "python3.11", "python3.12", "python3.13") == (
        0,
        [
            f"python3.11, jax {OLDEST}: suite passed, quick audit passed",
            "python3.11, jax 0.12.0.1: suite passed, quick audit passed",
            "python3.12: not here, or not from 3.11 to 3.13; nothing was run",
            f"python3.13, jax {OLDEST}: suite passed, quick audit passed",
            "python3.13, jax 0.12.0.1: suite passed, quick audit passed",
        ],
    )


def test_one_failure_is_named_and_fails_the_command(checkout: Path) -> None:
    code, lines = supported(checkout, "python3.13", BREAKS_SUITE="0.12.0.1")
    assert (code, lines[1]) == (1, "python3.13, jax 0.12.0.1: suite FAILED, quick audit passed")
    code, lines = supported(checkout, "python3.13", BREAKS_AUDIT=OLDEST)
    assert (code, lines[0]) == (1, f"python3.13, jax {OLDEST}: suite passed, quick audit FAILED")


def test_an_interpreter_behind_a_shim_that_names_none_is_found(checkout: Path) -> None:
    shim, versions = checkout / "bin/python3.13", checkout / "pyenv/versions/3.13.0/bin"
    versions.mkdir(parents=True)
    shim.rename(versions / "python3.13")
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    path = f"{checkout}/bin:{os.environ['PATH']}"
    done = subprocess.run(
        [str(checkout / "scripts/supported.sh"), "python3.13"],
        env={
            **os.environ, "PATH": path, "PYENV_ROOT": str(checkout / "pyenv"), "NEWEST": OLDEST,
            "BREAKS_SUITE": "", "BREAKS_AUDIT": "",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    said = f"python3.13, jax {OLDEST}: suite passed, quick audit passed"
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, [said]), done.stderr


def test_one_jax_for_a_python_runs_once(checkout: Path) -> None:
    assert len(supported(checkout, "python3.11", NEWEST=OLDEST)[1]) == 1


def test_no_usable_python_is_no_success(checkout: Path) -> None:
    assert supported(checkout, "python3.12")[0] == 2
