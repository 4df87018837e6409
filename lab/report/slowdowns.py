"""The slowdowns of a sweep as a table for the terminal, at most 100 columns wide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.table import Table

from lab.report.comparisons import (
    BASELINE,
    CLAIMS,
    Comparison,
    kernel_options,
    label,
    reading_order,
)

MOST_ROWS = 40
_NAMED_IF_VARIED = ("direction", "dtype", "shape")


def table(found: Sequence[Comparison]) -> Table:
    """A row a comparison: kernel, case, both times, slowdown, its interval.

    The level of evidence stands in the title, and in each row where there are several.
    """
    cells = [comparison.kernel.cell for comparison in found]
    varied = [key for key in _NAMED_IF_VARIED if len({getattr(c, key) for c in cells}) > 1]
    kernels = {(label(one.kernel), kernel_options(one.kernel)) for one in found}
    several = Counter(name for name, _ in kernels)
    levels = sorted({comparison.evidence for comparison in found})
    title = "\n".join(
        [f"Slowdown against {BASELINE} (above 1: slower)", *(CLAIMS.get(x, x) for x in levels)]
    )
    made = Table(title=title, box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    made.add_column("kernel")
    made.add_column("case", min_width=len("attention 2048"))
    for heading in (f"{BASELINE} ms", "kernel ms", "slowdown", "95% interval"):
        made.add_column(heading, justify="right", no_wrap=True)
    if len(levels) > 1:
        made.add_column("evidence", no_wrap=True)
    for comparison in sorted(found, key=lambda one: reading_order(one.kernel))[:MOST_ROWS]:
        cell, span = comparison.kernel.cell, comparison.interval
        length = f"{cell.seq}" if cell.q_len == cell.seq else f"{cell.q_len} x {cell.seq}"
        case = " ".join([cell.scope, length, *(str(getattr(cell, key)) for key in varied)])
        name = label(comparison.kernel)
        options = kernel_options(comparison.kernel) if several[name] > 1 else ""
        row = (
            f"{name} {options}".strip(),
            case,
            f"{comparison.baseline_ms:.4g}",
            f"{comparison.kernel_ms:.4g}",
            f"{comparison.slowdown:.3g}x",
            "none" if span is None else f"{span.lo:.3g} to {span.hi:.3g}",
        )
        made.add_row(*row, *([comparison.evidence] if len(levels) > 1 else []))
    if len(found) > MOST_ROWS:
        made.caption = f"and {len(found) - MOST_ROWS} more in comparisons.csv"
    return made
