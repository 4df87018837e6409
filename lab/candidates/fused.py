"""A simple fused attention in Pallas, forward and backward, with switches for its faults.

Kept for the known-bad candidates and as a control; not meant to be fast. Forward: a program owns a
block of queries and walks over blocks of keys with an online softmax in scratch memory. Backward:
one kernel owns queries and sums dQ over keys, one owns keys and sums dK, dV over the queries of all
heads of its group. (Dao 2023, FlashAttention-2, algorithms 1 and 2.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
from jax import Array

from lab.candidates.assembly import Attention, Build, Compute, assemble, clean, factor
from lab.candidates.fused_backward import backward
from lab.candidates.fused_forward import forward
from lab.candidates.fused_layout import Index, Layout, div

if TYPE_CHECKING:
    from lab.truth.problems import DtypePolicy

TPU_LANES = 128


@dataclass(frozen=True)
class Fused:
    """The kernels' sizes and replaceable steps; the defaults are right.

    Forward. offset: of the causal diagonal, from T and S. kv_head: which key/value head a query
    head reads, from its number, the group's size and the number of key/value heads. kv_block: the
    index map of key blocks. live: whether a causal program reads a block, from the block's first
    key and the program's last query. tail_visible: whether keys that fill the last block count.
    cleaned: whether hidden keys and values are zeroed. rescale: what becomes of the output when the
    maximum moves. starts: whether a query block starts afresh.
    finishes_when_live: the output is written in the last block read, if there is one.

    Backward. backward_causal, backward_offset: its causal mask. base: of the exponential that
    recomputes the weights, if not e. score_gradient: from P, dP and the row term. add_dq: dQ over
    key blocks. add_dkv: dK, dV over query blocks. group: how many heads of a group are summed.
    dk_scale: the factor of dK, from the scale.
    """

    block_q: int = 16
    block_k: int = 32
    offset: Callable[[int, int], int] = lambda T, S: S - T
    kv_head: Callable[[Index, int, int], Index] = lambda h, group, _kv_heads: div(h, group)
    kv_block: Callable[[Index], Index] = lambda j: j
    live: Callable[[Index, Index], Index] = lambda first_key, last_query: first_key <= last_query
    tail_visible: bool = False
    cleaned: bool = True
    rescale: Callable[[Array, Array], Array] = lambda out, correction: out * correction
    starts: Callable[[Index], Index] = lambda _i: True
    finishes_when_live: bool = False
    backward_causal: bool = True
    backward_offset: Callable[[int, int], int] = lambda T, S: S - T
    base: float | None = None
    score_gradient: Callable[[Array, Array, Array], Array] = lambda p, dp, delta: p * (dp - delta)
    add_dq: Callable[[Array, Array], Array] = lambda total, term: total + term
    add_dkv: Callable[[Array, Array], Array] = lambda total, term: total + term
    group: Callable[[int], int] = lambda group: group
    dk_scale: Callable[[float], float] = lambda scale: scale

    def attention(self, interpret: bool) -> Compute:
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
                block_q=self.block_q,
                # A TPU tile has 128 lanes; interpreted, short inputs are to cross several blocks.
                block_k=self.block_k if interpret else TPU_LANES,
                interpret=interpret,
            )
            shown = layout.shown(key_mask, self.tail_visible)
            if self.cleaned:
                k, v = clean(k, key_mask), clean(v, key_mask)

            @jax.custom_vjp
            def call(q: Array, k: Array, v: Array, shown: Array) -> Array:
                return forward(self, layout, shown, q, k, v, causal, scale)[0]

            def fwd(q: Array, k: Array, v: Array, shown: Array) -> tuple[Array, tuple[Array, ...]]:
                out, lse = forward(self, layout, shown, q, k, v, causal, scale)
                return out, (q, k, v, shown, out, lse)

            def bwd(saved: tuple[Array, ...], cotangent: Array) -> tuple[Array, Array, Array, None]:
                q, k, v, shown, out, lse = saved
                gradients = backward(
                    self, layout, shown, (q, k, v), (out, lse), cotangent, causal, scale
                )
                return (*gradients, None)

            call.defvjp(fwd, bwd)
            return call(q, k, v, shown)

        return compute


def fused(kernels: Fused) -> Build:
    """A factory for these kernels."""

    def build(policy: DtypePolicy, interpret: bool) -> Attention:
        return assemble(kernels.attention(interpret))(policy, interpret)

    return build
