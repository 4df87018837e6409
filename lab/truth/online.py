"""Attention by the online-softmax recurrence, a block of keys at a time, in float64.

The second route to what `direct` computes, written apart from it so that a mistake in one shows:
keys are dropped by gathering those that a key mask keeps, causality compares positions, the query
heads of a group are rows of one matrix, and no row of weights ever exists whole.

Forward: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax" (2018).
Backward: T. Dao, "FlashAttention-2" (2023), algorithm 2: weights recomputed from a row's
statistics, and delta = rowsum(dO * O) in place of rowsum(P * dP).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lab.errors import UserError
from lab.truth.results import Float64, Forward, Gradients

Array = NDArray[Any]
BoolArray = NDArray[np.bool_]
Positions = NDArray[np.int64]

BLOCK = 96  # keys; no power of two, so that block edges differ from those of kernels


def forward(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool,
    key_mask: BoolArray | None = None,
    scale: float | None = None,
    block: int = BLOCK,
) -> Forward:
    """As `direct.forward`, over blocks of `block` keys."""
    B, Hkv, S, D = k.shape
    stacked = _stack(q, Hkv)
    out, lse = np.empty(stacked.shape), np.empty(stacked.shape[:3])
    last_key = _last_key(q, S, Hkv, causal=causal)
    for b, g in np.ndindex(B, Hkv):
        rows = _Rows(_float64(stacked[b, g]), last_key, _factor(scale, D))
        kept = _kept(key_mask, b, S)
        keys, values = _float64(k[b, g][kept]), _float64(v[b, g][kept])
        out[b, g], state = _attend(rows, keys, values, kept, block)
        lse[b, g] = state.log_sum_exp(rows.factor)
    return Forward(out.reshape(q.shape), lse.reshape(q.shape[:3]))


def backward(
    q: Array,
    k: Array,
    v: Array,
    cotangent: Array,
    *,
    causal: bool,
    key_mask: BoolArray | None = None,
    scale: float | None = None,
    block: int = BLOCK,
) -> Gradients:
    """As `direct.backward`, over blocks of `block` keys."""
    B, Hkv, S, D = k.shape
    stacked, stacked_dout = _stack(q, Hkv), _stack(cotangent, Hkv)
    dq, dk, dv = np.zeros(stacked.shape), np.zeros(k.shape), np.zeros(v.shape)
    last_key = _last_key(q, S, Hkv, causal=causal)
    for b, g in np.ndindex(B, Hkv):
        rows = _Rows(_float64(stacked[b, g]), last_key, _factor(scale, D))
        dout = _float64(stacked_dout[b, g])
        kept = _kept(key_mask, b, S)
        keys, values = _float64(k[b, g][kept]), _float64(v[b, g][kept])
        out, state = _attend(rows, keys, values, kept, block)
        delta = np.einsum("rd,rd->r", dout, out)
        for start in range(0, len(kept), block):
            part = slice(start, start + block)
            p = state.weights(rows.scores(keys[part], kept[part]), rows.factor)
            ds = rows.factor * p * (dout @ values[part].T - delta[:, None])
            dq[b, g] += ds @ keys[part]
            # One product over the stacked rows is the sum over the group.
            dk[b, g, kept[part]] = ds.T @ rows.q
            dv[b, g, kept[part]] = p.T @ dout
    return Gradients(dq.reshape(q.shape), dk, dv)


def softmax_forward(logits: Array, mask: BoolArray, *, block: int = BLOCK) -> Float64:
    """As `direct.softmax_forward`, each row's statistics gathered block by block."""
    p = np.empty(logits.shape)
    masks = np.broadcast_to(mask, logits.shape)
    for plane in np.ndindex(logits.shape[:-2]):
        state = _scan(logits[plane], masks[plane], block)
        for part in _parts(logits, block):
            p[plane][:, part] = state.weights(_masked(logits[plane], masks[plane], part))
    return p


def softmax_backward(
    logits: Array, mask: BoolArray, cotangent: Array, *, block: int = BLOCK
) -> Float64:
    """As `direct.softmax_backward`: a pass for delta = sum(p dp), then one for the gradient."""
    dlogits = np.empty(logits.shape)
    masks = np.broadcast_to(mask, logits.shape)
    for plane in np.ndindex(logits.shape[:-2]):
        state = _scan(logits[plane], masks[plane], block)
        delta = np.zeros(logits.shape[-2])
        for part in _parts(logits, block):
            p = state.weights(_masked(logits[plane], masks[plane], part))
            delta += np.einsum("ts,ts->t", p, _float64(cotangent[plane][:, part]))
        for part in _parts(logits, block):
            p = state.weights(_masked(logits[plane], masks[plane], part))
            dlogits[plane][:, part] = p * _float64(cotangent[plane][:, part]) - p * delta[:, None]
    return dlogits


