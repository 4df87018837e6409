"""Fixtures for all tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from command import Lab, run


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Run `python lab/run.py ARGUMENTS` from an empty directory."""

    def call(
        *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run(*arguments, cwd=cwd or tmp_path, env=env)

    return call
