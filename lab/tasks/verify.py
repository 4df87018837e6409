"""`task=verify verify.path=DIR`: check a data release, ours or a stranger's copy."""

from __future__ import annotations

from pathlib import Path

from lab.cells.cell import Cell, Outcome
from lab.records import VerifySection
from lab.release.verify.run import verify


def run(cell: Cell, directory: Path) -> Outcome:  # noqa: ARG001 - reads a folder, writes nothing
    """Run every check and keep what each found; the exit code is 1 if any found something."""
    path = cell.config.verify.path
    checks = verify(Path(path))
    passed = all(check.passed for check in checks)
    return Outcome(VerifySection(path=path, passed=passed, checks=checks), evidence=None)
