"""`task=verify verify.path=DIR`: check a data release, ours or a stranger's copy."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.cells import Cell, Outcome
from lab.release.verify import Checked, verify

SHOWN = 8  # problems printed per check; the record holds more


def run(cell: Cell, directory: Path) -> Outcome:  # noqa: ARG001 - reads a folder, writes nothing
    """Run every check, print what each found, and keep it in the record."""
    path = cell.config.verify.path
    checks = verify(Path(path))
    _show(checks, Console())
    section = {
        "path": path,
        "passed": all(check.passed for check in checks),
        "checks": [
            {
                "name": check.name,
                "purpose": check.purpose,
                "passed": check.passed,
                "problems": list(check.problems),
                "count": check.count,
            }
            for check in checks
        ],
    }
    return Outcome(section=section, evidence=None)


def _show(checks: list[Checked], console: Console) -> None:
    table = Table("check", "", "what it makes sure of")
    for check in checks:
        mark = "[green]pass[/]" if check.passed else f"[bold red]FAIL ({check.count})[/]"
        table.add_row(check.name, mark, check.purpose)
    console.print(table)
    for check in checks:
        for problem in check.problems[:SHOWN]:
            console.print(f"[red]{check.name}[/]: {escape(problem)}", highlight=False)
        if check.count > SHOWN:
            console.print(f"[red]{check.name}[/]: and {check.count - SHOWN} more", highlight=False)
