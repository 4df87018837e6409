"""How one call of the forward kernel is cut: padded lengths, blocks, and what each block sees."""

from __future__ import annotations

import math
from dataclasses import dataclass

LANES = 128
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
        vmem_limit_bytes: what the compiler may use of VMEM.
    """

    block_q: int
    block_k: int
    lookahead: int = 8
    vmem_limit_bytes: int = 100 << 20


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

    @property
    def lookahead(self) -> int:
        """Tiles whose scores come early: a tile's next scores overwrite those in use before."""
        return min(self.blocks.lookahead, self.tiles - 1)

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


def default_blocks(q_len: int, kv_len: int, group: int, *, causal: bool) -> Blocks:
    """Blocks by shape class: about TARGET_SCORES a step, and little padding."""
    heads = _heads(group)
    block_q = min(512 if heads > 2 else 1024, round_up(q_len, LANES))
    blocks = math.ceil(q_len / block_q)
    block_q = round_up(math.ceil(q_len / blocks), LANES)
    tiles = block_q // LANES
    most = max(1, TARGET_SCORES // (heads * block_q * LANES))
    if not causal:
        most = min(most, math.ceil(kv_len / LANES))
    block_k = max(n for n in range(1, tiles + 1) if tiles % n == 0 and n <= max(most, 1)) * LANES
    return Blocks(block_q, block_k)


def make_plan(
    q_shape: tuple[int, ...], k_shape: tuple[int, ...], blocks: Blocks, *, causal: bool
) -> Plan:
    """Cut q [B, Hq, T, D] and k [B, Hkv, S, D] into blocks."""
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
