"""How one call of the forward kernel is cut: padded lengths, blocks, and what each block sees."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from lab.errors import UnsupportedCell

LANES = 128
LOG2_E = math.log2(math.e)
"""exp(x) = exp2(x * LOG2_E)."""

VMEM_BYTES = 112 << 20
"""The most that a call may take: v5e and v6e have 128 MiB."""

VMEM_SPARE_BYTES = 12 << 20
"""For what the compiler keeps besides the blocks: spilled registers, the blocks' bookkeeping."""

MAX_HEADS = 8
"""Heads of a group that are packed into one block; a larger group takes several."""

TARGET_SCORES = 1 << 20
"""Scores of a step of the loop over keys: 4,096 cycles of v5e's matrix units at head_dim 128."""


@dataclass(frozen=True)
class Blocks:
    """Sizes of the forward kernel's blocks.

    Attributes:
        block_q: queries of a block, a multiple of block_k; each head of the group has as many.
        block_k: keys of a step, a multiple of 128.
        lookahead: query tiles whose scores are computed a step early, so that the matrix units
            work while the vector units take the maximum and the exponential.
    """

    block_q: int
    block_k: int
    lookahead: int = 6


@dataclass(frozen=True)
class Job:
    """One tile of 128 queries against some keys of a block.

    Attributes:
        tile: number of the tile among all heads' queries of the block.
        first: its first key, from the start of the region.
        keys: how many keys, a multiple of 128.
        hidden: keys from here on are only partly visible, or not; None where all are visible.
    """

    tile: int
    first: int
    keys: int
    hidden: int | None = None


@dataclass(frozen=True)
class Plan:
    """Sizes of a call with 1 <= T, and T <= S where causal.

    Attributes:
        heads: query heads packed into a block.
        parts: blocks of heads in a group.
        front: rows put in front of the queries, so that the diagonal meets the blocks' corners.
        q_rows: queries with padding, T to the next multiple of block_q.
        k_rows: keys with padding.
        diagonal: query i sees key j when j <= i + diagonal, in padded numbers.
    """

    batch: int
    kv_heads: int
    heads: int
    parts: int
    q_len: int
    kv_len: int
    head_dim: int
    causal: bool
    blocks: Blocks
    front: int
    q_rows: int
    k_rows: int
    diagonal: int

    @property
    def q_blocks(self) -> int:
        """Blocks of queries of a head."""
        return self.q_rows // self.blocks.block_q

    @property
    def steps(self) -> int:
        """Blocks of queries in all."""
        return self.batch * self.kv_heads * self.parts * self.q_blocks

    @property
    def tiles_of_head(self) -> int:
        """Tiles of 128 queries of one head in a block."""
        return self.blocks.block_q // LANES

    @property
    def tiles(self) -> int:
        """Tiles of 128 queries in a block of all heads."""
        return self.heads * self.tiles_of_head

    def vmem_limit_bytes(self, element_bytes: int, *, masked: bool) -> int:
        """VMEM of a call: a head's keys and values whole, blocks of queries, scratch.

        Raises:
            UnsupportedCell: it is more than VMEM_BYTES.
        """
        width, rows = round_up(self.head_dim, LANES), self.tiles * LANES
        block_k = self.blocks.block_k
        # Inputs and outputs are double-buffered.
        total = 4 * (self.k_rows + rows) * width * element_bytes
        total += rows * (block_k + width + 16) * 4 + block_k * width * element_bytes
        if masked:
            total += self.k_rows * (2 * 8 * 4 + LANES * 4 + width * element_bytes)
        total += VMEM_SPARE_BYTES
        if total > VMEM_BYTES:
            raise UnsupportedCell(
                f"S {self.kv_len} x D {self.head_dim}: keys and values of a head are held in VMEM "
                f"whole, which takes {total >> 20} MiB; allowed are {VMEM_BYTES >> 20} MiB"
            )
        return total

    @functools.cached_property
    def lookahead(self) -> int:
        """Jobs whose scores come early: a tile's next scores overwrite those in use before.

        So it stays below the shortest way from a tile's job to its next, which is near the end of
        the diagonal, where few tiles are left.
        """
        before: dict[int, int] = {}
        nearest = self.tiles
        for n, job in enumerate((*self.full_jobs(), *self.last_jobs())):
            nearest = min(nearest, n - before.get(job.tile, -self.tiles))
            before[job.tile] = n
        return min(self.blocks.lookahead, nearest - 1)

    def order(self) -> list[int]:
        """Tiles, those first that see most keys near the diagonal: their scores come early."""
        return sorted(range(self.tiles), key=lambda tile: -(tile % self.tiles_of_head))

    def full_jobs(self) -> list[Job]:
        """A step over a block of keys that all queries see."""
        return [Job(tile, 0, self.blocks.block_k) for tile in self.order()]

    def last_jobs(self) -> list[Job]:
        """The keys after the full blocks: around the diagonal, or the last block."""
        block_k = self.blocks.block_k
        if not self.causal:
            rest = self.kv_len - (self.k_rows - block_k)
            keys = round_up(rest, LANES)
            hidden = keys - LANES if keys != rest else None
            return [Job(tile, 0, keys, hidden) for tile in self.order()]
        jobs = []
        for first in range(0, self.blocks.block_q, block_k):
            for tile in self.order():
                seen = (tile % self.tiles_of_head + 1) * LANES - first
                if seen > block_k:
                    jobs.append(Job(tile, first, block_k))
                elif seen > 0:
                    jobs.append(Job(tile, first, seen, seen - LANES))
        return jobs


