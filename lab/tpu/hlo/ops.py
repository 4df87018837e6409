"""The timed ops of a compiled TPU program, and what XLA says of their time.

The TPU compiler leaves in each op's `backend_config` the cycles its cost model expects, and, where
it was told to dump static profiles, those of the final schedule (`bundle_analysis_data`). Loops and
calls are followed, so that an op in a loop body counts as often as it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from lab.tpu.hlo.loops import trip_count
from lab.tpu.hlo.scalars import Words, operand_words
from lab.tpu.hlo.text import Computations, Op, array_bytes, parse

_REDUCTIONS = frozenset({"reduce", "reduce-window"})
_DOTS = frozenset({"dot", "convolution"})
# What only moves, repeats or converts values.
_MOVES = frozenset(
    {
        "bitcast", "bitcast-convert", "broadcast", "concatenate", "constant", "convert", "copy",
        "fusion", "get-tuple-element", "iota", "pad", "parameter", "reshape", "reverse", "slice",
        "transpose", "tuple",
    }
)  # fmt: skip

# What the chip does not do itself would be free in an estimate.
_OFF_THE_CHIP = (
    (re.compile(r'execution_thread="host"'), "part of the program runs on the host"),
    (re.compile(r"\{[\d,]*:[^}\s]*S\(5\)"), "part of the program's arrays lie on the host"),
)


@dataclass(frozen=True)
class Counted:
    """A top-level op and how often it runs, in the order of the program.

    Attributes:
        op: the instruction; of an asynchronous copy both its start and its end.
        count: how often it runs.
        contains: what of interest is fused into it: `dot`, `reduce`.
        moves: whether it computes nothing: a copy, cast, broadcast or transpose.
        hbm_bytes: of its operands and results in HBM; of a copy's end, what the copy moves.
        words: of a Pallas call: operand -> its words in scalar memory, where known.
    """

    op: Op
    count: int
    contains: tuple[str, ...]
    moves: bool = False
    hbm_bytes: int = 0
    words: Words = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """The timed ops of a module, and why that list is incomplete, if it is."""

    ops: tuple[Counted, ...]
    problems: tuple[str, ...]


def read(text: str, scalars: Mapping[str, Sequence[int]] = MappingProxyType({})) -> Program:
    """The ops of a module that take time, with loops unrolled by their known trip counts.

    Args:
        text: the module.
        scalars: argument -> the integers it is declared to hold (see `hlo.scalars`).

    Raises:
        UnrecognisedHloError: no entry computation, or a backend_config that is not JSON.
    """
    computations, entry = parse(text)
    problems = [said for mark, said in _OFF_THE_CHIP if mark.search(text)]
    ops = tuple(_walk(computations, entry, 1, problems, scalars))
    return Program(ops, tuple(problems))


def _walk(
    computations: Computations,
    name: str,
    count: int,
    problems: list[str],
    scalars: Mapping[str, Sequence[int]],
) -> Iterator[Counted]:
    around = {op.name: op for op in computations.get(name, [])}
    for op in around.values():
        if op.is_free:
            continue
        if op.opcode == "while":
            trips = trip_count(computations, computations[name], op)
            if trips is None:
                problems.append(f"loop {op.name} runs a number of times that the program computes")
                continue
            for body in op.calls:
                yield from _walk(computations, body, count * trips, problems, scalars)
        elif op.opcode == "call":
            for body in op.calls:
                yield from _walk(computations, body, count, problems, scalars)
        elif op.opcode == "conditional":
            problems.append(f"branch {op.name} is taken by a value that the program computes")
        else:
            yield Counted(
                op,
                count,
                _contains(computations, op),
                all(inner.opcode in _MOVES for inner in _inner(computations, op)),
                _hbm_bytes(around, op),
                operand_words(around, op, scalars) if op.is_pallas else {},
            )


def _hbm_bytes(around: Mapping[str, Op], op: Op) -> int:
    """Bytes in HBM at both ends of an op; of the end of a copy, of the copy."""
    if op.starts_copy:
        return 0
    operands = [around[name] for name in op.operands if name in around]
    if not op.ends_copy:
        return op.hbm_output_bytes + sum(operand.hbm_output_bytes for operand in operands)
    sources = [around[name] for start in operands for name in start.operands if name in around]
    reads = any(source.hbm_output_bytes for source in sources[:1])
    return array_bytes(op.type) * (reads + bool(op.hbm_output_bytes))


def _contains(computations: Computations, op: Op) -> tuple[str, ...]:
    if op.is_pallas:
        return ()
    found = set()
    for inner in _inner(computations, op):
        if inner.opcode in _DOTS:
            found.add("dot")
        elif inner.opcode in _REDUCTIONS:
            found.add("reduce")
    return tuple(sorted(found))


def _inner(computations: Computations, op: Op) -> Iterator[Op]:
    yield op
    if op.opcode == "fusion":
        for name in op.calls:
            for inner in computations.get(name, []):
                yield from _inner(computations, inner)
