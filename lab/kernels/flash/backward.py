"""Gradients of grouped-query attention in one Pallas TPU kernel, with no scores in HBM.

A program holds one key/value head in VMEM and walks over blocks of the queries of its group. Scores
are made transposed, keys along sublanes and rows along lanes:

    S^T = K Q^T      P^T = exp(scale S^T - lse)      dV += P^T dO
    dP^T = V dO^T    dS^T = P^T (dP^T - delta)       dK += dS^T Q      dQ^T += K^T dS^T

so that log-sum-exp and delta, one number a row, lie along lanes, and no product needs a transpose
of anything in the inner loop: K is transposed once a head, dQ once a block of rows. (The recurrence
is that of Dao 2023, FlashAttention-2, algorithm 2.)
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lab.kernels.flash.plan import LANES, LOG2_E, round_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jax.typing import DTypeLike

    from lab.kernels import Interpret

KEY_BYTES = 28 << 20
"""VMEM for what is kept of a key/value head; longer heads are taken in parts."""

SECTION = 512
"""Keys that are transposed, or written, together: enough to hide the transpose unit's latency."""

AREA = {"bfloat16": 1 << 19, "float32": 1 << 16}
"""Scores of a tile of head_dim 128 by default: larger tiles lose less at their edges, and take more
instructions, of which float32 needs six times as many."""

# Pallas gives references and traced indices no usable types.
Ref = Any
Index = Any

_NN, _NT = ((1,), (0,)), ((1,), (1,))


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


