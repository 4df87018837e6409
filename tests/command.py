"""The advertised command as a subprocess; tests get it as the fixture `lab`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parent.parent


class Lab(Protocol):
    """`lab(*arguments)` runs `python lab/run.py` from an empty directory."""

    def __call__(
        self, *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]: ...


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "lab/run.py"), *arguments]


def run(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
