"""Known-bad in the backward pass alone: each replaces one term of it; the forward pass is right."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from lab.candidates.assembly import logits, repeat, visible
from lab.candidates.gradients import (
    Terms,
    by_group,
    key_gradient,
    query_gradient,
    score_gradient,
    value_gradient,
    wrong_in,
)

BLOCK = 16  # keys in a block, for faults at a block's edge


Mask = Callable[[int, int, bool, "Array | None"], Array]


def _causal_from(offset: Callable[[int, int], int]) -> Mask:
    def mask(q_len: int, kv_len: int, causal: bool, key_mask: Array | None) -> Array:
        keys = visible(q_len, kv_len, False, key_mask)
        triangle = jnp.tril(jnp.ones((q_len, kv_len), bool), offset(q_len, kv_len))
        return keys & triangle if causal else keys

    return mask


def _uncleaned(x: Array, _key_mask: Array | None, q_heads: int) -> Array:
    return repeat(x, q_heads)


def _tiled_sum(x: Array, kv_heads: int) -> Array:
    return jnp.sum(x.reshape(x.shape[0], -1, kv_heads, *x.shape[2:]), axis=1)


def _last_block(ds: Array, k: Array, scale: float) -> Array:
    start = (k.shape[2] - 1) // BLOCK * BLOCK
    return query_gradient(ds[..., start:], k[:, :, start:], scale)


def _whole_blocks(x: Array) -> Array:
    """Zero beyond the last whole block of keys."""
    keep = max(x.shape[2] // BLOCK * BLOCK, min(x.shape[2], BLOCK))
    return jnp.where(jnp.arange(x.shape[2])[:, None] < keep, x, 0)


def _unnormalised(p: Array, dp: Array, _mask: Array) -> Array:
    # dP and its mean: the row's sum of dP counts every key alike.
    return p * (dp - jnp.mean(dp, axis=-1, keepdims=True))


def _nan_on_empty_row(scores: Array, mask: Array) -> Array:
    return jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))


def _leaks_on_empty_row(scores: Array, mask: Array) -> Array:
    return jax.nn.softmax(jnp.where(mask, scores, float(jnp.finfo(jnp.float32).min)))


def _no_max(scores: Array, mask: Array) -> Array:
    weights = jnp.where(mask, jnp.exp(scores), 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def _base_two(scores: Array, mask: Array) -> Array:
    # exp2(s - lse) instead of exp(s - lse): log2(e) was left out when the weights are recomputed.
    hidden = jnp.where(mask, scores, -jnp.inf)
    lse = jax.nn.logsumexp(hidden, axis=-1, keepdims=True)
    lse = jnp.where(jnp.isfinite(lse), lse, 0)
    return jnp.where(mask, jnp.exp((jnp.where(mask, scores, lse) - lse) * math.log(2)), 0)


def _average(x: Array, kv_heads: int) -> Array:
    return jnp.mean(by_group(x, kv_heads), axis=2)


def _head(index: int) -> Callable[[Array, int], Array]:
    return lambda x, kv_heads: by_group(x, kv_heads)[:, :, index]


# ---- the gradient of a group ---------------------------------------------------------------
unsummed_group_gradient = wrong_in(Terms(fold_k=_head(0), fold_v=_head(0)))
last_head_gradient = wrong_in(Terms(fold_k=_head(-1), fold_v=_head(-1)))
averaged_group_gradient = wrong_in(Terms(fold_k=_average, fold_v=_average))
unsummed_value_gradient = wrong_in(Terms(fold_v=_head(0)))
tiled_group_gradient = wrong_in(Terms(fold_k=_tiled_sum, fold_v=_tiled_sum))

# ---- a term of the softmax's gradient ------------------------------------------------------
missing_delta = wrong_in(Terms(scores=lambda p, dp, _: p * dp))
delta_of_mean = wrong_in(Terms(scores=_unnormalised))
missing_weights = wrong_in(
    Terms(scores=lambda p, dp, mask: jnp.where(mask, dp - jnp.sum(p * dp, -1, keepdims=True), 0))
)
negated_delta = wrong_in(
    Terms(scores=lambda p, dp, _: p * (dp + jnp.sum(p * dp, -1, keepdims=True)))
)
ignores_cotangent = wrong_in(Terms(cotangent=jnp.ones_like))
detached_values = wrong_in(Terms(dv=lambda p, do: 0 * value_gradient(p, do)))
detached_scores = wrong_in(Terms(scores=lambda p, dp, _: 0 * p * dp))

# ---- the mask, in the backward pass alone ---------------------------------------------------
backward_ignores_causal = wrong_in(Terms(mask=lambda T, S, _, m: visible(T, S, False, m)))
backward_ignores_padding = wrong_in(Terms(mask=lambda T, S, causal, _: visible(T, S, causal, None)))
backward_top_left_causal = wrong_in(Terms(mask=_causal_from(lambda _T, _S: 0)))
backward_off_by_one = wrong_in(Terms(mask=_causal_from(lambda T, S: S - T - 1)))
backward_inverted_mask = wrong_in(
    Terms(mask=lambda T, S, causal, m: visible(T, S, causal, None if m is None else ~m))
)
unmasked_score_gradient = wrong_in(
    Terms(scores=lambda p, dp, mask: score_gradient(p, dp, mask) + jnp.where(mask, 0, 0.01 * dp))
)

# ---- hidden keys and empty rows --------------------------------------------------------------
poison_in_query_gradient = wrong_in(Terms(keys=_uncleaned))
poison_in_score_gradient = wrong_in(Terms(values=_uncleaned))
nan_gradient_on_empty_row = wrong_in(Terms(weights=_nan_on_empty_row))
empty_row_leaks_to_values = wrong_in(Terms(weights=_leaks_on_empty_row))

# ---- the scale -------------------------------------------------------------------------------
unscaled_query_gradient = wrong_in(Terms(dq=lambda ds, k, _: query_gradient(ds, k, 1.0)))
key_gradient_scaled_twice = wrong_in(Terms(dk=lambda ds, q, f: key_gradient(ds, q, f * f)))
recomputed_unscaled = wrong_in(Terms(logits=lambda q, k, _: logits(q, k, 1.0)))

# ---- rows, blocks, batch entries, numbers ----------------------------------------------------
shifted_value_gradient = wrong_in(
    Terms(dv=lambda p, do: jnp.roll(value_gradient(p, do), 1, axis=2))
)
reversed_value_rows = wrong_in(Terms(dv=lambda p, do: value_gradient(p, jnp.flip(do, axis=2))))
query_gradient_of_last_block = wrong_in(Terms(dq=_last_block))
truncated_key_gradient = wrong_in(Terms(dk=lambda ds, q, f: _whole_blocks(key_gradient(ds, q, f))))
key_gradient_of_previous_batch = wrong_in(
    Terms(dk=lambda ds, q, f: jnp.roll(key_gradient(ds, q, f), 1, axis=0))
)
backward_without_max = wrong_in(Terms(weights=_no_max))
backward_in_base_two = wrong_in(Terms(weights=_base_two))
