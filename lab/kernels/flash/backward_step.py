"""The body of the backward kernel: the rows of some heads against the keys that they see."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from lab.kernels.flash.arithmetic import LOG2_E, dot
from lab.kernels.sizes import LANES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jax.typing import DTypeLike

    from lab.kernels.flash.backward_plan import Grid

SECTION = 512
"""Keys that are transposed, or written, together: enough to hide the transpose unit's latency."""

# Pallas gives references and traced indices no usable types.
Ref = Any
Index = Any


@dataclass(frozen=True)
class Piece:
    """Some rows of one head against the first keys of a tile.

    `diagonal` is the last key, counted from the tile's first, that the first row sees: an integer,
    a traced one, or None where all rows see all keys.
    """

    head: int
    row: int
    rows: int
    key: Index
    keys: int
    diagonal: Index | None = None


def kernel(grid: Grid, *refs: Ref) -> None:
    """One step of the grid (batch, key head, heads of its group, rows)."""
    _Program(grid, *refs).run()


class _Program:
    """One step of the grid: the rows of some heads against the keys that they see."""

    def __init__(
        self,
        grid: Grid,
        q: Ref,
        k: Ref,
        v: Ref,
        out: Ref,
        lse: Ref,
        do: Ref,
        dq: Ref,
        dk: Ref,
        dv: Ref,
        k_t: Ref,
        dk_sum: Ref,
        dv_sum: Ref,
        dq_sum: Ref,
        statistics: Ref,
        ahead: Ref,
    ) -> None:
        self.grid, self.blocks = grid, grid.blocks
        self.q, self.k, self.v, self.out, self.lse, self.do = q, k, v, out, lse, do
        self.dq, self.dk, self.dv = dq, dk, dv
        self.k_t, self.dk_sum, self.dv_sum, self.dq_sum = k_t, dk_sum, dv_sum, dq_sum
        self.statistics, self.ahead = statistics, ahead

    def run(self) -> None:
        b, i, g = self.blocks, pl.program_id(3), pl.program_id(2)
        pl.when((g == 0) & (i == 0))(self.start_head)
        self.start_rows()
        tiles = self.grid.keys // b.block_k
        if self.grid.seen is None:
            self.loop(tiles - 1)
            self.accumulate(list(self.full(tiles - 1)))
        else:
            start = self.grid.seen + i * b.block_q

            def diagonal() -> None:
                before = lax.div(start, b.block_k)
                self.loop(before)
                self.accumulate(list(self.on_diagonal(start, before)))

            def full() -> None:
                self.loop(tiles - 1)
                self.accumulate(list(self.full(tiles - 1)))

            # Only where keys are taken in parts can a row's diagonal lie behind the last one.
            if self.grid.seen + self.grid.row_blocks * b.block_q <= self.grid.keys:
                diagonal()
            else:
                pl.when(start < self.grid.keys)(diagonal)
                pl.when(start >= self.grid.keys)(full)
        last = (g == pl.num_programs(2) - 1) & (i == pl.num_programs(3) - 1)
        pl.when(last)(self.finish_head)

    def start_head(self) -> None:
        """Transpose K, and set its sums to zero."""

        def section(keys: Index, size: int) -> None:
            self.k_t[:, keys] = self.k[0, 0, keys].T
            self.dk_sum[keys] = jnp.zeros((size, self.grid.head_dim))
            self.dv_sum[keys] = jnp.zeros((size, self.grid.head_dim))

        self.for_sections(section)

    def finish_head(self) -> None:
        """Write dK and dV."""

        def section(keys: Index, _: int) -> None:
            self.dk[0, 0, keys] = (self.dk_sum[keys] * self.grid.scale).astype(self.dk.dtype)
            self.dv[0, 0, keys] = self.dv_sum[keys].astype(self.dv.dtype)

        self.for_sections(section)

    def for_sections(self, section: Callable[[Index, int], None]) -> None:
        """Call for all keys of the part, some hundred at a time."""
        size = math.gcd(self.grid.keys, SECTION)

        def call(j: Index, _: None) -> None:
            section(pl.ds(pl.multiple_of(j * size, size), size), size)

        lax.fori_loop(0, self.grid.keys // size, call, None)

    def start_rows(self) -> None:
        """The statistics of the rows, and the first products."""
        self.look_ahead(0)
        for head in range(self.blocks.heads):
            lse = self.lse[0, 0, head]
            # An empty row's weights are exp(-inf): exactly 0, and so is all that follows from them.
            self.statistics[0, head] = jnp.where(lse == -jnp.inf, jnp.inf, lse / self.grid.scale)
            product = self.out[0, 0, head].astype(jnp.float32) * self.do[0, 0, head].astype(
                jnp.float32
            )
            self.statistics[1, head] = _row_sums(product, self.q.dtype)
            self.dq_sum[head] = jnp.zeros_like(self.dq_sum[head])

    def loop(self, tiles: Index) -> None:
        """All tiles before the last."""

        def tile(j: Index, _: None) -> None:
            self.accumulate(list(self.full(j)), following=j + 1)

        lax.fori_loop(0, tiles, tile, None)

    def full(self, j: Index) -> Iterator[Piece]:
        """The pieces of a tile that all rows see."""
        b, key = self.blocks, j * self.blocks.block_k
        for head in range(b.heads):
            for row in range(0, b.block_q, b.chunk):
                yield Piece(head, row, b.chunk, key, b.block_k)

    def on_diagonal(self, start: Index, before: Index) -> Iterator[Piece]:
        """The pieces of the tiles that the diagonal crosses, and none that no row sees."""
        b = self.blocks
        if b.block_k > b.block_q:
            for piece in self.full(before):
                yield replace(piece, diagonal=start - piece.key + piece.row)
            return
        tiles = {n: before * b.block_k + n for n in range(0, b.block_q, b.block_k)}
        for head in range(b.heads):
            for first, key in tiles.items():
                for row in range(first, b.block_q, LANES):
                    keys = min(b.block_k, row + LANES - first)
                    diagonal = row - first if row - first < b.block_k else None
                    yield Piece(head, row, LANES, key, keys, diagonal)

    def accumulate(self, pieces: list[Piece], following: Index | None = None) -> None:
        """Add what the pieces give; the products of each are made before the one before is used.

        Without a following tile these are the last pieces of the rows, and dQ is written.
        """
        ready = self.scores(pieces[0], first=pieces[0])
        for piece, after in itertools.zip_longest(pieces, pieces[1:]):
            now = ready
            if after is not None:
                ready = self.scores(after, first=pieces[0])
            elif following is not None:
                self.look_ahead(following)
            self.add(piece, *now)
            if following is None and (after is None or after.head != piece.head):
                dq = self.dq_sum[piece.head] * self.grid.scale
                self.dq[0, 0, piece.head] = dq.T.astype(self.dq.dtype)

    def look_ahead(self, j: Index) -> None:
        piece = next(self.full(j))
        self.ahead[0], self.ahead[1] = self.scores(piece)

    def scores(self, piece: Piece, *, first: Piece | None = None) -> tuple[jax.Array, jax.Array]:
        """S^T and dP^T, [keys, rows]; those of a tile's `first` piece are there already."""
        if (
            first is not None
            and piece.key is first.key
            and piece.head == 0
            and piece.row + piece.rows <= self.blocks.chunk
        ):
            columns = pl.ds(piece.row, piece.rows)
            return self.ahead[0, : piece.keys, columns], self.ahead[1, : piece.keys, columns]
        keys = self.keys_of(piece)
        q, do = self.rows_of(piece)
        return dot(self.k[0, 0, keys], q, (1, 1)), dot(self.v[0, 0, keys], do, (1, 1))

    def add(self, piece: Piece, scores: jax.Array, dp: jax.Array) -> None:
        keys, rows = self.keys_of(piece), pl.ds(piece.row, piece.rows)
        lse, delta = (self.statistics[n, piece.head, :, rows] for n in (0, 1))
        # The difference of large logits is exact, so that the weights of a row err alike.
        exponent = (scores - lse) * (self.grid.scale * LOG2_E)
        if self.grid.bounded:
            exponent = jnp.minimum(exponent, 0.0)
        if piece.diagonal is not None:
            key, row = (lax.broadcasted_iota(jnp.int32, exponent.shape, n) for n in (0, 1))
            exponent = jnp.where(key <= row + piece.diagonal, exponent, -jnp.inf)
        p = jnp.exp2(exponent)
        ds = (p * (dp - delta)).astype(self.q.dtype)
        q, do = self.rows_of(piece)
        self.dv_sum[keys] += dot(p.astype(do.dtype), do, (1, 0))
        self.dk_sum[keys] += dot(ds, q, (1, 0))
        self.dq_sum[piece.head, :, rows] += dot(self.k_t[:, keys], ds, (1, 0))

    def keys_of(self, piece: Piece) -> Index:
        key = piece.key if isinstance(piece.key, int) else pl.multiple_of(piece.key, LANES)
        return pl.ds(key, piece.keys)

    def rows_of(self, piece: Piece) -> tuple[jax.Array, jax.Array]:
        rows = pl.ds(piece.row, piece.rows)
        return self.q[0, 0, piece.head, rows], self.do[0, 0, piece.head, rows]


def _row_sums(x: jax.Array, dtype: DTypeLike) -> jax.Array:
    """Sums of the rows of x, fp32 [rows, D], along lanes: [1, rows].

    A product of two bfloat16 has 16 bits, which are two bfloat16 exactly, so that two products with
    ones sum what one would of float32.
    """
    ones = jnp.ones((16, x.shape[1]), dtype)
    if dtype == jnp.float32:
        return dot(ones, x, (1, 1))[:1]
    high = x.astype(dtype)
    low = (x - high.astype(jnp.float32)).astype(dtype)
    return (dot(ones, high, (1, 1)) + dot(ones, low, (1, 1)))[:1]