def default_blocks(
    q_len: int, kv_len: int, group: int, *, causal: bool, element_bytes: int = 2
) -> Blocks:
    """Blocks by shape class: about TARGET_SCORES a step, and little padding.

    In fp32 a product takes six passes, each of them code: blocks are smaller there.
    """
    target = TARGET_SCORES if element_bytes <= 2 else TARGET_SCORES // 8
    heads = _heads(group)
    longest = (512 if heads > 2 else 1024) // (1 if element_bytes <= 2 else 2)
    block_q = min(longest, round_up(q_len, LANES))
    blocks = math.ceil(q_len / block_q)
    block_q = round_up(math.ceil(q_len / blocks), LANES)
    tiles = block_q // LANES
    most = max(1, target // (heads * block_q * LANES))
    if not causal:
        most = min(most, math.ceil(kv_len / LANES))
    block_k = max(n for n in range(1, tiles + 1) if tiles % n == 0 and n <= max(most, 1)) * LANES
    return Blocks(block_q, block_k)


def make_plan(
    q_shape: tuple[int, ...], k_shape: tuple[int, ...], blocks: Blocks, *, causal: bool
) -> Plan:
    """Cut q [B, Hq, T, D] and k [B, Hkv, S, D] into blocks.

    Raises:
        UnsupportedCell: blocks that do not meet on the diagonal.
    """
    if causal and blocks.block_q % blocks.block_k:
        raise UnsupportedCell(
            f"block_q {blocks.block_q}, block_k {blocks.block_k}: with causality block_q must be a "
            "multiple of block_k"
        )
    batch, q_heads, q_len, head_dim = q_shape
    kv_heads, kv_len = k_shape[1:3]
    group = q_heads // kv_heads
    heads = _heads(group)
    front = (kv_len - q_len) % blocks.block_k if causal else 0
    q_rows = round_up(front + q_len, blocks.block_q)
    diagonal = kv_len - q_len - front if causal else 0
    k_rows = diagonal + q_rows if causal else round_up(kv_len, blocks.block_k)
    return Plan(
        batch=batch,
        kv_heads=kv_heads,
        heads=heads,
        parts=group // heads,
        q_len=q_len,
        kv_len=kv_len,
        head_dim=head_dim,
        causal=causal,
        blocks=blocks,
        front=front,
        q_rows=q_rows,
        k_rows=k_rows,
        diagonal=diagonal,
    )


def round_up(size: int, multiple: int) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple


def _heads(group: int) -> int:
    return max(n for n in range(1, MAX_HEADS + 1) if group % n == 0)


def dot(x: jax.Array, y: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """Product over one axis of each, in fp32; fp32 operands take all the passes they need."""
    return lax.dot_general(
        x,
        y,
        (((axes[0],), (axes[1],)), ((), ())),
        precision=lax.Precision.HIGHEST if x.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )
