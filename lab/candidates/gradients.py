"""An explicit backward pass, right, taken apart like the forward one: a candidate replaces a term.

With P the weights, dO the cotangent and f the scale: dV = P^T dO, dP = dO V^T,
dS = P * (dP - rowsum(P * dP)), dQ = f dS K, dK = f dS^T Q; dK and dV are summed over the query
heads of a group. (Dao et al. 2022, FlashAttention, appendix B.2.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import Array

from lab.candidates.assembly import (
    Attention,
    Build,
    Parts,
    assemble,
    einsum,
    factor,
    heads,
    logits,
    output,
    softmax,
    visible,
    with_backward,
)

if TYPE_CHECKING:
    from lab.truth.problems import DtypePolicy


def score_gradient(p: Array, dp: Array, _mask: Array) -> Array:
    """The softmax's gradient [B, Hq, T, S]."""
    return p * (dp - jnp.sum(p * dp, axis=-1, keepdims=True))


def query_gradient(ds: Array, k: Array, scale: float) -> Array:
    """[B, Hq, T, D]."""
    return einsum("bhts,bhsd->bhtd", ds, k) * scale


def key_gradient(ds: Array, q: Array, scale: float) -> Array:
    """[B, Hq, S, D], before the sum over the group."""
    return einsum("bhts,bhtd->bhsd", ds, q) * scale


def value_gradient(p: Array, cotangent: Array) -> Array:
    """[B, Hq, S, D], before the sum over the group."""
    return einsum("bhts,bhtd->bhsd", p, cotangent)


def by_group(x: Array, kv_heads: int) -> Array:
    """[B, Hq, S, D] -> [B, Hkv, group, S, D]."""
    return x.reshape(x.shape[0], kv_heads, -1, *x.shape[2:])


def group_sum(x: Array, kv_heads: int) -> Array:
    """[B, Hq, S, D] -> [B, Hkv, S, D]."""
    return jnp.sum(by_group(x, kv_heads), axis=2)


@dataclass(frozen=True)
class Terms:
    """The backward pass, in order; each field is one replaceable step."""

    keys: Callable[[Array, Array | None, int], Array] = heads
    values: Callable[[Array, Array | None, int], Array] = heads
    mask: Callable[[int, int, bool, Array | None], Array] = visible
    logits: Callable[[Array, Array, float | None], Array] = logits
    weights: Callable[[Array, Array], Array] = softmax
    cotangent: Callable[[Array], Array] = lambda cotangent: cotangent
    scores: Callable[[Array, Array, Array], Array] = score_gradient
    dq: Callable[[Array, Array, float], Array] = query_gradient
    dk: Callable[[Array, Array, float], Array] = key_gradient
    dv: Callable[[Array, Array], Array] = value_gradient
    fold_k: Callable[[Array, int], Array] = group_sum
    fold_v: Callable[[Array, int], Array] = group_sum

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        cotangent: Array,
        causal: bool,
        key_mask: Array | None,
        scale: float | None,
    ) -> tuple[Array, Array, Array]:
        """The gradients, recomputing the weights from the inputs."""
        kv_heads = k.shape[1]
        k, v = self.keys(k, key_mask, q.shape[1]), self.values(v, key_mask, q.shape[1])
        mask = self.mask(q.shape[2], k.shape[2], causal, key_mask)
        p = self.weights(self.logits(q, k, scale), mask)
        cotangent = self.cotangent(cotangent)
        ds = self.scores(p, einsum("bhtd,bhsd->bhts", cotangent, v), mask)
        f = factor(scale, q.shape[-1])
        return (
            self.dq(ds, k, f),
            self.fold_k(self.dk(ds, q, f), kv_heads),
            self.fold_v(self.dv(p, cotangent), kv_heads),
        )


def wrong_in(terms: Terms) -> Build:
    """A right forward pass with this backward pass."""
    return assemble(with_backward(Parts(), terms))


explicit_backward = wrong_in(Terms())


def flash_backward(policy: DtypePolicy, interpret: bool) -> Attention:
    """As FlashAttention kernels do it: P and dS rounded for the products, dO.O as the row term.

    O is the output that was returned, so the row term is rounded too.
    """

    def narrow(x: Array) -> Array:
        return x.astype(policy.input).astype(x.dtype)

    def rounded(weights: Array, v: Array) -> Array:
        return output(narrow(weights), v)

    def backward(
        q: Array,
        k: Array,
        v: Array,
        cotangent: Array,
        causal: bool,
        key_mask: Array | None,
        scale: float | None,
    ) -> tuple[Array, Array, Array]:
        out = Parts(output=rounded)(q, k, v, causal, key_mask, scale).astype(policy.output)
        delta = jnp.sum(cotangent * out.astype(q.dtype), axis=-1, keepdims=True)
        terms = Terms(
            scores=lambda p, dp, _: narrow(p * (dp - delta)),
            dv=lambda p, do: value_gradient(narrow(p), do),
        )
        return terms(q, k, v, cotangent, causal, key_mask, scale)

    return assemble(with_backward(Parts(output=rounded), backward))(policy, interpret)
