"""Row-wise Pallas kernels over [B, H, T, S]: one grid step sees some whole rows of one head."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lab.errors import UnsupportedCell
from lab.kernels.pieces import in_pieces

if TYPE_CHECKING:
    from jax.typing import DTypeLike

    from lab.kernels import Interpret

SUBLANES, LANES = 8, 128
"""The fp32 tile of a TPU: a block is a whole number of tiles."""

VMEM_BUDGET_BYTES = 12 << 20
"""Three quarters of what XLA:TPU lets a kernel use by default on v5e (a scoped limit of 16 MiB)."""

MAX_BLOCK_ROWS = 256

INTERPRET_ROWS = 256
"""Rows that interpret mode runs at once: it copies its arrays whole at every grid step."""

Compute = Callable[..., jax.Array]
"""(visible Bool [rows, width] or None for all, *operands fp32 [rows, width]) -> fp32 [rows, width].

Columns that are not visible, or are padding, hold anything, NaN included.
"""


def auto_block_rows(q_len: int, kv_len: int, element_bytes: int) -> int:
    """Choose how many rows a block has: what fits the VMEM budget, spread evenly over T.

    Args:
        q_len: rows of a head, T.
        kv_len: elements of a row, S.
        element_bytes: VMEM bytes for each element of a block, buffers and temporaries together.

    Raises:
        UnsupportedCell: one tile of rows is too much already.
    """
    tile_bytes = SUBLANES * _round_up(kv_len, LANES) * element_bytes
    fitting = VMEM_BUDGET_BYTES // tile_bytes * SUBLANES
    if not fitting:
        raise UnsupportedCell(
            f"{SUBLANES} rows of {kv_len} keys take {tile_bytes / 2**20:.1f} MiB of VMEM, the "
            f"budget is {VMEM_BUDGET_BYTES >> 20} MiB: this kernel holds whole rows"
        )
    blocks = pl.cdiv(q_len, min(fitting, MAX_BLOCK_ROWS))
    return _round_up(pl.cdiv(q_len, blocks), SUBLANES)


def map_rows(
    compute: Compute,
    operands: tuple[jax.Array, ...],
    mask: jax.Array | None,
    dtype: "DTypeLike",
    *,
    block_rows: int | None,
    interpret: "Interpret",
) -> jax.Array:
    """Apply `compute` to whole rows, as one Pallas kernel of its name.

    Args:
        compute: the function of a block; it sees its operands in fp32.
        operands: arrays [B, H, T, S] of any float dtype, converted block by block in the kernel.
        mask: Bool of rank 4 with axes of size 1 where it is broadcast, read as it is; or None.
        dtype: the result's dtype.
        block_rows: rows of a block, a multiple of 8; None chooses by memory.
        interpret: as `pallas_call` takes it. With True the same grid is run in pieces.

    Returns:
        [B, H, T, S] in `dtype`.
    """
    q_len, kv_len = operands[0].shape[2:]
    if block_rows is None:
        # Every block is double-buffered; `compute` holds about three fp32 temporaries.
        streamed = sum(x.dtype.itemsize for x in operands) + jnp.dtype(dtype).itemsize
        element_bytes = 2 * (streamed + 4 * (mask is not None)) + 3 * 4
        block_rows = auto_block_rows(q_len, kv_len, element_bytes)
    call = functools.partial(_call, compute, dtype, block_rows, interpret)
    if interpret is True:
        rows = max(1, INTERPRET_ROWS // block_rows) * block_rows
        call = in_pieces(call, sizes=(1, 1, rows))
    return call(operands, mask)


def _call(
    compute: Compute,
    dtype: "DTypeLike",
    block_rows: int,
    interpret: "Interpret",
    operands: tuple[jax.Array, ...],
    mask: jax.Array | None,
) -> jax.Array:
    batch, heads, q_len, kv_len = operands[0].shape
    width = _round_up(kv_len, LANES)

    def block(shape: tuple[int, ...]) -> pl.BlockSpec:
        per_batch, per_head, per_row, per_key = (size > 1 for size in shape)

        def index(b: jax.Array, i: jax.Array, h: jax.Array) -> tuple[jax.Array | int, ...]:
            return (b if per_batch else 0, h if per_head else 0, i if per_row else 0, 0)

        rows, columns = block_rows if per_row else 1, width if per_key else 1
        return pl.BlockSpec((None, None, rows, columns), index)

    full = pl.BlockSpec((None, None, block_rows, width), lambda b, i, h: (b, h, i, 0))
    inputs = operands if mask is None else (mask, *operands)
    return pl.pallas_call(
        functools.partial(_kernel, compute, kv_len, masked=mask is not None),
        out_shape=jax.ShapeDtypeStruct(operands[0].shape, dtype),
        # Heads run innermost: a mask that they share then keeps its block index from one step to
        # the next, and Pallas fetches it once, not once a head.
        grid=(batch, pl.cdiv(q_len, block_rows), heads),
        in_specs=[full] * len(operands) if mask is None else [block(mask.shape)] + [full] * len(operands),
        out_specs=full,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",) * 3),
        interpret=interpret,
        name=compute.__name__,
    )(*inputs)


def _kernel(compute: Compute, kv_len: int, *refs: jax.Ref, masked: bool) -> None:
    *inputs, out = refs
    visible = None
    if masked:
        visible = jnp.broadcast_to(inputs.pop(0)[...], out.shape)
    if out.shape[1] != kv_len:
        inside = jax.lax.broadcasted_iota(jnp.int32, out.shape, 1) < kv_len
        visible = inside if visible is None else visible & inside
    blocks = [ref[...].astype(jnp.float32) for ref in inputs]
    out[...] = compute(visible, *blocks).astype(out.dtype)


def _round_up(size: int, multiple: int) -> int:
    return (size + multiple - 1) // multiple * multiple
