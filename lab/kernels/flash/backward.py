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
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lab.kernels.flash.arithmetic import pad
from lab.kernels.flash.backward_plan import BackwardBlocks, Grid, default_blocks, parts_of
from lab.kernels.flash.backward_step import kernel
from lab.kernels.sizes import round_up

if TYPE_CHECKING:
    from lab.kernels import Interpret


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
    part, parts = parts_of(rows + offset if causal else kv_len, head_dim, q.dtype, blocks)
    keys = part * parts

    def pad_rows(x: jax.Array, value: float = 0.0) -> jax.Array:
        x = pad(x, 2, front, rows - front - q_len, value)
        return x.reshape(batch, kv_heads, group, *x.shape[2:])

    k, v = (pad(x, 2, 0, keys - kv_len) for x in (k, v))
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
    dq = functools.reduce(jnp.add, (pad(r[0], 3, rows - r[0].shape[3], 0) for r in results))
    dq = dq.reshape(q.shape[0], q_heads, rows, head_dim)[:, :, front : front + q_len]
    dk, dv = (
        (r[0] if parts == 1 else jnp.concatenate(r, axis=2))[:, :, :kv_len]
        for r in zip(*(r[1:] for r in results), strict=True)
    )
    if key_mask is not None:
        dk, dv = (jnp.where(key_mask[:, None, :, None], x, 0) for x in (dk, dv))
    return dq.astype(q.dtype), dk, dv


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
        functools.partial(kernel, grid),
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
