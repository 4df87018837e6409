"""Control: a Pallas kernel for one batch entry, batched by `jax.vmap`.

JAX's own kernels are used this way. The batch becomes a new leading grid axis, which an interpreter
that reads `dimension_semantics` may not expect: what it cannot run is no fault of the kernel.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lab.candidates.assembly import (
    Attention,
    assemble,
    clean,
    einsum,
    factor,
    softmax,
    visible,
    with_backward,
)
from lab.candidates.gradients import Terms

if TYPE_CHECKING:
    from lab.candidates.fused_layout import Ref
    from lab.truth.problems import DtypePolicy


def _kernel(seen: Ref, q: Ref, k: Ref, v: Ref, out: Ref, *, scale: float) -> None:
    scores = einsum("td,sd->ts", q[...], k[...]) * scale
    out[...] = einsum("ts,sd->td", softmax(scores, seen[...] > 0), v[...])


def pallas_vmapped(policy: DtypePolicy, interpret: bool) -> Attention:
    """The forward pass by the kernel, the backward pass spelled out."""

    def forward(
        q: Array, k: Array, v: Array, causal: bool, key_mask: Array | None, scale: float | None
    ) -> Array:
        batch, q_heads, q_len, width = q.shape
        group, kv_len = q_heads // k.shape[1], k.shape[2]
        seen = visible(q_len, kv_len, causal, key_mask)[:, 0].astype(jnp.int32)
        seen = jnp.broadcast_to(seen, (batch, q_len, kv_len))
        rows = pl.BlockSpec((None, q_len, width), lambda h: (h, 0, 0))
        keys = pl.BlockSpec((None, kv_len, width), lambda h: (jax.lax.div(h, group), 0, 0))
        entry = pl.pallas_call(
            functools.partial(_kernel, scale=factor(scale, width)),
            grid=(q_heads,),
            in_specs=[pl.BlockSpec((q_len, kv_len), lambda _: (0, 0)), rows, keys, keys],
            out_specs=rows,
            out_shape=jax.ShapeDtypeStruct(q.shape[1:], q.dtype),
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
            interpret=interpret,
        )
        return jax.vmap(entry)(seen, q, clean(k, key_mask), clean(v, key_mask))

    return assemble(with_backward(forward, Terms()))(policy, interpret)
