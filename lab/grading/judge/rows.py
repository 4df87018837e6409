"""Two results compared row by row, with no tolerance; a finding names the first broken row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lab.grading.findings import Finding

if TYPE_CHECKING:
    from lab.truth.problems import Array


def same(
    check: str,
    gate: str,
    case: str,
    output: str,
    base: Array | None,
    got: Array | None,
    rows: Array | None = None,
) -> Finding:
    """These rows (all, if none are named) hold the same bits; two NaN are no difference."""
    if base is None or got is None:
        return Finding(check, gate, case, output, passed=True, units=0.0, note="not returned")
    base, got = base.astype(np.float64), got.astype(np.float64)
    broken = ((base != got) & ~(np.isnan(base) & np.isnan(got))).any(-1)
    return finding(check, gate, case, output, as_units(broken, rows))


def zero(check: str, gate: str, case: str, output: str, got: Array | None, rows: Array) -> Finding:
    """These rows are exactly 0."""
    if got is None:
        return Finding(check, gate, case, output, passed=True, units=0.0, note="not returned")
    return finding(check, gate, case, output, as_units((got != 0).any(-1), rows))


def moved(
    check: str, gate: str, case: str, base: Array | None, got: Array | None, rows: Array
) -> Finding:
    """Each of these rows of `out` differs in some bit."""
    assert base is not None
    assert got is not None
    return finding(check, gate, case, "out", as_units((base == got).all(-1), rows))


def as_units(broken: Array, rows: Array | None) -> Array:
    """Units `[B, H, rows]` of a comparison without a tolerance: inf where it is broken."""
    return np.where(broken if rows is None else broken & rows, np.inf, 0.0)


def finding(check: str, gate: str, case: str, output: str, units: Array) -> Finding:
    """The finding of units `[B, H, rows]`: its place is that of the worst row."""
    batch, head, row = (int(i) for i in np.unravel_index(int(units.argmax()), units.shape))
    worst = float(units.max())
    if worst == 0:
        return Finding(check, gate, case, output, passed=True, units=0.0)
    return Finding(check, gate, case, output, worst <= 1, worst, batch, head, row)
