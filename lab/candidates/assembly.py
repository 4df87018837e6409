"""The right attention in plain JAX, taken apart: a candidate replaces one part.

B batch, Hq query heads, Hkv key/value heads, T queries, S keys, D features. Every part computes in
the dtype it is given, so the same code under a float64 policy is the exact model of a candidate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

if TYPE_CHECKING:
    from lab.truth.problems import DtypePolicy


class Attention(Protocol):
    """q [B, Hq, T, D], k and v [B, Hkv, S, D] -> [B, Hq, T, D] in the policy's output dtype."""

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
        causal: bool,
        key_mask: Array | None,
        scale: float | None,
    ) -> Array:
        """Attend; `key_mask` is Bool [B, S], True where a key may be attended."""
        ...


Build = Callable[["DtypePolicy", bool], Attention]


def einsum(subscripts: str, *operands: Array) -> Array:
    """A product at full precision, accumulated in the operands' dtype."""
    return jnp.einsum(subscripts, *operands, precision=lax.Precision.HIGHEST)


def factor(scale: float | None, head_dim: int) -> float:
    """What the scores are multiplied by: `scale`, or 1/sqrt(D)."""
    return 1.0 / math.sqrt(head_dim) if scale is None else scale


def repeat(x: Array, q_heads: int) -> Array:
    """[B, Hkv, S, D] -> [B, Hq, S, D]: query head h reads head h // (Hq // Hkv)."""
    return jnp.repeat(x, q_heads // x.shape[1], axis=1)


def clean(x: Array, key_mask: Array | None) -> Array:
    """Keys or values [B, Hkv, S, D], zero where hidden, so that NaN there cannot spread."""
    return x if key_mask is None else jnp.where(key_mask[:, None, :, None], x, 0)


def heads(x: Array, key_mask: Array | None, q_heads: int) -> Array:
    """Keys or values, cleaned and repeated for the query heads: [B, Hq, S, D]."""
    return repeat(clean(x, key_mask), q_heads)


def causal_mask(q_len: int, kv_len: int) -> Array:
    """Bool [T, S], aligned bottom-right: query i sees key j when j <= i + S - T."""
    return jnp.tril(jnp.ones((q_len, kv_len), bool), kv_len - q_len)


def visible(q_len: int, kv_len: int, causal: bool, key_mask: Array | None) -> Array:
    """Bool [B or 1, 1, T, S]: which keys a query may attend."""
    mask = causal_mask(q_len, kv_len) if causal else jnp.ones((q_len, kv_len), bool)
    return mask[None, None] if key_mask is None else mask & key_mask[:, None, None, :]


def logits(q: Array, k: Array, scale: float | None) -> Array:
    """Scaled scores [B, Hq, T, S]."""
    return einsum("bhtd,bhsd->bhts", q, k) * factor(scale, q.shape[-1])


def softmax(scores: Array, mask: Array) -> Array:
    """Weights [B, Hq, T, S] over the visible keys; a row without one gives zeros."""
    peak = jnp.max(jnp.where(mask, scores, -jnp.inf), axis=-1, keepdims=True)
    peak = lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, 0))
    weights = jnp.where(mask, jnp.exp(jnp.where(mask, scores, peak) - peak), 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def output(weights: Array, v: Array) -> Array:
    """Weighted values [B, Hq, T, D]."""
    return einsum("bhts,bhsd->bhtd", weights, v)


@dataclass(frozen=True)
class Parts:
    """The pipeline, in order; each field is one replaceable step."""

    keys: Callable[[Array, Array | None, int], Array] = heads
    values: Callable[[Array, Array | None, int], Array] = heads
    mask: Callable[[int, int, bool, Array | None], Array] = visible
    logits: Callable[[Array, Array, float | None], Array] = logits
    weights: Callable[[Array, Array], Array] = softmax
    output: Callable[[Array, Array], Array] = output

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        causal: bool,
        key_mask: Array | None,
        scale: float | None,
    ) -> Array:
        """Run the steps in the dtype of q, k and v."""
        k, v = self.keys(k, key_mask, q.shape[1]), self.values(v, key_mask, q.shape[1])
        mask = self.mask(q.shape[2], k.shape[2], causal, key_mask)
        return self.output(self.weights(self.logits(q, k, scale), mask), v)


Compute = Callable[[Array, Array, Array, bool, "Array | None", "float | None"], Array]
"""compute(q, k, v, causal, key_mask, scale), in the dtype of q, k and v."""

Gradient = Callable[
    [Array, Array, Array, Array, bool, "Array | None", "float | None"], tuple[Array, Array, Array]
]
"""gradient(q, k, v, cotangent, causal, key_mask, scale) -> dq, dk, dv."""


def assemble(compute: Compute) -> Build:
    """A factory for `compute`, run in the policy's logits dtype and differentiated by JAX."""

    def build(policy: DtypePolicy, interpret: bool) -> Attention:  # noqa: ARG001 - no Pallas here
        def attention(
            q: Array,
            k: Array,
            v: Array,
            *,
            causal: bool,
            key_mask: Array | None = None,
            scale: float | None = None,
        ) -> Array:
            q, k, v = (x.astype(policy.logits) for x in (q, k, v))
            return compute(q, k, v, causal, key_mask, scale).astype(policy.output)

        return attention

    return build


def with_backward(forward: Compute, backward: Gradient) -> Compute:
    """`forward`, differentiated by `backward` instead of by JAX."""

    def compute(
        q: Array, k: Array, v: Array, causal: bool, key_mask: Array | None, scale: float | None
    ) -> Array:
        @jax.custom_vjp
        def call(q: Array, k: Array, v: Array, key_mask: Array | None) -> Array:
            return forward(q, k, v, causal, key_mask, scale)

        def fwd(
            q: Array, k: Array, v: Array, key_mask: Array | None
        ) -> tuple[Array, tuple[Array, Array, Array, Array | None]]:
            return call(q, k, v, key_mask), (q, k, v, key_mask)

        def bwd(
            saved: tuple[Array, Array, Array, Array | None], cotangent: Array
        ) -> tuple[Array, Array, Array, None]:
            q, k, v, key_mask = saved
            return (*backward(q, k, v, cotangent, causal, key_mask, scale), None)

        call.defvjp(fwd, bwd)
        return call(q, k, v, key_mask)

    return compute
