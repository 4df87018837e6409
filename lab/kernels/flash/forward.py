"""Fused attention forward in one Pallas TPU kernel, scores transposed.

A block of keys against 128 queries gives S^T = K Q^T [keys, 128]: queries lie along lanes, so the
running maximum and the sum of a query cost one register for 128 of them, and the product with
the values is O^T = V^T P^T. (Online softmax: Dao 2023, FlashAttention-2, algorithm 1.)
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lab.kernels.flash.arithmetic import pad
from lab.kernels.flash.blocks import Blocks, default_blocks
from lab.kernels.flash.forward_step import kernel
from lab.kernels.flash.plan import Plan, make_plan
from lab.kernels.sizes import LANES, SUBLANES

if TYPE_CHECKING:
    from lab.kernels import Interpret

# Pallas gives the numbers of a program in its grid no usable type.
Index = Any


def forward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    key_mask: jax.Array | None = None,
    *,
    causal: bool,
    scale: float,
    blocks: Blocks | None = None,
    interpret: Interpret = False,
    with_lse: bool = False,
) -> tuple[jax.Array, jax.Array | None]:
    """Attention by one kernel.

    Args:
        q: [B, Hq, T, D], bf16 or fp32; so are k and v.
        k: [B, Hkv, S, D].
        v: [B, Hkv, S, D].
        key_mask: Bool [B, S], True where a key may be attended; None for all.
        causal: query i sees key j only where j <= i + S - T.
        scale: factor of the logits, above 0.
        blocks: sizes; None chooses by shape.
        interpret: as `pallas_call` takes it.
        with_lse: return the log-sum-exp as well.

    Returns:
        [B, Hq, T, D] in q's dtype, and fp32 [B, Hq, T], -inf where a row sees no key, or None.

    Raises:
        ValueError: a scale that is not above 0.
        UnsupportedCell: blocks too large for VMEM.
    """
    if not scale > 0:
        raise ValueError(f"scale is {scale}; it must be above 0")
    q_len, kv_len = q.shape[2], k.shape[2]
    if causal and q_len > kv_len:
        # The first rows see nothing; the others are a square problem.
        blind = q_len - kv_len
        out, lse = forward(
            q[:, :, blind:],
            k,
            v,
            key_mask,
            causal=True,
            scale=scale,
            blocks=blocks,
            interpret=interpret,
            with_lse=with_lse,
        )
        out = jnp.pad(out, ((0, 0), (0, 0), (blind, 0), (0, 0)))
        if lse is not None:
            lse = jnp.pad(lse, ((0, 0), (0, 0), (blind, 0)), constant_values=-jnp.inf)
        return out, lse
    group = q.shape[1] // k.shape[1]
    blocks = blocks or default_blocks(
        q_len, kv_len, group, causal=causal, element_bytes=q.dtype.itemsize
    )
    plan = make_plan(
        q.shape,
        k.shape,
        blocks,
        causal=causal,
        masked=key_mask is not None,
        element_bytes=q.dtype.itemsize,
    )
    return _call(plan, q, k, v, key_mask, scale, interpret, with_lse)


def _call(
    plan: Plan,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    key_mask: jax.Array | None,
    scale: float,
    interpret: Interpret,
    with_lse: bool,
) -> tuple[jax.Array, jax.Array | None]:
    pairs = plan.batch * plan.kv_heads
    width, block_q = plan.head_dim, plan.blocks.block_q
    q = pad(q, 2, plan.front, plan.q_rows - plan.front - plan.q_len)
    q = q.reshape(pairs * plan.parts, plan.heads, plan.q_rows, width)
    more_keys = plan.k_rows - plan.kv_len
    k, v = (pad(x, 2, 0, more_keys).reshape(pairs, plan.k_rows, width) for x in (k, v))

    def queries(index: Index) -> Index:
        return lax.min(index, plan.steps - 1)

    def rows(index: Index) -> tuple[Index, ...]:
        return lax.div(index, plan.q_blocks), 0, lax.rem(index, plan.q_blocks)

    def results(index: Index) -> tuple[Index, ...]:
        # A block is finished beside the start of the next one.
        return rows(lax.max(index - 1, 0))

    def pair(index: Index) -> Index:
        return lax.div(queries(index), plan.parts * plan.q_blocks)

    def span(index: Index, s: Index) -> Index:
        # A span that is not walked over is not fetched: the index stays what it was.
        return 0 if plan.spans == 1 else lax.min(s, plan.last_span(queries(index)))

    block = (1, plan.heads, block_q, width)
    keys = pl.BlockSpec((1, plan.span, width), lambda n, s: (pair(n), span(n, s), 0))
    inputs = [(q, pl.BlockSpec(block, lambda n, _: (*rows(queries(n)), 0))), (k, keys), (v, keys)]
    outputs = [
        (jax.ShapeDtypeStruct(q.shape, q.dtype), pl.BlockSpec(block, lambda n, _: (*results(n), 0)))
    ]
    scratch = [
        pltpu.VMEM((plan.tiles, plan.blocks.block_k, LANES), jnp.float32),
        pltpu.VMEM((width, plan.blocks.block_k), v.dtype),
        pltpu.VMEM((plan.tiles, 1, LANES), jnp.float32),
        pltpu.VMEM((plan.tiles, SUBLANES, LANES), jnp.float32),
        pltpu.VMEM((plan.tiles, width, LANES), jnp.float32),
    ]
    if key_mask is not None:
        shown = pad(key_mask.astype(jnp.float32), 1, 0, more_keys)[:, None]
        spec = pl.BlockSpec(
            (1, 1, plan.span), lambda n, s: (lax.div(pair(n), plan.kv_heads), 0, span(n, s))
        )
        inputs.append((shown, spec))
        scratch += [
            pltpu.VMEM((plan.span, LANES), jnp.float32),
            pltpu.VMEM((plan.span, width), v.dtype),
        ]
    if with_lse:
        shape = jax.ShapeDtypeStruct(q.shape[:3], jnp.float32)
        outputs.append((shape, pl.BlockSpec(block[:3], lambda n, _: results(n))))
    out, *rest = pl.pallas_call(
        functools.partial(kernel, plan, scale, key_mask is not None, with_lse),
        grid=(plan.steps + 1, plan.spans),
        in_specs=[spec for _, spec in inputs],
        out_specs=[spec for _, spec in outputs],
        out_shape=[shape for shape, _ in outputs],
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary", "arbitrary"),
            vmem_limit_bytes=plan.vmem_limit_bytes(),
        ),
        interpret=interpret,
        name="flash_forward",
    )(*[x for x, _ in inputs])
    heads_of_batch = (plan.batch, -1, plan.q_rows)
    cut = slice(plan.front, plan.front + plan.q_len)
    out = out.reshape(*heads_of_batch, width)[:, :, cut]
    return out, rest[0].reshape(heads_of_batch)[:, :, cut] if with_lse else None
