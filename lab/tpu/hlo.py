"""Read the optimised HLO of a TPU program: its top-level ops and what XLA says of their time.

The TPU compiler leaves in each op's `backend_config` the cycles its cost model expects, and, where
it was told to dump static profiles, those of the final schedule (`bundle_analysis_data`). Loops,
calls and branches are followed, so that an op in a loop body counts as often as it runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PALLAS_TARGET = "tpu_custom_call"

_HEADER = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-<>]+) \(.*\) -> .* \{")
_OP = re.compile(
    r"\s+(?:ROOT )?%(?P<name>[\w.\-<>]+) = (?P<type>\(.*?\)|\S+) (?P<opcode>[a-z][\w\-]*)\("
)
_CALLED = re.compile(r"(?:calls|to_apply|body|branch_computations)=\{?((?:%[\w.\-<>]+(?:, )?)+)\}?")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\](?:\{([^}]*)\})?")
_BITS = re.compile(r"(\d+)")

# What takes no time of its own: names, views, and copies that run beside the program. The time of a
# copy that the program must wait for is not in any estimate by cost model.
_FREE_OPCODES = frozenset(
    {
        "parameter", "constant", "bitcast", "tuple", "get-tuple-element", "after-all",
        "partition-id", "replica-id", "opt-barrier", "add-dependency", "domain",
        "copy-start", "copy-done", "slice-start", "slice-done", "dynamic-slice-start",
        "dynamic-slice-done", "async-start", "async-update", "async-done",
    }
)  # fmt: skip
_FREE_CUSTOM_CALLS = frozenset({"ConcatBitcast", "AllocateBuffer", "Sharding", "SliceToDynamic"})
_REDUCTIONS = frozenset({"reduce", "reduce-window"})
_DOTS = frozenset({"dot", "convolution"})


@dataclass(frozen=True)
class Op:
    """One instruction of a computation.

    Attributes:
        calls: computations it runs or applies, in the order of the text.
        config: its backend_config, or an empty dict.
        hbm_output_bytes: bytes of its results that lie in HBM.
    """

    name: str
    opcode: str
    calls: tuple[str, ...]
    custom_target: str | None
    config: dict[str, Any]
    hbm_output_bytes: int

    @property
    def is_pallas(self) -> bool:
        """Whether this is a call of a Pallas kernel."""
        return self.custom_target == PALLAS_TARGET

    @property
    def is_free(self) -> bool:
        """Whether it takes no time on the core."""
        return self.opcode in _FREE_OPCODES or self.custom_target in _FREE_CUSTOM_CALLS

    @property
    def cost_model_cycles(self) -> int | None:
        """XLA's own expectation; None where it states none (Pallas calls never have one)."""
        stated = self.config.get("window_config", {}).get("estimated_cycles")
        return int(stated) if stated is not None and int(stated) > 0 else None

    @property
    def static_profile_cycles(self) -> int | None:
        """Cycles of the final schedule by the compiler's own count, 0 where it could not count."""
        stated = self.config.get("bundle_analysis_data", {}).get("estimated_cycles")
        return int(stated) if stated is not None else None

    @property
    def scoped_vmem_bytes(self) -> int:
        """VMEM that this op takes while it runs."""
        used = self.config.get("used_scoped_memory_configs", [])
        return sum(int(u["size"]) for u in used if u.get("memory_space") == "1")


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


class UnrecognisedHloError(Exception):
    """The text is not an HLO module as this reader knows it."""


def read(text: str) -> Program:
    """The ops of a module that take time, with loops unrolled by their known trip counts.

    Raises:
        UnrecognisedHloError: no entry computation, or a backend_config that is not JSON.
    """
    computations, entry = _computations(text)
    if entry is None:
        raise UnrecognisedHloError("the HLO text has no ENTRY computation")
    problems: list[str] = []
    ops = tuple(_walk(computations, entry, 1, problems))
    return Program(ops, tuple(problems))


def _computations(text: str) -> tuple[dict[str, list[Op]], str | None]:
    computations: dict[str, list[Op]] = {}
    current: list[Op] | None = None
    entry = None
    for line in text.splitlines():
        if (header := _HEADER.fullmatch(line)) is not None:
            current = computations.setdefault(header["name"], [])
            entry = header["name"] if header["entry"] else entry
        elif current is not None and (match := _OP.match(line)) is not None:
            current.append(_op(match, line))
    return computations, entry


def _op(match: re.Match[str], line: str) -> Op:
    called = [c.strip().lstrip("%") for m in _CALLED.findall(line) for c in m.split(",")]
    target = re.search(r'custom_call_target="([^"]*)"', line)
    return Op(
        name=match["name"],
        opcode=match["opcode"],
        calls=tuple(called),
        custom_target=target[1] if target else None,
        config=_config(line, match["name"]),
        hbm_output_bytes=_hbm_bytes(match["type"]),
    )


def _config(line: str, name: str) -> dict[str, Any]:
    _, found, rest = line.partition("backend_config=")
    if not found or not rest.startswith("{"):
        return {}
    try:
        config, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        raise UnrecognisedHloError(f"the backend_config of {name} is not JSON") from None
    return dict(config)


def _hbm_bytes(shape: str) -> int:
    """Bytes of the arrays of a type that no `S(n)` places in another memory than HBM."""
    total = 0
    for element, dimensions, layout in _ARRAY.findall(shape):
        if "S(" in layout:
            continue
        width = _BITS.search(element)
        bits = int(width[1]) if width else 8
        size = 1
        for dimension in dimensions.split(",") if dimensions else ():
            size *= int(dimension)
        total += size * bits // 8
    return total


def _walk(
    computations: dict[str, list[Op]], name: str, count: int, problems: list[str]
) -> Iterator[Counted]:
    for op in computations.get(name, []):
        if op.is_free:
            continue
        if op.opcode == "while":
            trips = op.config.get("known_trip_count", {}).get("n")
            if trips is None:
                problems.append(f"loop {op.name} runs a number of times that the program computes")
                continue
            for body in op.calls:
                yield from _walk(computations, body, count * int(trips), problems)
        elif op.opcode == "call":
            for body in op.calls:
                yield from _walk(computations, body, count, problems)
        elif op.opcode == "conditional":
            problems.append(f"branch {op.name} is taken by a value that the program computes")
        else:
            yield Counted(op, count, _contains(computations, op))


def _contains(computations: dict[str, list[Op]], op: Op) -> tuple[str, ...]:
    if op.is_pallas:
        return ()
    found = set()
    for inner in _inner(computations, op):
        if inner.opcode in _DOTS:
            found.add("dot")
        elif inner.opcode in _REDUCTIONS:
            found.add("reduce")
    return tuple(sorted(found))


def _inner(computations: dict[str, list[Op]], op: Op) -> Iterator[Op]:
    yield op
    if op.opcode == "fusion":
        for name in op.calls:
            for inner in computations.get(name, []):
                yield from _inner(computations, inner)
