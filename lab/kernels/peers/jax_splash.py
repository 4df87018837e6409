"""JAX's splash attention (`jax.experimental.pallas.ops.tpu.splash_attention`), its grouped form.

It has no scale: the adapter scales the queries, in fp32, and rounds them to the input dtype once
more (exact where the scale is a power of two). The mask is known when it is traced; blocks that it
hides are neither fetched nor computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as implementation,
)
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from lab.kernels import Kernel
from lab.kernels.peers.limits import tpu_kernel
from lab.kernels.support import no_softmax

if TYPE_CHECKING:
    from lab.kernels import Interpret
    from lab.kernels.options import SplashBlocks
    from lab.truth.problems import DtypePolicy

NAME = "jax_splash"


def build(options: SplashBlocks, *, policy: DtypePolicy, interpret: Interpret) -> Kernel:
    """Build the kernel; `block_q`, `block_kv` and `block_kv_compute` are its block lengths."""
    block_q, block_kv, compute = options.block_q, options.block_kv, options.block_kv_compute

    def call(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool, scale: float) -> jax.Array:
        (B, Hq, T, D), (Hkv, S) = q.shape, k.shape[1:3]
        rows, keys = min(block_q, T), min(block_kv, S)
        inner = min(compute, keys)
        sizes = implementation.BlockSizes(
            block_q=rows, block_kv=keys, block_kv_compute=inner,
            block_q_dkv=rows, block_kv_dkv=keys, block_kv_dkv_compute=inner,
            block_q_dq=rows, block_kv_dq=keys,
        )  # fmt: skip
        head = masks.CausalMask((T, S), offset=S - T) if causal else masks.FullMask((T, S))
        kernel = implementation.make_splash_mqa_single_device(
            masks.MultiHeadMask([head] * (Hq // Hkv)), block_sizes=sizes, interpret=bool(interpret)
        )
        scaled = (q.astype(jnp.float32) * scale).astype(q.dtype)
        grouped = scaled.reshape(B, Hkv, Hq // Hkv, T, D)
        return jax.vmap(jax.vmap(kernel))(grouped, k, v).reshape(q.shape)

    attention = tpu_kernel(
        NAME, call, policy, block=max(block_q, block_kv), most_q_len_is_kv_len=True
    )
    return Kernel(NAME, no_softmax(NAME), attention)
