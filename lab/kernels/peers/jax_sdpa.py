"""`jax.nn.dot_product_attention`, by XLA or, on an NVIDIA GPU, by cuDNN.

Its own causality is aligned top-left, so the mask is made here where T and S differ; rows without a
visible key, which it answers by a mean, are set to 0, and hidden keys are emptied of what they may
hold. Its gradient is automatic: it rounds where the operations it is made of round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from lab.kernels import Kernel
from lab.kernels.attention import visible
from lab.kernels.peers.limits import require
from lab.kernels.support import check_attention, check_policy, no_softmax

if TYPE_CHECKING:
    from lab.kernels import Interpret
    from lab.kernels.options import Sdpa
    from lab.truth.problems import DtypePolicy

NAME = "jax_sdpa"


def build(
    options: Sdpa,
    *,
    policy: DtypePolicy,
    interpret: Interpret,  # noqa: ARG001 - nothing here is Pallas
) -> Kernel:
    """Build the kernel; `implementation` is xla or cudnn."""
    check_policy(policy)
    implementation = options.implementation

    def attention(
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        *,
        causal: bool,
        key_mask: jax.Array | None = None,
        scale: float | None = None,
    ) -> jax.Array:
        check_attention(q, k, v, key_mask, policy)
        require(policy.name == "bf16", NAME, "is run in bf16 only", policy.name)
        T, S = q.shape[2], k.shape[2]
        # cuDNN is fastest where it makes the mask itself, and the two agree where T = S.
        own = causal and T == S and key_mask is None
        mask = None if own else visible(T, S, causal=causal, key_mask=key_mask)
        if key_mask is not None:
            shown = key_mask[:, None, :, None]
            k, v = jnp.where(shown, k, 0), jnp.where(shown, v, 0)
        q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
        out = jax.nn.dot_product_attention(
            q,
            k,
            v,
            mask=mask,
            is_causal=own,
            scale=scale,
            implementation=implementation,
        )
        out = jnp.swapaxes(out, 1, 2)
        return out if mask is None else jnp.where(mask.any(-1, keepdims=True), out, 0)

    return Kernel(NAME, no_softmax(NAME), attention)
