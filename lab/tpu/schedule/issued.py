"""The most arithmetic that a schedule can have done: its matrix and vector instructions, as run.

A kernel that skips part of its work issues fewer products than the work needs, however fast or slow
it is otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lab.tpu.schedule.bundles import Schedule

_ROWS = {"bf16": 16, "f32": 8}  # of a product's left operand, by dtype: packed rows of one register
_MOST_ROWS = 32  # of 8-bit operands, and of any dtype not met so far
_VECTOR_FLOPS = 2 * 8 * 128  # a register's elements, each in a multiply and an add


def most_flops(schedule: Schedule, runs: Sequence[int], mxu_width: int) -> int:
    """An upper bound of the floating-point operations of an executed schedule.

    Args:
        schedule: its bundles.
        runs: how often each was executed.
        mxu_width: rows and columns of a matrix unit: an instruction multiplies one register of rows
            with so many columns, summing over so many products.
    """
    counts: Counter[str] = Counter()
    for bundle, count in zip(schedule.bundles, runs, strict=True):
        for instruction in bundle.instructions:
            if instruction.opcode.startswith("v"):
                counts[instruction.opcode] += count
    total = 0
    for opcode, count in counts.items():
        if opcode.startswith("vmatmul"):
            rows = [_ROWS[part] for part in opcode.split(".") if part in _ROWS]
            total += count * 2 * (rows[0] if rows else _MOST_ROWS) * mxu_width**2
        else:
            total += count * _VECTOR_FLOPS
    return total
