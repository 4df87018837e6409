"""How one call of the forward kernel is cut: padded lengths, blocks, and what each block sees."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import jax
from jax import lax

from lab.errors import UnsupportedCell
from lab.kernels.flash.blocks import Blocks, packed_heads
from lab.kernels.sizes import LANES, round_up

KEY_BYTES = 28 << 20
"""VMEM for keys and values; more of a head are taken in spans, one after another."""

VMEM_BYTES = 60 << 20
"""The most that a call may take: v5p and tpu7x have 64 MiB, v5e and v6e 128."""

VMEM_SPARE_BYTES = 12 << 20
"""For what the compiler keeps besides the blocks: spilled registers, the blocks' bookkeeping."""


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
        span: keys that are in VMEM at once, a multiple of block_k.
        spans: how many of them hold all keys; one wherever they fit.
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
    masked: bool
    element_bytes: int
    blocks: Blocks
    front: int
    q_rows: int
    span: int
    spans: int
    diagonal: int

    @property
    def k_rows(self) -> int:
        """Keys with padding."""
        return self.span * self.spans

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

    def vmem_limit_bytes(self) -> int:
        """VMEM of a call: a span of keys and values, blocks of queries, scratch.

        Raises:
            UnsupportedCell: it is more than VMEM_BYTES.
        """
        width, rows = round_up(self.head_dim, LANES), self.tiles * LANES
        block_k = self.blocks.block_k
        total = self.span * _bytes_of_key(width, self.element_bytes, masked=self.masked)
        # Inputs and outputs are double-buffered.
        total += 4 * rows * width * self.element_bytes
        total += rows * (block_k + width + 16) * 4 + block_k * width * self.element_bytes
        total += VMEM_SPARE_BYTES
        if total > VMEM_BYTES:
            raise UnsupportedCell(
                f"block_q {self.blocks.block_q} x {self.heads} heads, block_k {block_k}, head_dim "
                f"{self.head_dim}: takes {total >> 20} MiB of VMEM, allowed are "
                f"{VMEM_BYTES >> 20} MiB; give a smaller kernel.block_q or kernel.block_k"
            )
        return total

    @functools.cached_property
    def lookahead(self) -> int:
        """Jobs whose scores come early: a tile's next scores overwrite those in use before.

        So it stays below the shortest way from a tile's job to its next, which is near the end of
        the diagonal, where few tiles are left.
        """
        nearest = self.tiles
        for rest in self.rests():
            before: dict[int, int] = {}
            for n, job in enumerate((*self.full_jobs(), *self.last_jobs(rest))):
                nearest = min(nearest, n - before.get(job.tile, -self.tiles))
                before[job.tile] = n
        return min(self.blocks.lookahead, nearest - 1)

    def order(self) -> list[int]:
        """Tiles, those first that see most keys near the diagonal: their scores come early."""
        return sorted(range(self.tiles), key=lambda tile: -(tile % self.tiles_of_head))

    def full_jobs(self) -> list[Job]:
        """A step over a block of keys that all queries see."""
        return [Job(tile, 0, self.blocks.block_k) for tile in self.order()]

    def rests(self) -> list[int]:
        """How many keys lie between a block's last full block of keys and its first diagonal."""
        if not self.causal:
            return [0]
        first = (n * self.blocks.block_q + self.diagonal for n in range(self.q_blocks))
        return sorted({keys % self.blocks.block_k for keys in first})

    def last_jobs(self, rest: int) -> list[Job]:
        """The keys after the full blocks: up to the diagonal, or the last block."""
        block_k = self.blocks.block_k
        if not self.causal:
            last = self.kv_len - self.full_blocks * block_k
            keys = round_up(last, LANES)
            hidden = keys - LANES if keys != last else None
            return [Job(tile, 0, keys, hidden) for tile in self.order()]
        jobs = []
        for first in range(0, rest + self.blocks.block_q, block_k):
            for tile in self.order():
                seen = rest + (tile % self.tiles_of_head + 1) * LANES - first
                if seen > block_k:
                    jobs.append(Job(tile, first, block_k))
                elif seen > 0:
                    jobs.append(Job(tile, first, seen, seen - LANES))
        return jobs

    def last_span(self, step: jax.Array | int) -> jax.Array | int:
        """The last span of keys that a block of queries sees."""
        if not self.causal:
            return self.spans - 1
        seen = lax.rem(step, self.q_blocks) * self.blocks.block_q + self.diagonal
        return lax.div(seen + self.blocks.block_q - 1, self.span)

    @property
    def full_blocks(self) -> int:
        """Blocks of keys before the last, without causality."""
        return math.ceil(self.kv_len / self.blocks.block_k) - 1


def make_plan(
    q_shape: tuple[int, ...],
    k_shape: tuple[int, ...],
    blocks: Blocks,
    *,
    causal: bool,
    masked: bool = False,
    element_bytes: int = 2,
) -> Plan:
    """Cut q [B, Hq, T, D] and k [B, Hkv, S, D] into blocks."""
    batch, q_heads, q_len, head_dim = q_shape
    kv_heads, kv_len = k_shape[1:3]
    group = q_heads // kv_heads
    heads = packed_heads(group)
    block_q, block_k = blocks.block_q, blocks.block_k
    most = KEY_BYTES // _bytes_of_key(round_up(head_dim, LANES), element_bytes, masked=masked)
    # Where there are several spans, a block's keys near the diagonal must lie in one of them.
    whole = kv_len + block_q + block_k <= most
    unit = math.lcm(block_q, block_k) if causal else block_k
    front = (kv_len - q_len) % (math.gcd(block_q, block_k) if whole else unit) if causal else 0
    q_rows = round_up(front + q_len, block_q)
    diagonal = kv_len - q_len - front if causal else 0
    span, spans = round_up(diagonal + q_rows if causal else kv_len, block_k), 1
    if not whole:
        spans = math.ceil(span / max(unit, most // unit * unit))
        span = round_up(math.ceil(span / spans), unit)
    return Plan(
        batch=batch,
        kv_heads=kv_heads,
        heads=heads,
        parts=group // heads,
        q_len=q_len,
        kv_len=kv_len,
        head_dim=head_dim,
        causal=causal,
        masked=masked,
        element_bytes=element_bytes,
        blocks=blocks,
        front=front,
        q_rows=q_rows,
        span=span,
        spans=spans,
        diagonal=diagonal,
    )


def _bytes_of_key(width: int, element_bytes: int, *, masked: bool) -> int:
    """VMEM of a key and its value, in two buffers each, and of what a mask makes of them."""
    of_mask = 2 * 8 * 4 + LANES * 4 + width * element_bytes if masked else 0
    return 4 * width * element_bytes + of_mask
