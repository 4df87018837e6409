"""What the record keeps of a sandboxed run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.grading.sandbox.inside.claims import Program


@dataclass
class Report:
    """What the record keeps of a sandboxed run; `to_json` gives plain values.

    Attributes:
        rejection: why the candidate is rejected whatever its answers are worth, or None.
        namespaces: whether the children had Linux namespaces of their own.
        execution: by signature, `isolated` (the program ran without the stranger's Python) or
            `in place` (only its own process could run it).
        programs: sha256 of each program, by signature.
        forward_dots: the matrix products of the forward, over all signatures: inside of which
            kernel, operand dtypes, result dtype, how many.
        backward_dots: the same for the programs with gradients (the forward's included).
        in_place_calls: calls of the function itself that were compared with its program.
        peak_bytes: the largest resident memory of a child.
        log_tail: the end of what the candidate printed.
        notes: anything else worth a line.
    """

    rejection: str | None = None
    namespaces: bool = False
    execution: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    forward_dots: list[dict[str, Any]] = field(default_factory=list)
    backward_dots: list[dict[str, Any]] = field(default_factory=list)
    in_place_calls: int = 0
    peak_bytes: int = 0
    log_tail: str = ""
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def add(self, forward: Program, with_gradients: Program | None) -> None:
        """Note the matrix products of one signature's programs."""
        _add_new(self.forward_dots, forward)
        if with_gradients is not None:
            _add_new(self.backward_dots, with_gradients)


def _add_new(listed: list[dict[str, Any]], program: Program) -> None:
    new = (asdict(dot) for dot in program.dots)
    listed += [dot for dot in new if dot not in listed]
