"""Split keys: ranges of keys attended apart and merged by their log-sum-exp, right and wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from lab.candidates.assembly import Build, assemble, einsum, heads, logits, visible

Merge = Callable[[Array, Array, Array], Array]
"""Weights [N, ..., 1] of N partial results from their maximum, sum and log-sum-exp, [N, ..., 1]."""


def _by_lse(_peak: Array, _total: Array, lse: Array) -> Array:
    live = jnp.isfinite(lse)
    top = jnp.max(jnp.where(live, lse, -jnp.inf), axis=0, keepdims=True)
    base = lax.stop_gradient(jnp.where(jnp.isfinite(top), top, 0))
    weights = jnp.where(live, jnp.exp(jnp.where(live, lse, base) - base), 0)
    total = jnp.sum(weights, axis=0, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def _evenly(_peak: Array, total: Array, _lse: Array) -> Array:
    live = (total > 0).astype(total.dtype)
    return live / jnp.maximum(jnp.sum(live, axis=0, keepdims=True), 1)


def _by_peak(peak: Array, total: Array, _lse: Array) -> Array:
    return _by_lse(peak, total, jnp.where(total > 0, peak, -jnp.inf))


def _base_two_as_e(peak: Array, total: Array, lse: Array) -> Array:
    # The partial log-sum-exp is in base 2, the merge takes it for base e.
    return _by_lse(peak, total, lse / math.log(2))


def split(parts: int, merge: Merge = _by_lse) -> Build:
    """Attention over `parts` ranges of keys (fewer where keys are few), merged."""

    def compute(
        q: Array, k: Array, v: Array, causal: bool, key_mask: Array | None, scale: float | None
    ) -> Array:
        q_len, kv_len = q.shape[2], k.shape[2]
        k, v = heads(k, key_mask, q.shape[1]), heads(v, key_mask, q.shape[1])
        scores, mask = logits(q, k, scale), visible(q_len, kv_len, causal, key_mask)
        step = -(-kv_len // parts)
        partial = [
            _attend(
                *(
                    lax.slice_in_dim(x, at, min(at + step, kv_len), axis=axis)
                    for x, axis in ((scores, 3), (mask, 3), (v, 2))
                )
            )
            for at in range(0, kv_len, step)
        ]
        out, peak, total, lse = (jnp.stack(x) for x in zip(*partial, strict=True))
        return jnp.sum(out * merge(peak, total, lse), axis=0)

    return assemble(compute)


def _attend(scores: Array, mask: Array, v: Array) -> tuple[Array, Array, Array, Array]:
    """Output, maximum, sum and log-sum-exp of one range; -inf where it holds no visible key."""
    peak = lax.stop_gradient(jnp.max(jnp.where(mask, scores, -jnp.inf), axis=-1, keepdims=True))
    base = jnp.where(jnp.isfinite(peak), peak, 0)
    weights = jnp.where(mask, jnp.exp(jnp.where(mask, scores, base) - base), 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    safe = jnp.where(total > 0, total, 1)
    out = einsum("bhts,bhsd->bhtd", weights / safe, v)
    return out, peak, total, jnp.where(total > 0, base + jnp.log(safe), -jnp.inf)


split_2 = split(2)
split_3 = split(3)
split_8 = split(8)
split_merged_evenly = split(3, _evenly)
split_merged_by_max = split(3, _by_peak)
split_merged_in_base_two = split(3, _base_two_as_e)
