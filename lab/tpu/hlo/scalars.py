"""What a Pallas call finds in scalar memory: literals of the program, and declared arguments.

A kernel whose grid or blocks hang on prefetched scalars (which blocks a sparse mask leaves, how
long a ragged row is) can be executed only with their values. Where the compiler's HLO holds them as
a literal, that is what runs on the chip. Where they are an argument, someone must declare them, and
whoever does so says what the estimate is of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias

from lab.tpu.hlo.text import Op

Words: TypeAlias = dict[int, dict[int, int]]
"""Operand -> distance from its start in scalar memory -> 32-bit word."""

_VIEWS = frozenset({"bitcast", "copy", "copy-start", "copy-done", "reshape"})
_TYPE = re.compile(
    r"(?P<element>[su](?P<bits>8|16|32)|pred)\[(?P<shape>[\d,]*)\]"
    r"(?:\{[\d,]*(?::T\((?P<tile>[\d,]+)\)(?:\((?P<packed>\d+),1\))?)?[^}]*\})?"
)
_LANES = 128


def operand_words(
    around: Mapping[str, Op], call: Op, declared: Mapping[str, Sequence[int]]
) -> Words:
    """The words of those operands of a call that are literals or declared arguments.

    Args:
        around: the computation that the call stands in, by name.
        call: a Pallas call.
        declared: argument, by name, -> its integers in row-major order.
    """
    found: Words = {}
    for index, name in enumerate(call.operands):
        operand = around.get(name)
        values = _values(around, name, declared)
        if operand is not None and values is not None:
            words = _words(operand.type, values)
            if words is not None:
                found[index] = words
    return found


def _values(
    around: Mapping[str, Op], name: str, declared: Mapping[str, Sequence[int]]
) -> list[int] | None:
    op = around.get(name)
    while op is not None and op.opcode in _VIEWS and op.operands:
        op = around.get(op.operands[0])
    if op is None:
        return None
    if op.opcode == "parameter":  # XLA calls it after the argument, with a number behind
        given = declared.get(re.sub(r"\.\d+$", "", op.name))
        return None if given is None else list(given)
    if op.opcode != "constant" or "..." in ",".join(op.operands):
        return None
    text = ",".join(op.operands).replace("true", "1").replace("false", "0")
    return [int(number) for number in re.findall(r"-?\d+", text)]


def _words(type_: str, values: list[int]) -> dict[int, int] | None:
    """Where the elements of an array stand in scalar memory, by its tiling; None: another one.

    A tile of rows of 128 elements narrower than a word packs 32 / bits rows into one row of words.
    """
    match = _TYPE.match(type_)
    if match is None:
        return None
    bits = int(match["bits"] or 8)
    shape = [int(size) for size in match["shape"].split(",") if size] or [1]
    tile = [int(size) for size in (match["tile"] or str(_LANES)).split(",")]
    packed = 32 // bits
    if prod(shape) != len(values) or int(match["packed"] or 1) != packed:
        return None
    if len(tile) == 1:
        if packed != 1:
            return None
        return dict(enumerate(values)) if len(shape) == 1 else None
    rows, columns = shape[-2] if len(shape) > 1 else 1, shape[-1]
    if tile[1] != _LANES:
        return None
    across, down = -(-columns // _LANES), -(-rows // tile[0])
    words: dict[int, int] = {}
    for index, value in enumerate(values):
        block, inside = divmod(index, rows * columns)
        row, column = divmod(inside, columns)
        tiles = (block * down + row // tile[0]) * across + column // _LANES
        place = (tiles * (tile[0] // packed) + row % tile[0] // packed) * _LANES + column % _LANES
        shift = row % packed * bits
        words[place] = words.get(place, 0) | (value & (1 << bits) - 1) << shift
    return {place: word - (word >> 31 << 32) for place, word in words.items()}
