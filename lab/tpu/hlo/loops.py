"""How often a loop of an HLO module runs, where that is a matter of constants."""

from __future__ import annotations

import re

from lab.tpu.hlo.text import Computations, Op


def trip_count(computations: Computations, around: list[Op], loop: Op) -> int | None:
    """How often a `for i in range(constants)` runs its body; None for any other loop.

    Args:
        computations: of the module.
        around: the computation that the loop stands in.
        loop: its `while` instruction.
    """
    condition = re.search(r"condition=%([\w.\-<>]+)", loop.attributes)
    if condition is None or len(loop.calls) != 1:
        return None
    test, body = _Named(computations[condition[1]]), _Named(computations[loop.calls[0]])
    compare = test.root
    if compare is None or compare.opcode != "compare" or "direction=LT" not in compare.attributes:
        return None
    counter = test.element(compare.operands[0])
    step = body.root and counter is not None and body.by_name.get(body.root.operands[counter])
    carried = _Named(around).by_name.get(loop.operands[0])
    if not step or step.opcode != "add" or counter is None or carried is None:
        return None
    start = _Named(around).constant(carried.operands[counter])
    stop = test.constant(compare.operands[1])
    increments = [body.constant(o) for o in step.operands if body.element(o) != counter]
    if start is None or stop is None or len(increments) != 1 or not increments[0]:
        return None
    return max(0, -((start - stop) // increments[0]))


class _Named:
    """A computation's ops by name, with the two questions that a loop's counter needs."""

    def __init__(self, ops: list[Op]) -> None:
        self.by_name = {op.name: op for op in ops}
        self.root = next((op for op in ops if op.is_root), None)

    def element(self, name: str) -> int | None:
        """Which element of the loop's tuple a value is."""
        op = self.by_name.get(name)
        found = op and re.search(r"index=(\d+)", op.attributes)
        return int(found[1]) if op and found and op.opcode == "get-tuple-element" else None

    def constant(self, name: str) -> int | None:
        """The integer that a value is, through copies."""
        op = self.by_name.get(name)
        while op is not None and op.opcode == "copy":
            op = self.by_name.get(op.operands[0])
        if op is None or op.opcode != "constant":
            return None
        literal = op.operands[0] if op.operands else ""
        return int(literal) if re.fullmatch(r"-?\d+", literal) else None
