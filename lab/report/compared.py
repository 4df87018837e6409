"""compare.csv and compare.md: cells before and after, for programs and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from lab.records import ComparedCell


def table(cells: Sequence[ComparedCell]) -> str:
    """A row a case; lists are joined by spaces."""
    rows = [{**one.model_dump(), "differs": " ".join(one.differs)} for one in cells]
    frame = pd.DataFrame(rows, columns=list(ComparedCell.model_fields))
    return str(frame.to_csv(index=False, lineterminator="\n"))


def counts(cells: Sequence[ComparedCell]) -> str:
    """How many of each verdict."""
    found = Counter(one.verdict for one in cells)
    return ", ".join(f"{number} {name}" for name, number in sorted(found.items()))


def ratio(one: ComparedCell) -> str:
    """The ratio after / before with its interval, or nothing."""
    if one.ratio is None:
        return ""
    known = one.ratio_lo is not None and one.ratio_lo != one.ratio_hi
    interval = f" ({one.ratio_lo:.3f} to {one.ratio_hi:.3f})" if known else ""
    return f"{one.ratio:.3f}{interval}"


def ms(value: float | None) -> str:
    """Milliseconds in four digits."""
    return "" if value is None else f"{value:.4g}"


def mib(value: int | None) -> str:
    """Bytes in MiB."""
    return "" if value is None else f"{value / 2**20:.1f}"


_READING = """\
after / before is above 1 where it became slower. The columns before and after of compare.csv name
the records, which hold the raw samples."""
_HEADS = (
    "case", "verdict", "before ms", "after ms", "after / before", "margin", "before MiB",
    "after MiB", "evidence", "differs", "note",
)  # fmt: skip


def _rule(head: str) -> str:
    """Numbers to the right."""
    return "---:" if head.rsplit(maxsplit=1)[-1] in ("ms", "before", "margin", "MiB") else "---"


def page(cells: Sequence[ComparedCell], before: str, after: str) -> str:
    """The same as Markdown."""
    lines = [
        f"# {before} and {after}",
        "",
        f"{len(cells)} cases: {counts(cells)}.",
        "",
        _READING,
        "",
    ]
    lines += [f"| {' | '.join(_HEADS)} |", f"|{'|'.join(map(_rule, _HEADS))}|"]
    for one in cells:
        mark = " **(regression)**" if one.regression else ""
        fields = [
            one.case,
            one.verdict + mark,
            ms(one.before_ms),
            ms(one.after_ms),
            ratio(one),
            "" if one.margin is None else f"{one.margin:.3f}",
            mib(one.before_peak_bytes),
            mib(one.after_peak_bytes),
            one.evidence or "",
            " ".join(one.differs),
            one.note or "",
        ]
        lines.append(f"| {' | '.join(text.replace('|', '/') for text in fields)} |")
    return "\n".join(lines) + "\n"
