"""How a call of the backward kernel is cut: blocks, parts of the keys, and what each block sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax.experimental import pallas as pl

from lab.kernels.sizes import LANES, round_up

if TYPE_CHECKING:
    from jax.typing import DTypeLike

KEY_BYTES = 28 << 20
"""VMEM for what is kept of a key/value head; longer heads are taken in parts."""

AREA = {"bfloat16": 1 << 19, "float32": 1 << 16}
"""Scores of a tile of head_dim 128 by default: larger tiles lose less at their edges, and take more
instructions, of which float32 needs six times as many."""


@dataclass(frozen=True)
class BackwardBlocks:
    """Sizes of a step; one of block_q and block_k must divide the other.

    Attributes:
        block_q: rows of each head in a step, a multiple of 128.
        block_k: keys in a tile, a multiple of 128.
        heads: query heads of a group in a step; it must divide the group.
        chunk: rows of a head in one product.
        vmem_limit_bytes: what the compiler may use of VMEM.
    """

    block_q: int = 256
    block_k: int = 256
    heads: int = 4
    chunk: int = 256
    vmem_limit_bytes: int = 60 << 20

    def __post_init__(self) -> None:
        if min(self.block_q, self.block_k, self.heads, self.chunk) < 1 or (
            self.block_q % LANES or self.block_k % LANES or self.chunk % LANES
        ):
            raise ValueError(
                f"block_q={self.block_q}, block_k={self.block_k}, chunk={self.chunk}: "
                f"give multiples of {LANES}"
            )
        if self.block_q % self.block_k and self.block_k % self.block_q:
            raise ValueError(
                f"block_q={self.block_q}, block_k={self.block_k}: one must divide the other"
            )
        if self.block_q % self.chunk:
            raise ValueError(f"chunk={self.chunk} must divide block_q={self.block_q}")


def default_blocks(
    q_len: int, kv_len: int, group: int, head_dim: int, dtype: DTypeLike
) -> BackwardBlocks:
    """Untuned blocks: as large as AREA and the lengths allow, most of them square or wide."""
    area = AREA[jnp.dtype(dtype).name] * LANES // round_up(head_dim, LANES)
    fitting = [
        block
        for block in (512, 256)
        # At most an eighth of the rows are padding.
        if 8 * round_up(q_len, block) <= 9 * q_len
        and block <= round_up(kv_len, LANES)
        and block * 256 <= area
    ]
    block = fitting[0] if fitting else LANES
    block_k = min(block, 256)
    heads = max(
        n for n in range(1, group + 1) if group % n == 0 and (n == 1 or n * block * block_k <= area)
    )
    return BackwardBlocks(block, block_k, heads, block_k)


def parts_of(keys: int, head_dim: int, dtype: DTypeLike, blocks: BackwardBlocks) -> tuple[int, int]:
    """Keys of a part, and how many parts cover them."""
    unit = max(blocks.block_q, blocks.block_k)
    # K, V, dK, dV in two buffers each, K once more, transposed, and two sums in fp32.
    a_key = round_up(head_dim, LANES) * (9 * jnp.dtype(dtype).itemsize + 8)
    keys = round_up(keys, unit)
    most = max(unit, KEY_BYTES // a_key // unit * unit)
    part = round_up(pl.cdiv(keys, pl.cdiv(keys, most)), unit)
    return part, pl.cdiv(keys, part)


@dataclass(frozen=True)
class Grid:
    """One kernel: sizes after padding, and which part of the keys it takes.

    `offset` is that of the causal diagonal over all keys, a multiple of block_q; None for full
    attention. `bounded`: logits may lie above a row's log-sum-exp.
    """

    batch: int
    kv_heads: int
    group: int
    rows: int
    keys: int
    head_dim: int
    offset: int | None
    bounded: bool
    scale: float
    blocks: BackwardBlocks
    dq_dtype: Any
    part: int = 0

    @property
    def first_row(self) -> int:
        """Rows before it see no key of the part."""
        return 0 if self.offset is None else max(0, self.part * self.keys - self.offset)

    @property
    def seen(self) -> int | None:
        """Keys of the part before the first row's diagonal; None for full attention."""
        if self.offset is None:
            return None
        return self.first_row + self.offset - self.part * self.keys

    @property
    def row_blocks(self) -> int:
        """Blocks of rows from the first row on."""
        return (self.rows - self.first_row) // self.blocks.block_q
