"""The scorecard a person reads: points per risk, the worst error, the fault, what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lab.candidates.custom import name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from lab.records import RubricSection

COLOUR = {"accepted": "green", "accepted_lower_tier": "yellow", "rejected": "red"}
BAR = 20  # characters


def title(cell_id: str, candidate: Mapping[str, Any]) -> str:
    """What was graded: a stranger's file and function, else the cell."""
    if candidate["kind"] == "custom":
        return name_of(candidate["path"], candidate["function"])
    return cell_id


def render(section: RubricSection, title: str, *, declared: bool = True) -> RenderableType:
    """One panel: verdict, table of risks, worst error, class, advice.

    `declared`: whether somebody said which verdict is expected.
    """
    colour = COLOUR[section.verdict]
    share = section.score / section.max_score if section.max_score else 0.0
    filled = round(BAR * share)
    head = Text.assemble(
        (section.verdict.replace("_", " ").upper(), f"bold {colour}"),
        f"   {section.score:g} / {section.max_score:g}  ",
        ("█" * filled, colour),
        ("░" * (BAR - filled), "dim"),
        f"   tier {section.tier}" if section.tier else "",
    )
    if refused := section.details.get("unsupported_cases"):
        head.append(f"   {len(refused)} of {section.details['cases']} cases refused", "yellow")
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for column in ("", "risk", "points", "what happened"):
        table.add_column(column, justify="right" if column == "points" else "left")
    idle = [item for item in section.items if not item.covered]
    listed = section.items
    if len(idle) > len(section.items) / 2:  # what did not run at all has no story per risk
        listed = [item for item in section.items if item not in idle]
    for item in listed:
        mark = Text("✓", "green") if item.passed else Text("✗", "bold red")
        if not item.points:
            mark = Text("-", "dim")
        note = item.note or ""
        style = "dim" if item.passed else ""
        points = f"{item.earned:g}/{item.points:g}"
        table.add_row(mark, Text(item.id), points, Text(note, style))
    if len(listed) < len(section.items):
        points = f"0/{sum(item.points for item in idle):g}"
        table.add_row("", Text(f"{len(idle)} more"), points, Text("nothing came to grade", "dim"))
    return Panel(
        Group(head, Text(), table, *_foot(section, declared)), title=title, border_style=colour
    )


def _foot(section: RubricSection, declared: bool) -> list[Text]:
    lines = []
    worst = section.worst
    if worst is not None and worst.batch is not None:
        size = "not finite, or a relation broken" if worst.units is None else f"{worst.units:.3g}"
        where = f"batch {worst.batch}, head {worst.head}, row {worst.row}"
        if worst.case:
            where = f"{worst.case}: {worst.output or 'the answer'}, {where}"
        lines.append(Text(f"worst error, in units of its bound: {size}  ({where})"))
    if section.fault_class:
        guess = section.details.get("guess")
        basis = "  (a guess: no model and no pattern of a fault supports it)" if guess else ""
        lines.append(Text.assemble("fault class: ", (section.fault_class, "bold"), basis))
    if also := section.details.get("also"):
        lines.append(Text.assemble("and, plainly: ", (", ".join(also), "bold")))
    if section.advice:
        lines.append(Text.assemble("advice: ", (section.advice, "italic")))
    if command := section.details.get("reproduce"):
        lines.append(Text.assemble("that case alone: ", (command, "cyan")))
    if declared and section.verdict != section.expected:
        lines.append(Text(f"expected verdict: {section.expected}", "bold red"))
    return [Text(), *lines] if lines else []


def audit_lines(summary: dict[str, Any]) -> list[str]:
    """The headline figures of an audit, a line each."""

    def share(name: str) -> str:
        found = summary[name]
        if found["rate"] is None:
            return "nothing to measure"
        low, high = found["low"], found["high"]
        return f"{found['hits']} of {found['n']} ({found['rate']:.1%}, 95% {low:.1%} to {high:.1%})"

    bound = summary["false_rejects"]["bound_3_over_n"]
    return [
        f"known-bad killed, by suite   {share('suite_kills')}",
        f"known-bad killed, by trial   {share('trial_kills')}",
        f"controls rejected, by trial  {share('false_rejects')}, 3/n = {bound or 0:.2%}",
        f"named with the right class   {share('right_class')}",
        f"caught by the check meant    {share('caught_by_its_check')}",
        f"low precision, right verdict {share('right_tier')}",
        f"verdicts flipped             {summary['flips']}",
        f"equivalent pairs left out    {summary['equivalent_pairs']}",
    ]


def show(section: RubricSection, title: str, console: Console, *, declared: bool = True) -> None:
    """Print the scorecard."""
    console.print(render(section, title, declared=declared))


def write(section: RubricSection, title: str, path: Path, *, declared: bool = True) -> None:
    """Write the scorecard as plain text."""
    with path.open("w", encoding="utf-8") as file:
        show(section, title, Console(file=file, width=110, no_color=True), declared=declared)
