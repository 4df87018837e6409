"""Known-bad at some lengths only: a path of its own for few queries, many keys or wide heads.

Kernels for decoding are other kernels than those for prefill, and are wrong by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax

from lab.candidates.assembly import (
    Build,
    Parts,
    assemble,
    clean,
    logits,
    visible,
    with_backward,
)
from lab.candidates.gradients import Terms, key_gradient

LONG = 1024


@dataclass(frozen=True)
class Lengths:
    """Sizes that a kernel chooses its path by."""

    q_len: int
    kv_len: int
    head_dim: int
    batch: int


When = Callable[[Lengths], bool]


def _lengths(q: Array, k: Array) -> Lengths:
    return Lengths(q.shape[2], k.shape[2], q.shape[3], q.shape[0])


def _only(when: When, wrong: Parts) -> Build:
    """Right, but for the sizes `when` names."""

    def compute(
        q: Array, k: Array, v: Array, causal: bool, key_mask: Array | None, scale: float | None
    ) -> Array:
        parts = wrong if when(_lengths(q, k)) else Parts()
        return parts(q, k, v, causal, key_mask, scale)

    return assemble(compute)


def _only_backward(when: When, wrong: Terms) -> Build:
    def backward(
        q: Array,
        k: Array,
        v: Array,
        cotangent: Array,
        causal: bool,
        key_mask: Array | None,
        scale: float | None,
    ) -> tuple[Array, Array, Array]:
        terms = wrong if when(_lengths(q, k)) else Terms()
        return terms(q, k, v, cotangent, causal, key_mask, scale)

    return assemble(with_backward(Parts(), backward))


def _tiled(x: Array, key_mask: Array | None, q_heads: int) -> Array:
    return clean(x, key_mask)[:, lax.rem(jnp.arange(q_heads), x.shape[1])]


def _first_features(q: Array, k: Array, scale: float | None) -> Array:
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    return logits(q[..., :200], k[..., :200], factor)


def _up_to_queries(q_len: int, kv_len: int, causal: bool, key_mask: Array | None) -> Array:
    return visible(q_len, kv_len, causal, key_mask) & (jnp.arange(kv_len) < max(q_len, 1))


def _window(width: int) -> Callable[[int, int, bool, Array | None], Array]:
    def mask(q_len: int, kv_len: int, causal: bool, key_mask: Array | None) -> Array:
        rows = jnp.arange(q_len)[:, None] + (kv_len - q_len)
        near = jnp.arange(kv_len)[None, :] > rows - width
        seen = visible(q_len, kv_len, causal, key_mask)
        return seen & near if causal else seen

    return mask


_without_mask = Parts(mask=lambda T, S, causal, _: visible(T, S, causal, None))
_without_causality = Parts(mask=lambda T, S, _, key_mask: visible(T, S, False, key_mask))
_top_left = Parts(
    mask=lambda T, S, causal, key_mask: (
        visible(T, S, False, key_mask)
        & (jnp.tril(jnp.ones((T, S), bool)) if causal else jnp.ones((T, S), bool))
    )
)

decode_ignores_padding = _only(lambda n: n.q_len == 1, _without_mask)
few_queries_ignore_padding = _only(lambda n: n.q_len <= 4, _without_mask)
few_queries_ignore_causal = _only(lambda n: 2 <= n.q_len <= 8, _without_causality)
sixteen_queries_top_left = _only(lambda n: n.q_len == 16, _top_left)
decode_tiles_heads = _only(
    lambda n: n.q_len == 1 and n.kv_len >= LONG, Parts(keys=_tiled, values=_tiled)
)
four_queries_tile_heads = _only(lambda n: n.q_len == 4, Parts(keys=_tiled, values=_tiled))
long_keys_ignore_padding = _only(lambda n: n.kv_len > LONG, _without_mask)
long_prefill_ignores_causal = _only(lambda n: n.kv_len > LONG and n.q_len > 16, _without_causality)
decode_key_gradient_unscaled = _only_backward(
    lambda n: n.q_len <= 2, Terms(dk=lambda ds, q, _: key_gradient(ds, q, 1.0))
)
width_of_200 = _only(lambda n: n.head_dim > 200, Parts(logits=_first_features))
keys_up_to_queries = assemble(Parts(mask=_up_to_queries))
window_of_4096 = assemble(Parts(mask=_window(4096)))
