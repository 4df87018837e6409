"""Known-bad: the scale or the head width is wrong. Each replaces the scores."""

from __future__ import annotations

import math
from collections.abc import Callable

from jax import Array

from lab.candidates.assembly import Build, Parts, assemble, einsum, factor, logits, softmax


def _scored(scores: Callable[[Array, Array, float | None], Array]) -> Build:
    return assemble(Parts(logits=scores))


def _unscaled(q: Array, k: Array, _scale: float | None) -> Array:
    return einsum("bhtd,bhsd->bhts", q, k)


def _scaled_twice(q: Array, k: Array, scale: float | None) -> Array:
    return logits(q, k, scale) * factor(scale, q.shape[-1])


def _scaled_by_width(q: Array, k: Array, scale: float | None) -> Array:
    return logits(q, k, 1.0 / q.shape[-1] if scale is None else scale)


def _scaled_by_padded_width(q: Array, k: Array, scale: float | None) -> Array:
    padded = -(-q.shape[-1] // 128) * 128
    return logits(q, k, 1.0 / math.sqrt(padded) if scale is None else scale)


def _width_in_steps_of(step: int) -> Build:
    """Features beyond the last whole step are never read; a narrower head is read whole."""

    def scores(q: Array, k: Array, scale: float | None) -> Array:
        width = max(q.shape[-1] // step * step, min(q.shape[-1], step))
        return logits(q[..., :width], k[..., :width], factor(scale, q.shape[-1]))

    return _scored(scores)


def _at_most_128_features(q: Array, k: Array, scale: float | None) -> Array:
    return logits(q[..., :128], k[..., :128], factor(scale, q.shape[-1]))


unscaled = _scored(_unscaled)
scaled_twice = _scored(_scaled_twice)
scaled_by_width = _scored(_scaled_by_width)
scaled_by_padded_width = _scored(_scaled_by_padded_width)
ignores_custom_scale = _scored(lambda q, k, _scale: logits(q, k, None))
scaled_after_softmax = assemble(
    Parts(
        logits=_unscaled,
        weights=softmax,
        output=lambda weights, v: einsum("bhts,bhsd->bhtd", weights, v) * factor(None, v.shape[-1]),
    )
)
width_in_steps_of_64 = _width_in_steps_of(64)
width_in_steps_of_16 = _width_in_steps_of(16)
at_most_128_features = _scored(_at_most_128_features)