class _RowState(NamedTuple):
    """Each row's running maximum score, and its sum of exp(factor * (score - maximum)); [rows].

    They are kept apart: at logits near 1e5 their log-sum-exp has lost digits that weights need.
    """

    maximum: Float64
    total: Float64

    @classmethod
    def start(cls, rows: int) -> "_RowState":
        return cls(np.full(rows, -np.inf), np.zeros(rows))

    def meet(self, scores: Float64, factor: float) -> tuple["_RowState", Float64, Float64]:
        """The state after a block [rows, keys], the rescaling of the past, the block's terms."""
        maximum = np.maximum(self.maximum, scores.max(axis=1))
        shift = np.where(maximum > -np.inf, maximum, 0.0)
        rescale = np.exp(factor * (self.maximum - shift))
        terms = np.exp(factor * (scores - shift[:, None]))
        return _RowState(maximum, rescale * self.total + terms.sum(axis=1)), rescale, terms

    def weights(self, scores: Float64, factor: float = 1.0) -> Float64:
        """The final weights of a block of scores, once every block has been met."""
        seen = self.total > 0
        shift = np.where(seen, self.maximum, 0.0)[:, None]
        weights: Float64 = np.exp(factor * (scores - shift))
        return weights / np.where(seen, self.total, 1.0)[:, None]

    def log_sum_exp(self, factor: float) -> Float64:
        logs = np.full_like(self.total, -np.inf)
        seen = self.total > 0
        logs[seen] = factor * self.maximum[seen] + np.log(self.total[seen])
        return logs


class _Rows(NamedTuple):
    """The query rows of one key head, the heads of its group one below the other."""

    q: Float64  # [rows, D]
    last_key: Float64  # [rows], position of the last key that causality shows
    factor: float

    def scores(self, keys: Float64, positions: Positions) -> Float64:
        """Unscaled scores [rows, keys], -inf where causality hides the key at that position."""
        scores: Float64 = self.q @ keys.T
        scores[positions[None, :] > self.last_key[:, None]] = -np.inf
        return scores


def _attend(
    rows: _Rows, keys: Float64, values: Float64, positions: Positions, block: int
) -> tuple[Float64, _RowState]:
    """The normalised result [rows, D] and each row's statistics, in one pass over the keys."""
    state = _RowState.start(len(rows.q))
    accumulator = np.zeros((len(rows.q), values.shape[1]))
    for start in range(0, len(positions), block):
        part = slice(start, start + block)
        scores = rows.scores(keys[part], positions[part])
        state, rescale, terms = state.meet(scores, rows.factor)
        accumulator *= rescale[:, None]
        accumulator += terms @ values[part]
    return accumulator / np.where(state.total > 0, state.total, 1.0)[:, None], state


def _stack(x: Array, kv_heads: int) -> Array:
    """[B, Hq, T, D] to [B, Hkv, group * T, D]: consecutive query heads share a key head."""
    B, Hq, T, D = x.shape
    return x.reshape(B, kv_heads, Hq // kv_heads * T, D)


def _last_key(q: Array, kv_len: int, kv_heads: int, *, causal: bool) -> Float64:
    """For each stacked row; the last query sees the last key."""
    _, Hq, T, _ = q.shape
    last = np.arange(kv_len - T, kv_len) if causal else np.full(T, np.inf)
    return np.tile(last.astype(np.float64), Hq // kv_heads)


def _kept(key_mask: BoolArray | None, b: int, kv_len: int) -> Positions:
    """Positions of the keys that the mask does not hide."""
    return np.arange(kv_len) if key_mask is None else np.flatnonzero(key_mask[b])


def _scan(logits: Array, mask: BoolArray, block: int) -> _RowState:
    state = _RowState.start(len(logits))
    for part in _parts(logits, block):
        state, _, _ = state.meet(_masked(logits, mask, part), 1.0)
    return state


def _masked(logits: Array, mask: BoolArray, part: slice) -> Float64:
    """A block [T, keys] of one head's logits, -inf where the mask is False."""
    result = np.full(mask[:, part].shape, -np.inf)
    result[mask[:, part]] = logits[:, part][mask[:, part]]
    return result


def _parts(logits: Array, block: int) -> list[slice]:
    return [slice(start, start + block) for start in range(0, logits.shape[-1], block)]


def _factor(scale: float | None, head_dim: int) -> float:
    factor = float(head_dim) ** -0.5 if scale is None else scale
    if not factor > 0:
        raise UserError(f"scale={scale} is not allowed: give a number above 0, or None")
    return factor


def _float64(x: Array) -> Float64:
    return x.astype(np.float64)
