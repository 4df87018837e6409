"""The text of an optimised HLO module of XLA:TPU, as computations of instructions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

PALLAS_TARGET = "tpu_custom_call"

_HEADER = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-<>]+) \(.*\) -> .* \{")
_OP = re.compile(
    r"\s+(?P<root>ROOT )?%(?P<name>[\w.\-<>]+) = (?P<type>\(.*?\)|\S+) (?P<opcode>[a-z][\w\-]*)\("
    r"(?P<operands>[^)]*)\)"
)
_CALLED = re.compile(r"(?:calls|to_apply|body|branch_computations)=\{?((?:%[\w.\-<>]+(?:, )?)+)\}?")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\](?:\{([^}]*)\})?")
_REMARK = re.compile(r"/\*.*?\*/")
_BITS = re.compile(r"(\d+)")

# What takes no time of its own: names and views.
_FREE_OPCODES = frozenset(
    {
        "parameter", "constant", "bitcast", "tuple", "get-tuple-element", "after-all",
        "partition-id", "replica-id", "opt-barrier", "add-dependency", "domain",
        "async-update",
    }
)  # fmt: skip
_FREE_CUSTOM_CALLS = frozenset({"ConcatBitcast", "AllocateBuffer", "Sharding", "SliceToDynamic"})
_CONTROL = frozenset({"while", "call", "conditional", "custom-call"})


@dataclass(frozen=True)
class Op:
    """One instruction of a computation.

    Attributes:
        operands: names of instructions, or the literal of a constant.
        calls: computations it runs or applies, in the order of the text.
        config: its backend_config, or an empty dict.
        type: of its result, with the layout, as in the text.
    """

    name: str
    opcode: str
    type: str
    operands: tuple[str, ...]
    attributes: str
    is_root: bool
    is_scalar: bool
    calls: tuple[str, ...]
    custom_target: str | None
    config: dict[str, Any]

    @property
    def hbm_output_bytes(self) -> int:
        """Bytes of its results that lie in HBM."""
        return array_bytes(self.type, hbm_only=True)

    @property
    def starts_copy(self) -> bool:
        """Whether it starts what runs beside the program until its `...-done`."""
        return self.opcode.endswith("-start")

    @property
    def ends_copy(self) -> bool:
        """Whether it waits for what its first operand has started."""
        return self.opcode.endswith("-done")

    @property
    def is_pallas(self) -> bool:
        """Whether this is a call of a Pallas kernel."""
        return self.custom_target == PALLAS_TARGET

    @property
    def is_free(self) -> bool:
        """Whether it takes no time worth counting on the core; scalars are a few cycles."""
        bookkeeping = self.is_scalar and self.opcode not in _CONTROL and not self.calls
        return (
            bookkeeping or self.opcode in _FREE_OPCODES or self.custom_target in _FREE_CUSTOM_CALLS
        )

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


class UnrecognisedHloError(Exception):
    """The text is not an HLO module as this reader knows it."""


Computations: TypeAlias = dict[str, list[Op]]


def parse(text: str) -> tuple[Computations, str]:
    """The computations of a module by name, and the name of the one it starts with.

    Raises:
        UnrecognisedHloError: no entry computation, or a backend_config that is not JSON.
    """
    computations: Computations = {}
    current: list[Op] | None = None
    entry = None
    for line in text.splitlines():
        if (header := _HEADER.fullmatch(line)) is not None:
            current = computations.setdefault(header["name"], [])
            entry = header["name"] if header["entry"] else entry
        elif current is not None and (match := _OP.match(line)) is not None:
            current.append(_op(match, line))
    if entry is None:
        raise UnrecognisedHloError("the HLO text has no ENTRY computation")
    return computations, entry


def _op(match: re.Match[str], line: str) -> Op:
    called = [c.lstrip("%") for m in _CALLED.findall(line) for c in m.replace(",", " ").split()]
    target = re.search(r'custom_call_target="([^"]*)"', line)
    return Op(
        name=match["name"],
        opcode=match["opcode"],
        type=match["type"],
        operands=tuple(
            o.strip().lstrip("%")
            for o in _REMARK.sub("", match["operands"]).split(",")
            if o.strip()
        ),
        attributes=line[match.end() :].partition("backend_config=")[0],
        is_root=bool(match["root"]),
        is_scalar=re.fullmatch(r"\w+\[\](\{.*\})?", match["type"]) is not None,
        calls=tuple(called),
        custom_target=target[1] if target else None,
        config=_config(line, match["name"]),
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


def array_bytes(shape: str, *, hbm_only: bool = False) -> int:
    """Bytes of the arrays of a type; of those in HBM alone, which no `S(n)` places elsewhere."""
    total = 0
    for element, dimensions, layout in _ARRAY.findall(shape):
        if hbm_only and "S(" in layout:
            continue
        width = _BITS.search(element)
        bits = int(width[1]) if width else 8
        size = 1
        for dimension in dimensions.split(",") if dimensions else ():
            size *= int(dimension)
        total += size * bits // 8
    return total
