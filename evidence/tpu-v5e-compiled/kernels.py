"""Kernels for the cross-check of the two sources, as custom candidates (see README.md)."""
# ruff: noqa: INP001, ANN401 - a user's file, not part of a package; refs have no public type

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl


def flash_512(q: jax.Array, k: jax.Array, v: jax.Array, **options: Any) -> jax.Array:
    """JAX's flash attention, all blocks 512."""
    return _flash(q, k, v, 512, **options)


def flash_1024(q: jax.Array, k: jax.Array, v: jax.Array, **options: Any) -> jax.Array:
    """JAX's flash attention, all blocks 1024."""
    return _flash(q, k, v, 1024, **options)


def flash_128(q: jax.Array, k: jax.Array, v: jax.Array, **options: Any) -> jax.Array:
    """JAX's flash attention, all blocks 128, its default."""
    return _flash(q, k, v, 128, **options)


def splash(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    """JAX's splash attention, causal: which blocks it visits is a literal in scalar memory."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as mask

    heads, length = q.shape[1:3]
    blocks = kernel.BlockSizes(block_q=1024, block_kv=1024, block_kv_compute=512)
    masks = mask.MultiHeadMask([mask.CausalMask((length, length)) for _ in range(heads)])
    call = kernel.make_splash_mha(masks, block_sizes=blocks, head_shards=1, q_seq_shards=1)
    return call(q[0] * jnp.asarray(q.shape[3] ** -0.5, q.dtype), k[0], v[0])[None]


def packed(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    """Causal, the query heads of a group folded into rows: its blocks need a strided copy."""
    heads, length, dim = q.shape[1:]
    kv_heads = k.shape[1]
    group, block_q, block_k = heads // kv_heads, 64, 256

    def kernel(q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any) -> None:
        rows = q_ref[0].reshape(group * block_q, dim) * jnp.asarray(dim**-0.5, q.dtype)
        block = pl.program_id(1)

        def step(j: Any, carry: Any) -> Any:
            top, total, out = carry
            keys = pl.ds(j * block_k, block_k)
            s = jnp.dot(rows, k_ref[0, 0, keys].T, preferred_element_type=jnp.float32)
            row = block * block_q + lax.rem(lax.broadcasted_iota(jnp.int32, s.shape, 0), block_q)
            column = j * block_k + lax.broadcasted_iota(jnp.int32, s.shape, 1)
            s = jnp.where(column <= row, s, -1e30)
            new = jnp.maximum(top, s.max(-1, keepdims=True))
            p, decay = jnp.exp(s - new), jnp.exp(top - new)
            pv = jnp.dot(p.astype(q.dtype), v_ref[0, 0, keys], preferred_element_type=jnp.float32)
            return new, total * decay + p.sum(-1, keepdims=True), out * decay + pv

        shape = (group * block_q, 1)
        start = (jnp.full(shape, -1e30), jnp.zeros(shape), jnp.zeros((shape[0], dim)))
        trips = lax.div((block + 1) * block_q + block_k - 1, block_k)
        _, total, out = lax.fori_loop(0, trips, step, start)
        o_ref[0] = (out / total).astype(o_ref.dtype).reshape(group, block_q, dim)

    rows = pl.BlockSpec((1, group, block_q, dim), lambda h, i: (0, h, i, 0))
    keys = pl.BlockSpec((1, 1, length, dim), lambda h, _: (0, h, 0, 0))
    return pl.pallas_call(
        kernel,
        jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(kv_heads, length // block_q),
        in_specs=[rows, keys, keys],
        out_specs=rows,
        name="packed",
    )(q, k, v)


def _flash(
    q: jax.Array, k: jax.Array, v: jax.Array, block: int, *, causal: bool, **_: Any
) -> jax.Array:
    from jax.experimental.pallas.ops.tpu import flash_attention as module

    backward = dict.fromkeys(
        (
            "block_q_major_dkv", "block_k_major_dkv", "block_k_dkv", "block_q_dkv",
            "block_k_major_dq", "block_k_dq", "block_q_dq",
        ),
        block,
    )  # fmt: skip
    blocks = module.BlockSizes(
        block_q=block, block_k_major=block, block_k=block, block_b=1, **backward
    )
    return module.flash_attention(
        q, k, v, causal=causal, block_sizes=blocks, sm_scale=q.shape[-1] ** -0.5
    )
