"""Fused attention with grouped queries: one Pallas TPU kernel, chosen by the number of queries.

`forward` takes blocks of queries, `decode` up to 16 queries against many keys. K and V are read
once for all query heads of their group, and no scores reach HBM.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax

from lab.errors import UnsupportedCell
from lab.kernels import Kernel
from lab.kernels.flash.decode import MAX_QUERIES, decode
from lab.kernels.flash.forward import forward
from lab.kernels.flash.plan import Blocks, default_blocks
from lab.kernels.support import check_attention, check_policy

if TYPE_CHECKING:
    from lab.kernels import Interpret
    from lab.truth.problems import DtypePolicy

__all__ = ["Blocks", "build", "decode", "forward"]


def build(options: Mapping[str, object], *, policy: DtypePolicy, interpret: Interpret) -> Kernel:
    """Build the kernel.

    The options `block_q` and `block_k` are `auto`, which chooses by shape, or multiples of 128;
    `lookahead` is as in `Blocks`.
    """
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

        @jax.custom_vjp
        def call(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            if q.shape[2] <= MAX_QUERIES:
                out, _ = decode(q, k, v, key_mask, causal=causal, scale=factor, interpret=interpret)
            else:
                out, _ = forward(
                    q,
                    k,
                    v,
                    key_mask,
                    causal=causal,
                    scale=factor,
                    blocks=_blocks(options, q, k, causal=causal),
                    interpret=interpret,
                )
            return out.astype(policy.output)

        call.defvjp(_refuse, _refuse)
        return call(q, k, v)

    return Kernel("flash", _masked_softmax, attention)


def _blocks(options: Mapping[str, object], q: jax.Array, k: jax.Array, *, causal: bool) -> Blocks:
    """The blocks that the options name, the rest by shape."""
    group = q.shape[1] // k.shape[1]
    auto = default_blocks(
        q.shape[2], k.shape[2], group, causal=causal, element_bytes=q.dtype.itemsize
    )
    block_q, block_k, lookahead = (options[x] for x in ("block_q", "block_k", "lookahead"))
    return Blocks(
        block_q=block_q if isinstance(block_q, int) else auto.block_q,
        block_k=block_k if isinstance(block_k, int) else auto.block_k,
        lookahead=lookahead if isinstance(lookahead, int) else auto.lookahead,
    )


def _masked_softmax(logits: jax.Array, mask: jax.Array) -> jax.Array:  # noqa: ARG001
    raise UnsupportedCell("scope=softmax: kernel flash is attention alone; use kernel=pallas")


def _refuse(*_: object) -> tuple[jax.Array, Any]:
    raise UnsupportedCell("direction=backward: kernel flash has no gradient; use kernel=pallas")
