"""Row-wise Pallas kernels over [B, H, T, S]: a grid step sees whole rows, of a head or several."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lab.errors import UnsupportedCell
from lab.kernels.pieces import in_pieces
from lab.kernels.sizes import LANES, SUBLANES, round_up

if TYPE_CHECKING:
    from jax.typing import DTypeLike

    from lab.kernels import Interpret

VMEM_BUDGET_BYTES = 12 << 20
"""Three quarters of what XLA:TPU lets a kernel use by default on v5e (a scoped limit of 16 MiB)."""

MAX_BLOCK_ROWS = 512

INTERPRET_ROWS = 32
INTERPRET_WHOLE_ELEMENTS = 1 << 18
"""Interpret mode copies its arrays whole at every grid step: larger ones are run in pieces."""

Compute = Callable[..., jax.Array]
"""(visible Bool [heads, rows, width] or None for all, *operands fp32, as large) -> fp32, as large.

Columns that are not visible, or are padding, hold anything, NaN included.
"""


def auto_block(
    heads: int, q_len: int, kv_len: int, element_bytes: int, tile_rows: int = SUBLANES
) -> tuple[int, int]:
    """Choose a block's heads and rows: what fits the VMEM budget, spread evenly over T.

    Heads that fit whole share a block: a grid step has a fixed cost, which is most of the time of
    one head of 128 rows.

    Args:
        heads: H.
        q_len: rows of a head, T.
        kv_len: elements of a row, S.
        element_bytes: VMEM bytes for each element of a block, buffers and temporaries together.
        tile_rows: rows of the tallest tile among the arrays: 8 for fp32, 16 for bf16. Where blocks
            are no whole tiles v5e's compiler repacks them, and tpu7x's refuses.

    Raises:
        UnsupportedCell: one tile of rows is too much already.
    """
    tile_bytes = tile_rows * round_up(kv_len, LANES) * element_bytes
    fitting = VMEM_BUDGET_BYTES // tile_bytes * tile_rows
    if not fitting and tile_rows > SUBLANES:
        return auto_block(heads, q_len, kv_len, element_bytes)
    if not fitting:
        raise UnsupportedCell(
            f"{tile_rows} rows of {kv_len} keys take {tile_bytes / 2**20:.1f} MiB of VMEM, the "
            f"budget is {VMEM_BUDGET_BYTES >> 20} MiB: this kernel holds whole rows"
        )
    most = min(fitting, MAX_BLOCK_ROWS)
    rows = round_up(pl.cdiv(q_len, pl.cdiv(q_len, most)), tile_rows)
    whole = most // rows if rows >= q_len else 1
    return max(n for n in range(1, whole + 1) if heads % n == 0), rows


def map_rows(
    compute: Compute,
    operands: tuple[jax.Array, ...],
    mask: jax.Array | None,
    dtype: DTypeLike,
    *,
    causal: bool = False,
    block_rows: int | None,
    interpret: Interpret,
) -> jax.Array:
    """Apply `compute` to whole rows, as one Pallas kernel of its name.

    Args:
        compute: the function of a block; it sees its operands in fp32.
        operands: arrays [B, H, T, S] of any float dtype, converted block by block in the kernel.
        mask: Bool of rank 4 with axes of size 1 where it is broadcast, read as it is; or None.
        dtype: the result's dtype.
        causal: hide key j from row i where j > i + S - T, beside what the mask hides.
        block_rows: rows of a block, a multiple of 8; None chooses by memory.
        interpret: as `pallas_call` takes it. With True the same grid is run in pieces.

    Returns:
        [B, H, T, S] in `dtype`.
    """
    heads, q_len, kv_len = operands[0].shape[1:]
    block_heads = 1
    if block_rows is None:
        # Every block is double-buffered; Mosaic keeps a Bool as int32. The temporaries of
        # `compute` pass through registers: what it does keep fits beside the budget.
        sizes = [*(x.dtype.itemsize for x in operands), jnp.dtype(dtype).itemsize]
        element_bytes = 2 * (sum(sizes) + (0 if mask is None else 4))
        block_heads, block_rows = auto_block(
            heads, q_len, kv_len, element_bytes, SUBLANES * 4 // min(sizes)
        )
    block = (block_heads, block_rows, round_up(kv_len, LANES))

    # Column minus row that a row may still see.
    diagonal = kv_len - q_len if causal else None

    def call(operands: tuple[jax.Array, ...], mask: jax.Array | None) -> jax.Array:
        return _call(compute, operands, mask, dtype, block, diagonal, interpret)

    if interpret is True and operands[0].size > INTERPRET_WHOLE_ELEMENTS:
        if causal:
            # A piece does not know which rows it holds: there causality is an array.
            triangle = jnp.tri(q_len, kv_len, kv_len - q_len, dtype=jnp.bool_)[None, None]
            mask, diagonal = triangle if mask is None else mask & triangle, None
        rows = max(1, INTERPRET_ROWS // block_rows) * block_rows
        return in_pieces(call, sizes=(1, block_heads, rows))(operands, mask)
    return call(operands, mask)


def _call(
    compute: Compute,
    operands: tuple[jax.Array, ...],
    mask: jax.Array | None,
    dtype: DTypeLike,
    block: tuple[int, int, int],
    diagonal: int | None,
    interpret: Interpret,
) -> jax.Array:
    shape = operands[0].shape
    batch, heads, q_len, kv_len = shape
    inputs = operands if mask is None else (mask, *operands)
    return pl.pallas_call(
        functools.partial(_kernel, compute, kv_len, mask is not None, diagonal),
        out_shape=jax.ShapeDtypeStruct(shape, dtype),
        # Heads run innermost: a mask that they share keeps its block index from one step to the
        # next, and Pallas then fetches it once, not once a head.
        grid=(batch, pl.cdiv(q_len, block[1]), heads // block[0]),
        in_specs=[_spec(x.shape, block) for x in inputs],
        out_specs=_spec(shape, block),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",) * 3),
        interpret=interpret,
        name=compute.__name__,
    )(*inputs)


def _spec(shape: tuple[int, ...], block: tuple[int, int, int]) -> pl.BlockSpec:
    """Blocks of an array [B, H, T, S]; an axis of size 1 is one block, whatever the others do."""
    batches, *inner = (size > 1 for size in shape)
    heads, rows, _ = inner

    def index(b: jax.Array, i: jax.Array, h: jax.Array) -> tuple[jax.Array | int, ...]:
        return b if batches else 0, h if heads else 0, i if rows else 0, 0

    sizes = (size if varies else 1 for size, varies in zip(block, inner, strict=True))
    return pl.BlockSpec((None, *sizes), index)


def _kernel(
    compute: Compute, kv_len: int, masked: bool, diagonal: int | None, *refs: jax.Ref
) -> None:
    *inputs, out = refs
    shown = []
    if masked:
        shown.append(jnp.broadcast_to(inputs.pop(0)[...], out.shape))
    number = functools.partial(jax.lax.broadcasted_iota, jnp.int32, out.shape)
    if diagonal is not None:
        first_row = pl.program_id(1) * out.shape[1]
        shown.append(number(2) <= number(1) + (first_row + diagonal))
    if out.shape[2] != kv_len:
        shown.append(number(2) < kv_len)
    visible = functools.reduce(jnp.logical_and, shown) if shown else None
    blocks = [ref[...].astype(jnp.float32) for ref in inputs]
    out[...] = compute(visible, *blocks).astype(out.dtype)