def backward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    key_mask: jax.Array | None,
    out: jax.Array,
    lse: jax.Array,
    do: jax.Array,
    *,
    causal: bool,
    scale: float,
    blocks: BackwardBlocks | None = None,
    interpret: Interpret = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients of attention from its saved output and log-sum-exp.

    Args:
        q: [B, Hq, T, D], bfloat16 or float32.
        k: [B, Hkv, S, D]; query head h reads key head h // (Hq // Hkv).
        v: [B, Hkv, S, D].
        key_mask: Bool[B, S], True where a key may be attended, or None for all.
        out: [B, Hq, T, D], the forward's result.
        lse: fp32 [B, Hq, T], natural log-sum-exp of a row's visible scaled logits, -inf for none.
        do: [B, Hq, T, D], the cotangent of `out`.
        causal: query i sees key j only where j <= i + S - T.
        scale: factor of the logits.
        blocks: sizes of a step; None chooses by shape.
        interpret: as `pallas_call` takes it.

    Returns:
        dq [B, Hq, T, D], dk and dv [B, Hkv, S, D], in the inputs' dtype, accumulated in fp32.

    Raises:
        ValueError: blocks that do not fit the shape.
    """
    batch, q_heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1:3]
    group = q_heads // kv_heads
    if blocks is None:
        blocks = default_blocks(q_len, kv_len, group, head_dim, q.dtype)
    if group % blocks.heads:
        raise ValueError(f"heads={blocks.heads} must divide the group of {group} query heads")
    if key_mask is not None:
        # 0 x NaN is NaN: what a hidden key holds must be gone before the products see it.
        k, v = (jnp.where(key_mask[:, None, :, None], x, 0) for x in (k, v))

    # Rows before the first shift the causal diagonal to the corner of a block.
    offset = kv_len - q_len
    front = offset % blocks.block_q if causal else 0
    offset -= front
    rows = round_up(front + q_len, blocks.block_q)
    part, parts = _parts(rows + offset if causal else kv_len, head_dim, q.dtype, blocks)
    keys = part * parts

    def pad_rows(x: jax.Array, value: float = 0.0) -> jax.Array:
        x = _pad(x, 2, front, rows - front - q_len, value)
        return x.reshape(batch, kv_heads, group, *x.shape[2:])

    k, v = (_pad(x, 2, 0, keys - kv_len, 0.0) for x in (k, v))
    lse = pad_rows(lse, -jnp.inf)[:, :, :, None]
    arrays = (pad_rows(q), k, v, pad_rows(out), lse, pad_rows(do))
    grid = Grid(
        batch=batch,
        kv_heads=kv_heads,
        group=group,
        rows=rows,
        keys=part,
        head_dim=head_dim,
        offset=offset if causal else None,
        # A hidden key's K is 0, so is its logit, which may lie far above the log-sum-exp.
        bounded=key_mask is not None or (keys > kv_len and not causal),
        scale=scale,
        blocks=blocks,
        dq_dtype=q.dtype if parts == 1 else jnp.dtype(jnp.float32),
    )
    results = [_call(replace(grid, part=n), arrays, interpret) for n in range(parts)]
    dq = functools.reduce(jnp.add, (_pad(r[0], 3, rows - r[0].shape[3], 0, 0.0) for r in results))
    dq = dq.reshape(q.shape[0], q_heads, rows, head_dim)[:, :, front : front + q_len]
    dk, dv = (
        (r[0] if parts == 1 else jnp.concatenate(r, axis=2))[:, :, :kv_len]
        for r in zip(*(r[1:] for r in results), strict=True)
    )
    if key_mask is not None:
        dk, dv = (jnp.where(key_mask[:, None, :, None], x, 0) for x in (dk, dv))
    return dq.astype(q.dtype), dk, dv


def _parts(keys: int, head_dim: int, dtype: DTypeLike, blocks: BackwardBlocks) -> tuple[int, int]:
    """Keys of a part, and how many parts cover them."""
    unit = max(blocks.block_q, blocks.block_k)
    # K, V, dK, dV in two buffers each, K once more, transposed, and two sums in fp32.
    a_key = round_up(head_dim, LANES) * (9 * jnp.dtype(dtype).itemsize + 8)
    keys = round_up(keys, unit)
    most = max(unit, KEY_BYTES // a_key // unit * unit)
    part = round_up(pl.cdiv(keys, pl.cdiv(keys, most)), unit)
    return part, pl.cdiv(keys, part)


def _pad(x: jax.Array, axis: int, before: int, after: int, value: float) -> jax.Array:
    if not before and not after:
        return x
    fill = [(0, 0)] * x.ndim
    fill[axis] = (before, after)
    return jnp.pad(x, fill, constant_values=value)


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


def _call(
    grid: Grid, arrays: tuple[jax.Array, ...], interpret: Interpret
) -> tuple[jax.Array, jax.Array, jax.Array]:
    b = grid.blocks
    skipped = grid.first_row // b.block_q
    rows_shape = (1, 1, b.heads, b.block_q, grid.head_dim)
    rows = pl.BlockSpec(rows_shape, lambda n, h, g, i: (n, h, g, i + skipped, 0))
    dq = pl.BlockSpec(rows_shape, lambda n, h, g, i: (n, h, g, i, 0))
    lse = pl.BlockSpec((1, 1, b.heads, 1, b.block_q), lambda n, h, g, i: (n, h, g, 0, i + skipped))
    part = grid.part
    keys_shape = (1, 1, grid.keys, grid.head_dim)
    keys = pl.BlockSpec(keys_shape, lambda n, h, _g, _i: (n, h, part, 0))
    dkv = pl.BlockSpec(keys_shape, lambda n, h, _g, _i: (n, h, 0, 0))
    dtype = arrays[0].dtype
    dq_shape = (grid.batch, grid.kv_heads, grid.group, grid.rows - grid.first_row, grid.head_dim)
    dkv_shape = (grid.batch, grid.kv_heads, grid.keys, grid.head_dim)
    f32 = jnp.float32
    result: tuple[jax.Array, jax.Array, jax.Array] = pl.pallas_call(
        functools.partial(_kernel, grid),
        grid=(grid.batch, grid.kv_heads, grid.group // b.heads, grid.row_blocks),
        in_specs=[rows, keys, keys, rows, lse, rows],
        out_specs=[dq, dkv, dkv],
        out_shape=[
            jax.ShapeDtypeStruct(dq_shape, grid.dq_dtype),
            jax.ShapeDtypeStruct(dkv_shape, dtype),
            jax.ShapeDtypeStruct(dkv_shape, dtype),
        ],
        scratch_shapes=[
            pltpu.VMEM((grid.head_dim, grid.keys), dtype),
            pltpu.VMEM((grid.keys, grid.head_dim), f32),
            pltpu.VMEM((grid.keys, grid.head_dim), f32),
            pltpu.VMEM((b.heads, grid.head_dim, b.block_q), f32),
            pltpu.VMEM((2, b.heads, 1, b.block_q), f32),
            pltpu.VMEM((2, b.block_k, b.chunk), f32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary", "arbitrary"),
            vmem_limit_bytes=b.vmem_limit_bytes,
        ),
        interpret=interpret,
        name="flash_backward",
    )(*arrays)
    return result


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


def _kernel(grid: Grid, *refs: Ref) -> None:
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
        return _dot(self.k[0, 0, keys], q, _NT), _dot(self.v[0, 0, keys], do, _NT)

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
        self.dv_sum[keys] += _dot(p.astype(do.dtype), do, _NN)
        self.dk_sum[keys] += _dot(ds, q, _NN)
        self.dq_sum[piece.head, :, rows] += _dot(self.k_t[:, keys], ds, _NN)

    def keys_of(self, piece: Piece) -> Index:
        key = piece.key if isinstance(piece.key, int) else pl.multiple_of(piece.key, LANES)
        return pl.ds(key, piece.keys)

    def rows_of(self, piece: Piece) -> tuple[jax.Array, jax.Array]:
        rows = pl.ds(piece.row, piece.rows)
        return self.q[0, 0, piece.head, rows], self.do[0, 0, piece.head, rows]


def _dot(a: jax.Array, b: jax.Array, axes: tuple[tuple[int, ...], tuple[int, ...]]) -> jax.Array:
    precision = lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return lax.dot_general(
        a, b, (axes, ((), ())), precision=precision, preferred_element_type=jnp.float32
    )


def _row_sums(x: jax.Array, dtype: DTypeLike) -> jax.Array:
    """Sums of the rows of x, fp32 [rows, D], along lanes: [1, rows].

    A product of two bfloat16 has 16 bits, which are two bfloat16 exactly, so that two products with
    ones sum what one would of float32.
    """
    ones = jnp.ones((16, x.shape[1]), dtype)
    if dtype == jnp.float32:
        return _dot(ones, x, _NT)[:1]
    high = x.astype(dtype)
    low = (x - high.astype(jnp.float32)).astype(dtype)
    return (_dot(ones, high, _NT) + _dot(ones, low, _NT))[:1]
