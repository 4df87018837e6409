"""JAX's Pallas TPU flash attention (`jax.experimental.pallas.ops.tpu.flash_attention`).

It knows no grouped heads: the adapter repeats K and V for each query head, which costs HBM traffic
and is timed. Its blocks default to 128, the slowest choice on v5e; `block` sets all of them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu import flash_attention as implementation

from lab.kernels import Kernel
from lab.kernels.peers.limits import tpu_kernel
from lab.kernels.support import no_softmax

if TYPE_CHECKING:
    from lab.kernels import Interpret
    from lab.kernels.options import OneBlock
    from lab.truth.problems import DtypePolicy

NAME = "jax_flash"


def build(options: OneBlock, *, policy: DtypePolicy, interpret: Interpret) -> Kernel:
    """Build the kernel; `block` is the length of every block, forward and backward."""
    block = options.block

    def call(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool, scale: float) -> jax.Array:
        group = q.shape[1] // k.shape[1]
        k, v = (jnp.repeat(x, group, axis=1) for x in (k, v))
        rows, keys = min(block, q.shape[2]), min(block, k.shape[2])
        sizes = implementation.BlockSizes(
            block_q=rows, block_k_major=keys, block_k=keys, block_b=1,
            block_q_major_dkv=rows, block_k_major_dkv=keys, block_k_dkv=keys, block_q_dkv=rows,
            block_k_major_dq=keys, block_k_dq=keys, block_q_dq=rows,
        )  # fmt: skip
        # It has no argument for interpret mode.
        mode = pltpu.force_tpu_interpret_mode() if interpret else contextlib.nullcontext()
        with mode:
            return implementation.flash_attention(
                q, k, v, causal=causal, sm_scale=scale, block_sizes=sizes
            )

    attention = tpu_kernel(NAME, call, policy, block=block, most_q_len_is_kv_len=False)
    return Kernel(NAME, no_softmax(NAME), attention)
