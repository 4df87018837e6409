"""The float64 intermediates of attention that error budgets and fault models are made of.

Not the truth: outputs are judged against `lab.truth` alone. These are the logits, weights and
gradients *inside*, from which the budgets derive how far rounding may carry a result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lab.truth.problems import visible

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lab.grading.executor import Call

    Float = NDArray[np.float64]
    Bool = NDArray[np.bool_]


@dataclass(frozen=True)
class Intermediates:
    """Float64 arrays of one call; `[B, Hq, ...]` with K and V repeated over the group.

    q, cotangent: `[B, Hq, T, D]`; k, v: `[B, Hq, S, D]` (hidden keys zeroed); mask: Bool
    broadcastable to `[B, Hq, T, S]`; s, p, dp, ds: `[B, Hq, T, S]`, 0 where hidden; delta:
    `[B, Hq, T, 1]`, the row sum of p * dp; group: query heads a key head serves.
    """

    q: Float
    k: Float
    v: Float
    cotangent: Float
    mask: Bool
    scale: float
    group: int
    s: Float
    p: Float
    dp: Float
    ds: Float
    delta: Float


def intermediates(call: Call) -> Intermediates:
    """Compute them for a call whose cotangent may be None (then it counts as zeros)."""
    q = call.q.astype(np.float64)
    group = q.shape[1] // call.k.shape[1]
    k, v = (np.repeat(_without_hidden(x, call.key_mask), group, axis=1) for x in (call.k, call.v))
    scale = 1 / math.sqrt(q.shape[-1]) if call.scale is None else call.scale
    mask = visible(q.shape[2], k.shape[2], causal=call.causal, key_mask=call.key_mask)
    mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    g = np.zeros_like(q) if call.cotangent is None else call.cotangent.astype(np.float64)

    s = np.where(mask, scale * (q @ k.swapaxes(-1, -2)), 0.0)
    p = masked_weights(s, mask)
    dp = np.where(mask, g @ v.swapaxes(-1, -2), 0.0)
    delta = (p * dp).sum(-1, keepdims=True)
    return Intermediates(q, k, v, g, mask, scale, group, s, p, dp, p * (dp - delta), delta)


def masked_weights(s: Float, mask: Bool) -> Float:
    """Softmax over the visible keys, `[..., T, S]`; a row that sees none is all 0."""
    top = np.max(s, axis=-1, keepdims=True, where=mask, initial=-np.inf)
    e = np.exp(s - np.where(np.isfinite(top), top, 0.0), where=mask, out=np.zeros(s.shape))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total > 0, total, 1.0)


def over_groups(x: Float, group: int) -> Float:
    """Sum `[B, Hq, S, D]` over the query heads of each key head: `[B, Hkv, S, D]`."""
    B, Hq, S, D = x.shape
    return x.reshape(B, Hq // group, group, S, D).sum(2)


def _without_hidden(x: NDArray[np.generic], key_mask: Bool | None) -> Float:
    wide = x.astype(np.float64)
    if key_mask is None:
        return wide
    return np.where(key_mask[:, None, :, None], wide, 0.0)
