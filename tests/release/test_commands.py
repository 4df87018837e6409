"""The commands as a person gives them, and that none of them needs jax."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import factory
from commands import Lab

from lab.worker import PACKAGE_ROOT

Runs = Callable[[list[dict[str, Any]]], Path]


def test_release_then_verify_then_tamper(lab: Lab, runs: Runs, tmp_path: Path) -> None:
    built = lab("task=release", "release=local-cpu", f"release.runs=[{runs(factory.local_cpu())}]")
    assert built.returncode == 0, built.stderr
    assert lab("task=verify").returncode == 0
    table = tmp_path / "dataset" / "benchmarks.jsonl"
    table.write_text(table.read_text().replace('"samples": 20', '"samples": 21', 1))
    spoiled = lab("task=verify", "verify.path=dataset")
    assert spoiled.returncode == 1
    assert "samples 21, recomputed 20" in spoiled.stdout
    assert "Traceback" not in spoiled.stdout + spoiled.stderr


def test_a_refusal_exits_1_with_every_reason(lab: Lab, runs: Runs, tmp_path: Path) -> None:
    refused = lab(
        "task=release", "release=local-cpu", f"release.runs=[{runs(factory.local_cpu()[5:])}]"
    )
    assert refused.returncode == 1
    assert refused.stdout.count("no record") == 5
    assert not (tmp_path / "dataset").exists()


def test_usage_errors_exit_2_in_one_line(lab: Lab) -> None:
    for arguments, words in (
        (["task=release"], "release=NAME"),
        (["task=release", "release=local-cpu", "release.runs=[nowhere]"], "neither a directory"),
        (["task=verify", "verify.path=nowhere"], "no such folder"),
        (["task=campaign"], "campaign=NAME"),
    ):
        answer = lab(*arguments)
        assert answer.returncode == 2, arguments
        assert words in answer.stderr
        assert "Traceback" not in answer.stderr


def test_no_jax_is_imported() -> None:
    code = (
        "import sys, lab.tasks.release, lab.tasks.verify, lab.tasks.doctor, lab.tasks.campaign;"
        "sys.exit('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE_ROOT, check=False)
    assert done.returncode == 0
