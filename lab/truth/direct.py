"""Attention by its definition: each head's whole [T, S] matrix of weights, in float64.

Arrays of any float dtype are taken and converted exactly. A hidden key weighs exactly 0 and its K
and V, NaN or not, are never read; a row that sees no key gives 0, log-sum-exp -inf, gradients 0.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lab.errors import UserError
from lab.truth.results import Float64, Forward, Gradients

Array = NDArray[Any]
BoolArray = NDArray[np.bool_]


def forward(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool,
    key_mask: BoolArray | None = None,
    scale: float | None = None,
) -> Forward:
    """softmax(scale * q k^T, over visible keys) v.

    Args:
        q: [B, Hq, T, D].
        k: [B, Hkv, S, D]; query head h reads key head h // (Hq // Hkv).
        v: [B, Hkv, S, D].
        causal: query i sees key j only when j <= i + S - T.
        key_mask: bool [B, S], True where a key may be attended.
        scale: factor of the logits, above 0; None means 1/sqrt(D).
    """
    out, lse = np.zeros(q.shape), np.zeros(q.shape[:3])
    for head in _heads(q, k, v, causal=causal, key_mask=key_mask, scale=scale):
        out[head.query] = head.weights @ head.v
        lse[head.query] = head.lse
    return Forward(out, lse)


def backward(
    q: Array,
    k: Array,
    v: Array,
    cotangent: Array,
    *,
    causal: bool,
    key_mask: BoolArray | None = None,
    scale: float | None = None,
) -> Gradients:
    """Gradients of sum(cotangent * forward(...).out); cotangent is [B, Hq, T, D].

    With weights P and dP = dO V^T: dV = P^T dO, dS = P * (dP - rowsum(P * dP)), dQ = scale dS K,
    dK = scale dS^T Q. dS is the softmax's Jacobian diag(p) - p p^T applied row by row.
    """
    dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    factor = _factor(q, scale)
    for head in _heads(q, k, v, causal=causal, key_mask=key_mask, scale=scale):
        dout = np.asarray(cotangent[head.query], np.float64)
        dlogits = _softmax_vjp(head.weights, dout @ head.v.T)
        dq[head.query] = factor * (dlogits @ head.k)
        dk[head.key] += factor * (dlogits.T @ head.q)
        dv[head.key] += head.weights.T @ dout
    return Gradients(dq, dk, dv)


def softmax_forward(logits: Array, mask: BoolArray) -> Float64:
    """Softmax over the last axis of logits [B, H, T, S] among keys where the mask is True.

    The mask broadcasts to the logits. Hidden keys, and rows with no visible one, get exactly 0.
    """
    probabilities = np.zeros(logits.shape)
    for plane, shown in _planes(logits, mask):
        probabilities[plane], _ = _softmax(np.asarray(logits[plane], np.float64), shown)
    return probabilities


def softmax_backward(logits: Array, mask: BoolArray, cotangent: Array) -> Float64:
    """Gradient of sum(cotangent * softmax_forward(logits, mask)) in the logits; same shape."""
    dlogits = np.zeros(logits.shape)
    for plane, shown in _planes(logits, mask):
        weights, _ = _softmax(np.asarray(logits[plane], np.float64), shown)
        dlogits[plane] = _softmax_vjp(weights, np.asarray(cotangent[plane], np.float64))
    return dlogits


class _Head(NamedTuple):
    query: tuple[int, int]  # (b, query head)
    key: tuple[int, int]  # (b, key head)
    q: Float64
    k: Float64
    v: Float64
    weights: Float64
    lse: Float64


def _heads(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool,
    key_mask: BoolArray | None,
    scale: float | None,
) -> Iterator[_Head]:
    """Each query head with the key head it reads, its weights [T, S] and lse [T]."""
    B, Hq, T, _ = q.shape
    Hkv, S = k.shape[1], k.shape[2]
    lower = np.tril(np.ones((T, S), bool), S - T) if causal else np.ones((T, S), bool)
    for b, h in np.ndindex(B, Hq):
        g = h // (Hq // Hkv)
        keys = np.ones(S, bool) if key_mask is None else np.asarray(key_mask[b], bool)
        qh = np.asarray(q[b, h], np.float64)
        # Zeros stand in for what the mask hides: its weight is 0, but 0 x NaN would not be.
        kh = np.where(keys[:, None], np.asarray(k[b, g], np.float64), 0.0)
        vh = np.where(keys[:, None], np.asarray(v[b, g], np.float64), 0.0)
        weights, lse = _softmax(qh @ kh.T, lower & keys, _factor(q, scale))
        yield _Head((b, h), (b, g), qh, kh, vh, weights, lse)


def _softmax(scores: Float64, visible: BoolArray, factor: float = 1.0) -> tuple[Float64, Float64]:
    """Weights [T, S] of factor * scores, exactly 0 where hidden, and the log-sum-exp [T].

    The factor comes after the maximum is taken off: scores near 1e5 would lose digits under it.
    """
    weights = np.where(visible, scores, -np.inf)
    empty = ~visible.any(axis=-1, keepdims=True)
    highest = np.where(empty, 0.0, weights.max(axis=-1, keepdims=True))
    # In place: a fresh plane for each step would cost more than the arithmetic.
    weights -= highest
    weights *= factor
    np.exp(weights, out=weights)
    total = np.where(empty, 1.0, weights.sum(axis=-1, keepdims=True))
    weights /= total
    lse = np.where(empty, -np.inf, factor * highest + np.log(total))
    return weights, lse[:, 0]


def _softmax_vjp(weights: Float64, dweights: Float64) -> Float64:
    """Rows of p * (dp - sum(p dp)); a hidden key's weight 0 makes its gradient 0."""
    gradient: Float64 = dweights - np.einsum("ts,ts->t", weights, dweights)[:, None]
    gradient *= weights
    return gradient


def _planes(logits: Array, mask: BoolArray) -> Iterator[tuple[tuple[int, ...], BoolArray]]:
    """Index and mask [T, S] of each head; a loop keeps one plane of float64 temporaries alive."""
    shown = np.broadcast_to(mask, logits.shape)
    for plane in np.ndindex(logits.shape[:-2]):
        yield plane, shown[plane]


def _factor(q: Array, scale: float | None) -> float:
    if scale is None:
        return 1 / math.sqrt(q.shape[-1])
    if not scale > 0:
        raise UserError(f"scale={scale} is not allowed: give a number above 0, or None")
    return scale
