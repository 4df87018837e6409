"""Fused attention with grouped queries: Pallas TPU kernels, forward, backward and for decoding.

`forward` takes blocks of queries, `decode` up to 16 queries against many keys, `backward` gives the
gradients of both from the log-sum-exp. K and V are read once for all query heads of their group,
and no scores reach HBM.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

import jax

from lab.kernels import Kernel
from lab.kernels.flash import tuned
from lab.kernels.flash.backward import backward as backward_kernel
from lab.kernels.flash.decode import decode as decode_kernel
from lab.kernels.flash.forward import forward as forward_kernel
from lab.kernels.support import check_attention, check_policy, no_softmax
from lab.kernels.winners import MAX_QUERIES

if TYPE_CHECKING:
    from lab.kernels import Interpret
    from lab.kernels.options import FlashBlocks
    from lab.truth.problems import DtypePolicy


class Residuals(NamedTuple):
    """What the backward pass keeps of the forward pass."""

    q: jax.Array
    k: jax.Array
    v: jax.Array
    key_mask: jax.Array | None
    out: jax.Array
    lse: jax.Array


def build(options: FlashBlocks, *, policy: DtypePolicy, interpret: Interpret) -> Kernel:
    """Build the kernel; an option that is `auto` is chosen by shape (`lab.kernels.flash.tuned`)."""
    check_policy(policy)

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
        factor = 1 / math.sqrt(q.shape[3]) if scale is None else scale
        return _attention(options, interpret, causal, factor, q, k, v, key_mask)

    return Kernel("flash", no_softmax("flash"), attention)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _attention(
    options: FlashBlocks,
    interpret: Interpret,
    causal: bool,
    scale: float,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    key_mask: jax.Array | None,
) -> jax.Array:
    out, _ = _run(options, interpret, causal, scale, q, k, v, key_mask, with_lse=False)
    return out


def _run(
    options: FlashBlocks,
    interpret: Interpret,
    causal: bool,
    scale: float,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    key_mask: jax.Array | None,
    *,
    with_lse: bool,
) -> tuple[jax.Array, jax.Array | None]:
    if q.shape[2] <= MAX_QUERIES:
        block_k = tuned.decode_block(
            q.shape, k.shape, str(q.dtype), given={"block_k": options.block_k}
        )
        return decode_kernel(
            q,
            k,
            v,
            key_mask,
            causal=causal,
            scale=scale,
            block_k=block_k,
            interpret=interpret,
            with_lse=with_lse,
        )
    given = {"block_q": options.block_q, "block_k": options.block_k, "lookahead": options.lookahead}
    blocks = tuned.forward_blocks(q.shape, k.shape, str(q.dtype), causal=causal, given=given)
    return forward_kernel(
        q,
        k,
        v,
        key_mask,
        causal=causal,
        scale=scale,
        blocks=blocks,
        interpret=interpret,
        with_lse=with_lse,
    )


def _forward(
    options: FlashBlocks,
    interpret: Interpret,
    causal: bool,
    scale: float,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    key_mask: jax.Array | None,
) -> tuple[jax.Array, Residuals]:
    out, lse = _run(options, interpret, causal, scale, q, k, v, key_mask, with_lse=True)
    assert lse is not None
    return out, Residuals(q, k, v, key_mask, out, lse)


def _backward(
    options: FlashBlocks,
    interpret: Interpret,
    causal: bool,
    scale: float,
    kept: Residuals,
    cotangent: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    given = {
        "block_q": options.backward_block_q,
        "block_k": options.backward_block_k,
        "heads": options.backward_heads,
    }
    blocks = tuned.backward_blocks(
        kept.q.shape, kept.k.shape, str(kept.q.dtype), causal=causal, given=given
    )
    gradients = backward_kernel(
        kept.q,
        kept.k,
        kept.v,
        kept.key_mask,
        kept.out,
        kept.lse,
        cotangent.astype(kept.q.dtype),
        causal=causal,
        scale=scale,
        blocks=blocks,
        interpret=interpret,
    )
    return *gradients, None


_attention.defvjp(_forward, _backward)
