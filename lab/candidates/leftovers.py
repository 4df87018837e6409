"""Known-bad: something of training or of another model was left on, and blocks that are hidden.

A soft cap on the logits, dropout, rows whose position is taken from heads folded into them, and an
online softmax that forgets that a whole block of keys may be hidden.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from lab.candidates.assembly import (
    Attention,
    Parts,
    assemble,
    einsum,
    factor,
    heads,
    logits,
    softmax,
    visible,
)
from lab.truth.problems import DtypePolicy

BLOCK = 128  # keys
KEPT = 0.9  # share of the weights that dropout keeps


def _capped(q: Array, k: Array, scale: float | None) -> Array:
    return 10.0 * jnp.tanh(logits(q, k, scale) / 10.0)


def _dropped(scores: Array, mask: Array) -> Array:
    weights = softmax(scores, mask)
    place = jnp.zeros(scores.shape, jnp.int32)
    for axis, step in enumerate((7919, 104729, 1299, 15485)):
        place += lax.broadcasted_iota(jnp.int32, scores.shape, axis) * step
    chance = jnp.sin(place.astype(scores.dtype) * 12.9898) * 43758.5453
    return jnp.where(chance - jnp.floor(chance) < KEPT, weights / KEPT, 0)


def _grouped_rows(policy: DtypePolicy, interpret: bool) -> Attention:
    """Causality from row // group, as if the heads of a group lay between the rows."""

    def compute(
        q: Array, k: Array, v: Array, causal: bool, key_mask: Array | None, scale: float | None
    ) -> Array:
        group = q.shape[1] // k.shape[1]

        def mask(q_len: int, kv_len: int, causal: bool, key_mask: Array | None) -> Array:
            seen = visible(q_len, kv_len, False, key_mask)
            rows = lax.div(jnp.arange(q_len), group) + (kv_len - q_len)
            return seen & (jnp.arange(kv_len)[None, :] <= rows[:, None]) if causal else seen

        return Parts(mask=mask)(q, k, v, causal, key_mask, scale)

    return assemble(compute)(policy, interpret)


def _online(*, guarded: bool, own_frame: bool, block: int) -> Parts:
    """Weights by an online softmax, as plain products: the maximum and the sum, block by block."""

    def weights(scores: Array, mask: Array) -> Array:
        S = scores.shape[-1]
        mask = jnp.broadcast_to(mask, scores.shape)
        top = jnp.full((*scores.shape[:3], 1), -jnp.inf, scores.dtype)
        parts: list[Array] = []
        total = jnp.zeros_like(top)
        step = max(block, S // 16)  # the loop is unrolled
        for start in range(0, S, step):
            s, m = scores[..., start : start + step], mask[..., start : start + step]
            peak = jnp.max(jnp.where(m, s, -jnp.inf), axis=-1, keepdims=True)
            new = lax.stop_gradient(jnp.maximum(top, peak))
            base = jnp.where(jnp.isfinite(new), new, 0) if guarded else new
            frame = jnp.where(jnp.isfinite(peak), lax.stop_gradient(peak), 0)
            p = jnp.exp(jnp.where(m, s, -jnp.inf) - (frame if own_frame else base))
            rescale = jnp.exp(top - base)
            parts = [x * rescale for x in parts] + [p]
            total, top = total * rescale + p.sum(-1, keepdims=True), new
        some = mask.any(-1, keepdims=True)
        joined = jnp.concatenate(parts, axis=-1)
        return jnp.where(some, joined / jnp.where(some, total, 1), 0)

    return Parts(weights=weights)


soft_cap_left_on = assemble(Parts(logits=_capped))
dropout_left_on = assemble(Parts(weights=_dropped))
causal_row_by_group = _grouped_rows
hidden_first_block = assemble(_online(guarded=False, own_frame=False, block=BLOCK))
block_in_its_own_frame = assemble(_online(guarded=True, own_frame=True, block=32))
zero_last_rows = assemble(
    lambda q, k, v, causal, key_mask, scale: (
        Parts()(q, k, v, causal, key_mask, scale)
        * (jnp.arange(q.shape[2]) < max(q.shape[2] // 64 * 64, 1))[:, None].astype(q.dtype)
    )
)


def repeat_of_inputs(policy: DtypePolicy, interpret: bool) -> Attention:  # noqa: ARG001
    """Control: K and V repeated in the input's dtype, so dK and dV are rounded by query head."""

    def attention(
        q: Array,
        k: Array,
        v: Array,
        *,
        causal: bool,
        key_mask: Array | None = None,
        scale: float | None = None,
    ) -> Array:
        k, v = heads(k, key_mask, q.shape[1]), heads(v, key_mask, q.shape[1])
        wide = [x.astype(policy.logits) for x in (q, k, v)]
        scores = einsum("bhtd,bhsd->bhts", wide[0], wide[1]) * factor(scale, q.shape[3])
        weights = softmax(scores, visible(q.shape[2], k.shape[2], causal, key_mask))
        return einsum("bhts,bhsd->bhtd", weights, wide[2]).astype(policy.output)

    return attention
