"""Times of unlike machines do not stand in one table unless asked for, and then each is marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lab.errors import UserError
from lab.records import Result
from lab.report.tables import machine


def unlike(results: Iterable[Result]) -> list[str]:
    """The machines that were timed, if there are several; estimates are of the target."""
    timed = {machine(r) for r in results if r.task == "benchmark" and r.status == "done"}
    return sorted(timed) if len(timed) > 1 else []


def refuse_unlike(results: Sequence[Result]) -> None:
    """Refuse to mix them.

    Raises:
        UserError: names the machines, and the key that allows it.
    """
    if found := unlike(results):
        raise UserError(
            f"report.runs holds times of {len(found)} unlike machines ({'; '.join(found)}); report "
            "them apart, or give report.merge_machines=true to have each row marked"
        )
