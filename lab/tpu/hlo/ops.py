"""The timed ops of a compiled TPU program, and what XLA says of their time.

The TPU compiler leaves in each op's `backend_config` the cycles its cost model expects, and, where
it was told to dump static profiles, those of the final schedule (`bundle_analysis_data`). Loops and
calls are followed, so that an op in a loop body counts as often as it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lab.tpu.hlo.loops import trip_count
from lab.tpu.hlo.text import Computations, Op, parse

_REDUCTIONS = frozenset({"reduce", "reduce-window"})
_DOTS = frozenset({"dot", "convolution"})


@dataclass(frozen=True)
class Counted:
    """A top-level op and how often it runs; `contains` names what of interest is fused into it."""

    op: Op
    count: int
    contains: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """The timed ops of a module, and why that list is incomplete, if it is."""

    ops: tuple[Counted, ...]
    problems: tuple[str, ...]


def read(text: str) -> Program:
    """The ops of a module that take time, with loops unrolled by their known trip counts.

    Raises:
        UnrecognisedHloError: no entry computation, or a backend_config that is not JSON.
    """
    computations, entry = parse(text)
    problems: list[str] = []
    ops = tuple(_walk(computations, entry, 1, problems))
    return Program(ops, tuple(problems))


def _walk(
    computations: Computations, name: str, count: int, problems: list[str]
) -> Iterator[Counted]:
    for op in computations.get(name, []):
        if op.is_free:
            continue
        if op.opcode == "while":
            trips = trip_count(computations, computations[name], op)
            if trips is None:
                problems.append(f"loop {op.name} runs a number of times that the program computes")
                continue
            for body in op.calls:
                yield from _walk(computations, body, count * trips, problems)
        elif op.opcode == "call":
            for body in op.calls:
                yield from _walk(computations, body, count, problems)
        elif op.opcode == "conditional":
            problems.append(f"branch {op.name} is taken by a value that the program computes")
        else:
            yield Counted(op, count, _contains(computations, op))


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
