"""The table of tuned sizes: by device and shape class, each with the record that earned it.

The winners of the searches of `task=tune`. The values of each were proved for the very program that
was estimated; an entry of anything else can't be made (`Earned`). No jax here: the task that writes
the table, and tests of it, read it without.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, TypeAdapter

from lab.kernels.sizes import LANES, round_up

TABLE = Path(__file__).parent / "flash" / "tuned.json"
MAX_QUERIES = 16
"""Up to so many queries the decoding kernel runs."""

MOST_PADDING = 1 / 8
"""An entry is left where its blocks would add more than this share to the queries."""

Direction: TypeAlias = Literal["forward", "backward", "decode"]
Shape: TypeAlias = tuple[int, ...]

OPTIONS: dict[Direction, dict[str, str]] = {
    "forward": {"block_q": "block_q", "block_k": "block_k", "lookahead": "lookahead"},
    "backward": {
        "block_q": "backward_block_q",
        "block_k": "backward_block_k",
        "heads": "backward_heads",
    },
    "decode": {"block_k": "block_k"},
}
"""The sizes of a direction, and what `kernel=flash` calls them."""

_SOURCES: dict[Direction, tuple[str, ...]] = {
    "forward": ("arithmetic.py", "plan.py", "forward.py", "forward_step.py"),
    "backward": ("arithmetic.py", "backward.py", "backward_plan.py", "backward_step.py"),
    "decode": ("arithmetic.py", "decode.py"),
}


class Earned(BaseModel):
    """The record that earned an entry.

    Attributes:
        cell_id: its cell.
        record: sha256 of its result.json, which is kept in evidence/tuning.
        estimated_ms: of the whole cell; None where the target's clock is not public.
        estimated_cycles: the same, in cycles.
        values_proved: an entry is of proved values, or there is none.
        fingerprint: of the lowered program that was estimated and proved.
        code_sha256: of the lab that made the record.
        kernel_sha256: of the kernel's own files then (`sources`).
        libtpu: the compiler's version.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cell_id: str
    record: str
    estimated_ms: float | None
    estimated_cycles: int
    values_proved: Literal[True]
    fingerprint: str
    code_sha256: str
    kernel_sha256: str
    libtpu: str


class ShapeClass(BaseModel):
    """Shapes that share an entry.

    Attributes:
        q_len: T up to this power of two, and above half of it; so is kv_len S. Decoding takes all
            T that its kernel does: q_len is 1.
        head_dim: in whole lanes, a multiple of 128.
        group: query heads of a key head.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    direction: Direction
    dtype: str
    causal: bool
    q_len: int
    kv_len: int
    head_dim: int
    group: int


class Entry(ShapeClass):
    """A shape class on a device, and the sizes that won it, by the names of `kernel=flash`."""

    target: str
    device_kind: str
    options: dict[str, int]
    earned: Earned

    @property
    def key(self) -> tuple[object, ...]:
        """What it is the one entry of: the class and the device."""
        fields = ShapeClass.model_fields
        return (self.device_kind, *(getattr(self, name) for name in fields))

    @property
    def sizes(self) -> dict[str, int]:
        """The options by the names that the kernels' blocks have."""
        return {size: self.options[name] for size, name in OPTIONS[self.direction].items()}


def shape_class(
    direction: Direction, q_shape: Shape, k_shape: Shape, dtype: str, *, causal: bool
) -> ShapeClass:
    """The class of q [B, Hq, T, D] and k [B, Hkv, S, D]; decoding sees no causality in one row."""
    decoding = direction == "decode"
    return ShapeClass(
        direction=direction,
        dtype=dtype,
        causal=causal and not decoding,
        q_len=1 if decoding else _power_of_two(q_shape[2]),
        kv_len=_power_of_two(k_shape[2]),
        head_dim=round_up(q_shape[3], LANES),
        group=q_shape[1] // k_shape[1],
    )


@functools.cache
def table(path: Path = TABLE) -> tuple[Entry, ...]:
    """All entries."""
    return TypeAdapter(tuple[Entry, ...]).validate_json(path.read_bytes())


def text(entries: Iterable[Entry]) -> str:
    """The table as a file, its entries in order."""
    ordered = sorted(
        entries, key=lambda e: (e.target, e.direction, e.dtype, e.q_len, e.kv_len, str(e.key))
    )
    return json.dumps([e.model_dump(mode="json") for e in ordered], indent=1) + "\n"


def sha256(path: Path) -> str:
    """Of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find(wanted: ShapeClass, device_kind: str, q_len: int) -> Entry | None:
    """The entry of a class for a device; None where there is none, or where it pads T too much."""
    key = (device_kind, *(getattr(wanted, name) for name in ShapeClass.model_fields))
    entry = next((e for e in table() if e.key == key), None)
    return entry if entry is not None and _fits(entry, q_len) else None


def _fits(entry: Entry, q_len: int) -> bool:
    block_q = entry.sizes.get("block_q", 1)
    return round_up(q_len, block_q) <= (1 + MOST_PADDING) * round_up(q_len, LANES)


def sources(direction: Direction) -> str:
    """Hash of the files that make a direction's kernel: its estimates hold for these."""
    digest = hashlib.sha256()
    for name in _SOURCES[direction]:
        digest.update((TABLE.parent / name).read_bytes())
    return digest.hexdigest()


def _power_of_two(length: int) -> int:
    return max(LANES, 1 << (length - 1).bit_length())
