"""Attention around a softmax: XLA owns the matrix products, a kernel owns the softmax.

`xla` and `pallas` differ by the softmax alone, so a comparison of the two compares nothing else.
The gradient is written out, because the dtype policy must hold backward too: automatic
differentiation would round the gradient of the probabilities to the input dtype.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from lab.kernels.support import check_attention, check_policy

if TYPE_CHECKING:
    from jax.typing import DTypeLike

    from lab.kernels import Attention
    from lab.truth.problems import DtypePolicy


class Residuals(NamedTuple):
    """What the backward pass keeps of the forward pass."""

    q: jax.Array
    k: jax.Array
    v: jax.Array
    mask: jax.Array | None
    scores: jax.Array
    probabilities: jax.Array
    out: jax.Array


class Forward(Protocol):
    """A masked softmax."""

    def __call__(
        self,
        logits: jax.Array,
        mask: jax.Array | None,
        dtype: DTypeLike,
        *,
        causal: bool = False,
    ) -> jax.Array:
        """Give the probabilities of logits [B, H, T, S]."""
        ...


class Backward(Protocol):
    """The gradient of a masked softmax."""

    def __call__(
        self,
        logits: jax.Array,
        mask: jax.Array | None,
        dp: jax.Array,
        dtype: DTypeLike,
        *,
        causal: bool = False,
        delta: jax.Array | None = None,
    ) -> jax.Array:
        """Give the gradient of the logits from dp [B, H, T, S], the probabilities' gradient.

        `delta` is sum(p * dp) by row [B, H, T, 1] in fp32, for who can save a pass by it.
        """
        ...


@dataclass(frozen=True)
class Softmax:
    """A masked softmax and its gradient, over logits [B, H, T, S] of any float dtype.

    A mask is Bool of rank 4, with axes of size 1 where it is broadcast, or None to show all. Both
    functions reduce in fp32 and return the dtype asked for. A row that shows nothing gives 0.

    Attributes:
        forward: logits to probabilities.
        backward: the probabilities' gradient to that of the logits.
        makes_causality: both hide later keys themselves where `causal`, aligned bottom-right; the
            mask then holds the rest. Others are given all in the mask.
    """

    forward: Forward
    backward: Backward
    makes_causality: bool = False


def visible(
    q_len: int, kv_len: int, *, causal: bool, key_mask: jax.Array | None = None
) -> jax.Array | None:
    """Which keys each query sees, causality aligned bottom-right.

    Returns:
        Bool [1 or B, 1, 1 or T, S], with an axis of size 1 where nothing depends on it; None where
        every query sees every key.
    """
    mask = None
    if causal:
        rows = jax.lax.broadcasted_iota(jnp.int32, (1, 1, q_len, kv_len), 2)
        columns = jax.lax.broadcasted_iota(jnp.int32, (1, 1, q_len, kv_len), 3)
        mask = columns <= rows + (kv_len - q_len)
    if key_mask is not None:
        keys = key_mask[:, None, None, :]
        mask = keys if mask is None else mask & keys
    return mask


def attention_around(softmax: Softmax, policy: DtypePolicy) -> Attention:
    """Build an attention, in the form of `lab.kernels.Attention`, around a softmax."""
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
        batch, q_heads, q_len, head_dim = q.shape
        kv_heads, kv_len = k.shape[1:3]
        if key_mask is not None:
            # 0 x NaN is NaN: what a padded key holds must be gone before the products see it.
            shown = key_mask[:, None, :, None]
            k, v = jnp.where(shown, k, 0), jnp.where(shown, v, 0)
        grouped = q.reshape(batch, kv_heads, q_heads // kv_heads, q_len, head_dim)
        inside = causal and softmax.makes_causality
        mask = visible(q_len, kv_len, causal=causal and not inside, key_mask=key_mask)
        scale = 1 / math.sqrt(head_dim) if scale is None else scale
        return _attention(softmax, policy, scale, inside, grouped, k, v, mask).reshape(q.shape)

    return attention


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _attention(
    softmax: Softmax,
    policy: DtypePolicy,
    scale: float,
    causal: bool,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array | None,
) -> jax.Array:
    """Attention of q [B, Hkv, group, T, D] and k, v [B, Hkv, S, D], free of poison."""
    return _forward(softmax, policy, scale, causal, q, k, v, mask)[0]


def _forward(
    softmax: Softmax,
    policy: DtypePolicy,
    scale: float,
    causal: bool,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array | None,
) -> tuple[jax.Array, Residuals]:
    # Scaling the fp32 scores rounds nothing, and fuses into the product.
    scores = _product(policy, "bkgtd,bksd->bkgts", q, k) * scale
    flat = _merge_heads(scores)
    probabilities = softmax.forward(flat, mask, policy.input, causal=causal).reshape(scores.shape)
    out = _product(policy, "bkgts,bksd->bkgtd", probabilities, v)
    return out.astype(policy.output), Residuals(q, k, v, mask, flat, probabilities, out)


def _backward(
    softmax: Softmax,
    policy: DtypePolicy,
    scale: float,
    causal: bool,
    kept: Residuals,
    dout: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    # Summing over `g` in the product gives each key the gradients of its whole group of queries.
    dv = _product(policy, "bkgts,bkgtd->bksd", kept.probabilities, dout)
    dp = _product(policy, "bkgtd,bksd->bkgts", dout, kept.v)
    # sum(p * dp) over keys is sum(out * dout) over channels: T x D elements instead of T x S.
    delta = jnp.sum(kept.out * dout.astype(kept.out.dtype), axis=-1, keepdims=True)
    ds = softmax.backward(
        kept.scores,
        kept.mask,
        _merge_heads(dp),
        policy.input,
        causal=causal,
        delta=_merge_heads(delta),
    ).reshape(dp.shape)
    dq = _product(policy, "bkgts,bksd->bkgtd", ds, kept.k) * scale
    dk = _product(policy, "bkgts,bkgtd->bksd", ds, kept.q) * scale
    return dq.astype(kept.q.dtype), dk.astype(kept.k.dtype), dv.astype(kept.v.dtype), None


_attention.defvjp(_forward, _backward)


def _product(policy: DtypePolicy, equation: str, x: jax.Array, y: jax.Array) -> jax.Array:
    # fp32 operands take all the passes that fp32 needs; bf16 products are exact in any case.
    exact = jnp.dtype(policy.input) == jnp.float32
    return jnp.einsum(
        equation,
        x,
        y,
        precision=jax.lax.Precision.HIGHEST if exact else None,
        preferred_element_type=jnp.dtype(policy.accumulation),
    )


def _merge_heads(x: jax.Array) -> jax.Array:
    """View [B, Hkv, group, T, S] as [B, Hq, T, S]."""
    return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])
