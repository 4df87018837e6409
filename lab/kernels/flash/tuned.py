"""Blocks by shape: the table of those that were tuned, and what is taken where it has no entry.

`tuned.json` holds the winners of the search, each with the cell that earned it: its values were
proved for the very program that was estimated. A shape without an entry gets the untuned blocks of
`plan` and `backward`.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from lab.kernels.flash import backward, plan
from lab.kernels.flash.backward import BackwardBlocks
from lab.kernels.flash.plan import Blocks

TABLE = Path(__file__).with_name("tuned.json")
Shape = tuple[int, ...]


class Entry(BaseModel):
    """A shape class and the blocks that won it.

    Attributes:
        target: the chip it was estimated for.
        q_len: T; so is kv_len S, and group Hq / Hkv.
        options: of `kernel=flash`.
        estimated_ms: by the executed schedule, of the whole cell.
        cell_id: the record that earned it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    direction: Literal["forward", "backward"]
    dtype: str
    causal: bool
    q_len: int
    kv_len: int
    head_dim: int
    group: int
    options: dict[str, int]
    estimated_ms: float
    cell_id: str


@functools.cache
def table() -> tuple[Entry, ...]:
    """All entries."""
    return TypeAdapter(tuple[Entry, ...]).validate_json(TABLE.read_bytes())


def find(
    direction: str, q_shape: Shape, k_shape: Shape, dtype: str, *, causal: bool
) -> Entry | None:
    """The entry of exactly this shape class, whatever the target it was tuned for, or None."""
    key = (direction, dtype, causal, q_shape[2], k_shape[2], q_shape[3], q_shape[1] // k_shape[1])
    for e in table():
        if key == (e.direction, e.dtype, e.causal, e.q_len, e.kv_len, e.head_dim, e.group):
            return e
    return None


def forward_blocks(q_shape: Shape, k_shape: Shape, dtype: str, *, causal: bool) -> Blocks:
    """Blocks of the forward kernel for q [B, Hq, T, D] and k [B, Hkv, S, D]."""
    entry = find("forward", q_shape, k_shape, dtype, causal=causal)
    if entry is not None:
        return Blocks(**entry.options)
    return plan.default_blocks(
        q_shape[2],
        k_shape[2],
        q_shape[1] // k_shape[1],
        causal=causal,
        element_bytes=2 if dtype == "bfloat16" else 4,
    )


def backward_blocks(q_shape: Shape, k_shape: Shape, dtype: str, *, causal: bool) -> BackwardBlocks:
    """Blocks of the backward kernel for q [B, Hq, T, D] and k [B, Hkv, S, D]."""
    entry = find("backward", q_shape, k_shape, dtype, causal=causal)
    if entry is not None:
        options: dict[str, Any] = dict(entry.options)
        return BackwardBlocks(**options)
    return backward.default_blocks(
        q_shape[2], k_shape[2], q_shape[1] // k_shape[1], q_shape[3], dtype
    )
