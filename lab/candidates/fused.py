"""A simple fused attention in Pallas, forward and backward, with switches for its faults.

Kept for the known-bad candidates and as a control; not meant to be fast. Forward: a program owns a
block of queries and walks over blocks of keys with an online softmax in scratch memory. Backward:
one kernel owns queries and sums dQ over keys, one owns keys and sums dK, dV over the queries of all
heads of its group. (Dao 2023, FlashAttention-2, algorithms 1 and 2.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
from jax import Array

from lab.candidates.assembly import Attention, Build, Compute, assemble, clean, factor
from lab.candidates.fused_backward import backward
from lab.candidates.fused_forward import forward
from lab.candidates.fused_layout import Layout
from lab.candidates.fused_steps import Fused

if TYPE_CHECKING:
    from lab.truth.problems import DtypePolicy

TPU_LANES = 128


def _attention(kernels: Fused, interpret: bool) -> Compute:
    """The kernels as one differentiable function."""

    def compute(
        q: Array, k: Array, v: Array, causal: bool, key_mask: Array | None, scale: float | None
    ) -> Array:
        scale = factor(scale, q.shape[3])
        layout = Layout(
            batch=q.shape[0],
            q_heads=q.shape[1],
            kv_heads=k.shape[1],
            q_len=q.shape[2],
            kv_len=k.shape[2],
            width=q.shape[3],
            block_q=kernels.block_q,
            # A TPU tile has 128 lanes; interpreted, short inputs are to cross several blocks.
            block_k=kernels.block_k if interpret else TPU_LANES,
            interpret=interpret,
        )
        shown = layout.shown(key_mask, kernels.tail_visible)
        if kernels.cleaned:
            k, v = clean(k, key_mask), clean(v, key_mask)

        @jax.custom_vjp
        def call(q: Array, k: Array, v: Array, shown: Array) -> Array:
            return forward(kernels, layout, shown, q, k, v, causal, scale)[0]

        def fwd(q: Array, k: Array, v: Array, shown: Array) -> tuple[Array, tuple[Array, ...]]:
            out, lse = forward(kernels, layout, shown, q, k, v, causal, scale)
            return out, (q, k, v, shown, out, lse)

        def bwd(saved: tuple[Array, ...], cotangent: Array) -> tuple[Array, Array, Array, None]:
            q, k, v, shown, out, lse = saved
            gradients = backward(
                kernels, layout, shown, (q, k, v), (out, lse), cotangent, causal, scale
            )
            return (*gradients, None)

        call.defvjp(fwd, bwd)
        return call(q, k, v, shown)

    return compute


def fused(kernels: Fused) -> Build:
    """A factory for these kernels."""

    def build(policy: DtypePolicy, interpret: bool) -> Attention:
        return assemble(_attention(kernels, interpret))(policy, interpret)

    return build
