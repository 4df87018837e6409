"""What a check found, and which results an implementation returned."""

from __future__ import annotations

from dataclasses import dataclass

OUTPUTS = ("out", "dq", "dk", "dv")
GRADIENT_CHECK = {"dq": "grad_q", "dk": "grad_k", "dv": "grad_v"}


@dataclass(frozen=True)
class Finding:
    """One comparison's result.

    Attributes:
        check: the check id it is filed under (`checks.CHECKS`).
        gate: what compared: `element` (A), `row` (B), or a relation's name.
        case: name of the case.
        output: `out`, `dq`, `dk`, `dv`, or "" where the finding is about none in particular.
        passed: whether it held.
        units: the worst error in units of its bound (1 is the limit); inf for NaN or a broken
            relation; 0 where a relation held.
        batch, head, row: where the worst one is; None where no place applies. The row is a query
            (out, dq) or a key (dk, dv); the head a query head or a key/value head.
        note: one line for people.
    """

    check: str
    gate: str
    case: str
    output: str
    passed: bool
    units: float
    batch: int | None = None
    head: int | None = None
    row: int | None = None
    note: str = ""
