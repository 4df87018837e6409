"""Known-bad: the normalisation is wrong. Each replaces the softmax of the right attention."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from lab.candidates.assembly import Build, Parts, assemble, heads, softmax


def _weighted(weights: Callable[[Array, Array], Array]) -> Build:
    return assemble(Parts(weights=weights))


def _without_empty_rows(weights: Array, mask: Array) -> Array:
    """Zero weights where a row sees no key, so that a fault elsewhere stays the only one."""
    return jnp.where(jnp.any(mask, axis=-1, keepdims=True), weights, 0)


def _values_of_the_hidden(v: Array, key_mask: Array | None, q_heads: int) -> Array:
    """Values as usual, but left as they are where every key is hidden: there is a mean to take."""
    if key_mask is not None:
        key_mask = key_mask | ~jnp.any(key_mask, axis=1, keepdims=True)
    return heads(v, key_mask, q_heads)


def _sentinel(value: float) -> Build:
    """Hidden scores are set to `value` instead of being left out."""

    def weights(scores: Array, mask: Array) -> Array:
        return _without_empty_rows(jax.nn.softmax(jnp.where(mask, scores, value)), mask)

    return _weighted(weights)


def _nan_on_empty_row(scores: Array, mask: Array) -> Array:
    return jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))


def _mean_on_empty_row(scores: Array, mask: Array) -> Array:
    return jax.nn.softmax(jnp.where(mask, scores, float(jnp.finfo(jnp.float32).min)))


def _first_key_on_empty_row(scores: Array, mask: Array) -> Array:
    first = jnp.zeros(scores.shape[-1], scores.dtype).at[0].set(1)
    return jnp.where(jnp.any(mask, axis=-1, keepdims=True), softmax(scores, mask), first)


def _additive_mask(scores: Array, mask: Array) -> Array:
    return _without_empty_rows(jax.nn.softmax(scores + jnp.where(mask, 0.0, -1e4)), mask)


def _shifted_by(peak: Callable[[Array, Array], Array]) -> Build:
    """exp(score - peak) over its sum, whatever the peak is."""

    def weights(scores: Array, mask: Array) -> Array:
        shifted = jnp.where(mask, scores - lax.stop_gradient(peak(scores, mask)), -jnp.inf)
        exponentials = jnp.exp(shifted)
        total = jnp.sum(exponentials, axis=-1, keepdims=True)
        return _without_empty_rows(exponentials / jnp.where(total == 0, 1, total), mask)

    return _weighted(weights)


def _first_score(scores: Array, mask: Array) -> Array:
    first = jnp.argmax(mask, axis=-1)[..., None]
    return jnp.take_along_axis(scores, jnp.broadcast_to(first, (*scores.shape[:3], 1)), axis=-1)


def _clamped(scores: Array, mask: Array) -> Array:
    return softmax(jnp.clip(scores, -60.0, 60.0), mask)


def _over_queries(scores: Array, mask: Array) -> Array:
    flip = lambda x: jnp.swapaxes(x, 2, 3)  # noqa: E731 - a name for one transposition
    return flip(softmax(flip(scores), flip(mask)))


def _over_heads(scores: Array, mask: Array) -> Array:
    to_last = lambda x: jnp.moveaxis(x, 1, 3)  # noqa: E731 - same
    weights = softmax(to_last(scores), to_last(jnp.broadcast_to(mask, scores.shape)))
    return jnp.moveaxis(weights, 3, 1)


def _hidden_in_denominator(scores: Array, mask: Array) -> Array:
    # The numerators are masked after the normalisation, which ran over every key.
    return jnp.where(mask, jax.nn.softmax(scores), 0)


nan_on_empty_row = _weighted(_nan_on_empty_row)
mean_on_empty_row = assemble(Parts(values=_values_of_the_hidden, weights=_mean_on_empty_row))
first_key_on_empty_row = assemble(
    Parts(values=_values_of_the_hidden, weights=_first_key_on_empty_row)
)
sentinel_5e4 = _sentinel(-5e4)
sentinel_1e4 = _sentinel(-1e4)
additive_mask = _weighted(_additive_mask)
no_max_subtraction = _shifted_by(lambda _scores, _mask: jnp.zeros(()))
first_score_as_max = _shifted_by(_first_score)
clamped_logits = _weighted(_clamped)
softmax_over_queries = _weighted(_over_queries)
softmax_over_heads = _weighted(_over_heads)
hidden_in_denominator = _weighted(_hidden_in_denominator)
