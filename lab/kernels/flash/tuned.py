"""Which blocks a call gets: what the options name, else the tuned table, else a rule by shape.

Each choice is noted (`lab.kernels.notes`), so that a record says what ran, and whether it was
tuned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import jax

from lab.errors import UnsupportedCell
from lab.kernels import winners
from lab.kernels.flash import backward_plan, decode
from lab.kernels.flash.backward_plan import BackwardBlocks
from lab.kernels.flash.blocks import Blocks, default_blocks
from lab.kernels.notes import note
from lab.kernels.winners import Direction, Entry, Shape
from lab.records import Implementation

STAND_IN = "TPU v5 lite"
"""Where no TPU is traced for, a kernel is interpreted with the blocks that this one gets."""

CHUNK = 256

Given = Mapping[str, int | str]
Sizes = TypeVar("Sizes", Blocks, BackwardBlocks)


def forward_blocks(
    q_shape: Shape, k_shape: Shape, dtype: str, *, causal: bool, given: Given
) -> Blocks:
    """Blocks of the forward kernel for q [B, Hq, T, D] and k [B, Hkv, S, D].

    Args:
        q_shape: of q.
        k_shape: of k.
        dtype: of both.
        causal: whether queries see no later keys.
        given: sizes that are set, by the names of Blocks; `auto` is not.
    """
    untuned = default_blocks(
        q_shape[2],
        k_shape[2],
        q_shape[1] // k_shape[1],
        causal=causal,
        element_bytes=2 if dtype == "bfloat16" else 4,
    )
    entry = _entry("forward", q_shape, k_shape, dtype, causal=causal)
    return _chosen("forward", untuned, entry, _set(given))


def backward_blocks(
    q_shape: Shape, k_shape: Shape, dtype: str, *, causal: bool, given: Given
) -> BackwardBlocks:
    """Blocks of the backward kernel; arguments as those of `forward_blocks`.

    Raises:
        UnsupportedCell: given sizes that do not go together.
    """
    group = q_shape[1] // k_shape[1]
    untuned = backward_plan.default_blocks(q_shape[2], k_shape[2], group, q_shape[3], dtype)
    entry = _entry("backward", q_shape, k_shape, dtype, causal=causal)
    sizes = _set(given)
    block_q = sizes.get("block_q", (entry.sizes if entry else {}).get("block_q"))
    if block_q is not None:
        untuned = BackwardBlocks(
            block_q, block_q, untuned.heads, math.gcd(block_q, CHUNK), untuned.vmem_limit_bytes
        )
    try:
        blocks = _chosen("backward", untuned, entry, sizes)
    except ValueError as error:
        raise UnsupportedCell(f"kernel flash: backward {error}") from None
    if group % blocks.heads:
        raise UnsupportedCell(
            f"kernel flash: backward heads={blocks.heads} must divide the group of {group} heads"
        )
    return blocks


def decode_block(q_shape: Shape, k_shape: Shape, dtype: str, *, given: Given) -> int:
    """Keys of a step of the decoding kernel; arguments as those of `forward_blocks`."""
    itemsize = 2 if dtype == "bfloat16" else 4
    untuned = decode.default_block(k_shape[2], k_shape[3], itemsize)
    entry = _entry("decode", q_shape, k_shape, dtype, causal=False)
    sizes = {"block_k": untuned, **(entry.sizes if entry else {}), **_set(given)}
    _say("decode", sizes, entry, _set(given))
    return sizes["block_k"]


def _entry(
    direction: Direction, q_shape: Shape, k_shape: Shape, dtype: str, *, causal: bool
) -> Entry | None:
    wanted = winners.shape_class(direction, q_shape, k_shape, dtype, causal=causal)
    kind = jax.devices()[0].device_kind
    return winners.find(wanted, kind if kind.startswith("TPU") else STAND_IN, q_shape[2])


def _set(given: Given) -> dict[str, int]:
    return {name: size for name, size in given.items() if isinstance(size, int)}


def _chosen(
    direction: Direction, untuned: Sizes, entry: Entry | None, given: dict[str, int]
) -> Sizes:
    blocks = replace(untuned, **{**(entry.sizes if entry else {}), **given})
    names = winners.OPTIONS[direction]
    _say(direction, {name: getattr(blocks, name) for name in names}, entry, given)
    return blocks


def _say(
    direction: Direction, sizes: Mapping[str, int], entry: Entry | None, given: Mapping[str, int]
) -> None:
    who = f"tuned for {entry.target}" if entry else "untuned fallback"
    if given:
        rest = set(sizes) - set(given)
        who = f"as given, the rest {who}" if rest else "as given"
    note(Implementation(name=f"flash {direction}", sizes=dict(sizes), chosen=who))
