"""Fixtures for all tests."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from commands import Lab, run
from hypothesis import HealthCheck, settings

# The same examples in every run, and no verdict that depends on how busy the machine is.
settings.register_profile(
    "lab", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("lab")


def pytest_configure() -> None:
    """A shell that starts us in the background ignores Ctrl-C, and every child would inherit it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Run `python lab/run.py ARGUMENTS` from an empty directory."""

    def call(
        *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run(*arguments, cwd=cwd or tmp_path, env=env)

    return call
