"""Verify a release: independent named checks, none of which stops the next.

Only the folder and the lab's own code are used; nothing in the folder is trusted, followed or run.
Each check recomputes what it speaks of, and says at which place what is wrong. The checks show
that a release is whole and agrees with itself; who made it, they cannot show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from lab.errors import UserError
from lab.records import VerifyCheck
from lab.release.verify import (
    checks_claims,
    checks_files,
    checks_numbers,
    checks_records,
    checks_tables,
    checks_whole,
    folder,
)
from lab.release.verify.folder import Problem
from lab.release.verify.opened import Opened, open_folder

Check = Callable[[Opened], Iterable[Problem]]
CHECKS: dict[str, Check] = {
    **checks_files.CHECKS,
    **checks_records.CHECKS,
    **checks_tables.CHECKS,
    **checks_numbers.CHECKS,
    **checks_claims.CHECKS,
    **checks_whole.CHECKS,
}
# A hostile release may have millions of faults; a report that lists them helps nobody.
MAX_PROBLEMS = 50


def verify(path: Path) -> list[VerifyCheck]:
    """Run every check on the release at `path`.

    Raises:
        UserError: there is no such folder, or nothing in it.
    """
    if not path.is_dir():
        raise UserError(f"verify.path={path}: no such folder; give the folder of a release")
    if not any(path.iterdir()):
        raise UserError(f"verify.path={path}: the folder is empty; give the folder of a release")
    opened = open_folder(folder.read(path))
    return [_run(name, check, opened) for name, check in CHECKS.items()]


def _run(name: str, check: Check, opened: Opened) -> VerifyCheck:
    purpose = (check.__doc__ or "").strip().splitlines()[0].rstrip(".")
    problems: list[str] = []
    count = 0
    try:
        for count, problem in enumerate(check(opened), start=1):  # noqa: B007 - the last count
            if len(problems) < MAX_PROBLEMS:
                problems.append(str(problem))
    except Exception as error:  # noqa: BLE001 - a check that breaks has found something
        count += 1
        problems.insert(0, f"the check broke on this release: {type(error).__name__}: {error}")
    return VerifyCheck(
        name=name, purpose=purpose, passed=count == 0, problems=problems, count=count
    )
