"""Controls: right, but computed another way. A grader that rejects one of these is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array, lax

from lab.candidates.assembly import (
    Attention,
    Parts,
    assemble,
    clean,
    einsum,
    factor,
    heads,
    output,
    softmax,
)

if TYPE_CHECKING:
    from lab.truth.problems import DtypePolicy

LOG2_E = 1.4426950408889634  # exp(x) = 2**(x log2(e))

naive = assemble(Parts())


def bf16_probabilities(policy: DtypePolicy, interpret: bool) -> Attention:
    """Weights rounded to the input dtype for the product with V, as the bf16 policy allows."""

    def rounded(weights: Array, v: Array) -> Array:
        return output(weights.astype(policy.input).astype(policy.logits), v)

    return assemble(Parts(output=rounded))(policy, interpret)


def _exp2_softmax(scores: Array, mask: Array) -> Array:
    scores = scores * LOG2_E
    peak = jnp.max(jnp.where(mask, scores, -jnp.inf), axis=-1, keepdims=True)
    peak = lax.stop_gradient(jnp.maximum(peak, -1e30))
    weights = jnp.where(mask, jnp.exp2(jnp.where(mask, scores, peak) - peak), 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


exp2_softmax = assemble(Parts(weights=_exp2_softmax))


def _scaled_queries(q: Array, k: Array, scale: float | None) -> Array:
    return einsum("bhtd,bhsd->bhts", q * factor(scale, q.shape[-1]), k)


scaled_queries = assemble(Parts(logits=_scaled_queries))


def _late_division(weights_and_total: Array, v: Array) -> Array:
    total = jnp.sum(weights_and_total, axis=-1, keepdims=True)
    return output(weights_and_total, v) / jnp.where(total > 0, total, 1)


def _exponentials(scores: Array, mask: Array) -> Array:
    peak = jnp.max(jnp.where(mask, scores, -jnp.inf), axis=-1, keepdims=True)
    peak = lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, 0))
    return jnp.where(mask, jnp.exp(jnp.where(mask, scores, peak) - peak), 0)


late_division = assemble(Parts(weights=_exponentials, output=_late_division))


def jitted(policy: DtypePolicy, interpret: bool) -> Attention:
    """The naive attention inside its own jit."""
    inner = naive(policy, interpret)
    return jax.jit(inner, static_argnames=("causal", "scale"))


def vmapped(policy: DtypePolicy, interpret: bool) -> Attention:
    """One batch entry and one key/value head at a time, mapped twice."""

    def attention(
        q: Array,
        k: Array,
        v: Array,
        *,
        causal: bool,
        key_mask: Array | None = None,
        scale: float | None = None,
    ) -> Array:
        inner = naive(policy, interpret)

        def head(q: Array, k: Array, v: Array, key_mask: Array | None) -> Array:
            mask = None if key_mask is None else key_mask[None]
            return inner(
                q[None], k[None, None], v[None, None], causal=causal, key_mask=mask, scale=scale
            )[0]

        batch, q_heads, q_len, width = q.shape
        grouped = q.reshape(batch, k.shape[1], q_heads // k.shape[1], q_len, width)
        over_heads = jax.vmap(head, in_axes=(0, 0, 0, None))
        return jax.vmap(over_heads)(grouped, k, v, key_mask).reshape(q.shape)

    return attention


def grouped_einsum(policy: DtypePolicy, interpret: bool) -> Attention:  # noqa: ARG001
    """Grouped queries by a five-dimensional product; keys and values are never repeated."""

    def attention(
        q: Array,
        k: Array,
        v: Array,
        *,
        causal: bool,
        key_mask: Array | None = None,
        scale: float | None = None,
    ) -> Array:
        batch, q_heads, q_len, width = q.shape
        group = q_heads // k.shape[1]
        q, k, v = (x.astype(policy.logits) for x in (q, clean(k, key_mask), clean(v, key_mask)))
        q = q.reshape(batch, -1, group, q_len, width)
        scores = einsum("bngtd,bnsd->bngts", q, k) * factor(scale, width)
        mask = Parts().mask(q_len, k.shape[2], causal, key_mask)[:, :, None]
        out = einsum("bngts,bnsd->bngtd", softmax(scores, mask), v)
        return out.reshape(batch, q_heads, q_len, width).astype(policy.output)

    return attention


def padded_layout(policy: DtypePolicy, interpret: bool) -> Attention:
    """Lengths padded to 32 and the head to 128, the padding hidden, the result cut out again."""
    inner = naive(policy, interpret)

    def attention(
        q: Array,
        k: Array,
        v: Array,
        *,
        causal: bool,
        key_mask: Array | None = None,
        scale: float | None = None,
    ) -> Array:
        batch, _, q_len, width = q.shape
        kv_len = k.shape[2]
        # Padding in front of the queries and keys keeps the bottom-right alignment.
        front_q, front_k, wide = -q_len % 32, -kv_len % 32, -width % 128
        pad = lambda x, front: jnp.pad(x, ((0, 0), (0, 0), (front, 0), (0, wide)))  # noqa: E731
        mask = jnp.ones((batch, kv_len), bool) if key_mask is None else key_mask
        out = inner(
            pad(q, front_q),
            pad(k, front_k),
            pad(v, front_k),
            causal=causal,
            key_mask=jnp.pad(mask, ((0, 0), (front_k, 0))),
            scale=factor(scale, width),
        )
        return out[:, :, front_q:, :width]

    return attention


def sequence_major(policy: DtypePolicy, interpret: bool) -> Attention:  # noqa: ARG001
    """Computed in the layout [B, T, H, D] and brought back."""

    def attention(
        q: Array,
        k: Array,
        v: Array,
        *,
        causal: bool,
        key_mask: Array | None = None,
        scale: float | None = None,
    ) -> Array:
        q_heads = q.shape[1]
        k, v = heads(k, key_mask, q_heads), heads(v, key_mask, q_heads)
        q, k, v = (jnp.swapaxes(x, 1, 2).astype(policy.logits) for x in (q, k, v))
        scores = einsum("bthd,bshd->bhts", q, k) * factor(scale, q.shape[-1])
        weights = softmax(scores, Parts().mask(q.shape[1], k.shape[1], causal, key_mask))
        out = einsum("bhts,bshd->bthd", weights, v)
        return jnp.swapaxes(out, 1, 2).astype(policy.output)

    return attention


def eager(policy: DtypePolicy, interpret: bool) -> Attention:
    """Every operation by itself: the functions of jax.numpy are not jitted either."""
    inner = naive(policy, interpret)

    def attention(
        q: Array,
        k: Array,
        v: Array,
        *,
        causal: bool,
        key_mask: Array | None = None,
        scale: float | None = None,
    ) -> Array:
        with jax.disable_jit():
            return inner(q, k, v, causal=causal, key_mask=key_mask, scale=scale)

    return attention


def plain_bf16(policy: DtypePolicy, interpret: bool) -> Attention:  # noqa: ARG001
    """As most people write it: inputs never widened, products accumulate in fp32, JAX's gradient.

    JAX rounds the gradient of each operand to the operand's dtype: dP, and dK and dV by head.
    """

    def product(subscripts: str, x: Array, y: Array) -> Array:
        return jnp.einsum(
            subscripts,
            x,
            y,
            precision=lax.Precision.HIGHEST,
            preferred_element_type=jnp.dtype(policy.accumulation),
        )

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
        scores = product("bhtd,bhsd->bhts", q, k) * factor(scale, q.shape[3])
        weights = softmax(scores, Parts().mask(q.shape[2], k.shape[2], causal, key_mask))
        return product("bhts,bhsd->bhtd", weights.astype(q.dtype), v).astype(policy.output)

    return attention
