# ruff: noqa: ARG005 - rules of one kind share a signature
"""Float64 models of faults that show in the output; most have a gradient to match."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lab.grading.fault_model import (
    BLOCKS,
    Compute,
    Index,
    Model,
    Outputs,
    Rule,
    attend,
    grid,
    keys,
    raw,
    seen,
    shifted,
)
from lab.grading.intermediates import masked_weights

if TYPE_CHECKING:
    from lab.grading.executor import Call
    from lab.grading.intermediates import Bool, Float, Intermediates


def _causal(fault_class: str, name: str, rule: Rule) -> Model:
    def compute(call: Call, x: Intermediates) -> Outputs | None:
        if not call.causal:
            return None
        return attend(x, mask=keys(call, x) & rule(*grid(x)))

    return Model(fault_class, name, compute)


def _causal_models() -> Iterator[Model]:
    everything = lambda i, j, o: np.ones((len(i), j.shape[1]), bool)  # noqa: E731
    yield _causal("causal_ignored", "ignored", everything)
    yield _causal("causal_alignment", "top-left", lambda i, j, o: j <= i)
    yield _causal("causal_alignment", "reversed", lambda i, j, o: j <= i - o)
    for shift in (-2, -1, 1, 2):
        yield _causal("causal_off_by_one", f"{shift:+d}", shifted(shift))
    yield _causal("mask_polarity", "inverted causal", lambda i, j, o: j > i + o)
    yield _causal("mask_polarity", "inverted causal, own key", lambda i, j, o: j >= i + o)
    for bits in (8, 16):
        yield _causal("position_overflow", f"int{bits}", _wrapped(bits))
    for b in BLOCKS:
        yield _causal("block_range", f"by blocks of {b}", _by_blocks(b))
        yield _causal("block_range", f"diagonal block of {b} skipped", _diagonal_skipped(b))
    for bq in BLOCKS:
        for bk in BLOCKS:
            yield _causal("block_range", f"crossing {bq}x{bk} skipped", _crossing(bq, bk))
            yield _causal("block_range", f"one block early {bq}x{bk}", _early(bq, bk))
            if bq != bk:
                yield _causal("block_bound", f"bound {bq}x{bk}", _bound(bq, bk))
                yield _causal("block_bound", f"bound, offset {bq}x{bk}", _bound_offset(bq, bk))
            if bq > bk:
                yield _causal("block_bound", f"last block masked {bq}x{bk}", _last_masked(bq, bk))

    def replaced(call: Call, x: Intermediates) -> Outputs | None:
        if not call.causal or call.key_mask is None:
            return None
        return attend(x, mask=np.broadcast_to(keys(call, x), (*x.mask.shape[:2], *x.s.shape[2:])))

    yield Model("silent_fallback", "a key mask turns causality off", replaced)


def _by_blocks(b: int) -> Rule:
    return lambda i, j, o: j // b * b <= i + o


def _diagonal_skipped(b: int) -> Rule:
    return lambda i, j, o: j // b < (i + o) // b


def _wrapped(bits: int) -> Rule:
    half = 1 << (bits - 1)
    wrap = lambda n: (n + half) % (2 * half) - half  # noqa: E731
    return lambda i, j, o: wrap(j) <= wrap(i + o)


def _crossing(bq: int, bk: int) -> Rule:
    return lambda i, j, o: (j // bk + 1) * bk - 1 <= i // bq * bq + o


def _early(bq: int, bk: int) -> Rule:
    def rule(i: Index, j: Index, o: int) -> Bool:
        blocks = -(-np.minimum((i // bq + 1) * bq + o, j.shape[1]) // bk) - 1
        return (j // bk < blocks) & (j <= i + o)

    return rule


def _bound(bq: int, bk: int) -> Rule:
    return lambda i, j, o: (j // bk <= i // bq) & (j <= i + o)


def _bound_offset(bq: int, bk: int) -> Rule:
    return lambda i, j, o: (j // bk <= i // bq + o // bk) & (j <= i + o)


def _last_masked(bq: int, bk: int) -> Rule:
    def rule(i: Index, j: Index, o: int) -> Bool:
        last = (np.minimum((i // bq + 1) * bq, len(i)) - 1 + o) // bk
        return (j // bk < last) | ((j // bk == last) & (j <= i + o))

    return rule


def _mask_models() -> Iterator[Model]:
    def by_mask(fault_class: str, name: str, change: Callable[[Bool], Bool]) -> Iterator[Model]:
        """With the hidden K and V as they are, and with zeros in their place."""
        for zeroed in (False, True):

            def compute(call: Call, x: Intermediates, *, zeroed: bool = zeroed) -> Outputs | None:
                if call.key_mask is None:
                    return None
                k, v = (x.k, x.v) if zeroed else raw(call, x)
                mask = change(call.key_mask)
                mask = mask[:, None, None, :] if mask.ndim == 2 else mask
                return attend(x, mask=mask & seen(call, x), k=k, v=v)

            yield Model(fault_class, f"{name}{', zeroed' if zeroed else ''}", compute)

    yield from by_mask("padding_ignored", "ignored", np.ones_like)
    yield from by_mask("mask_polarity", "inverted", np.logical_not)
    yield from by_mask("padding_ignored", "late", lambda m: np.roll(m, 1, 1))
    yield from by_mask("padding_ignored", "early", lambda m: np.roll(m, -1, 1))
    yield from by_mask("padding_ignored", "taken for a prefix", _prefix)
    yield from by_mask(
        "batch_mixup", "mask of the first", lambda m: np.broadcast_to(m[:1], m.shape)
    )
    yield from by_mask("batch_mixup", "mask of the previous", lambda m: np.roll(m, 1, 0))
    yield from by_mask("batch_mixup", "mask of the next", lambda m: np.roll(m, -1, 0))
    for b in BLOCKS:
        yield from by_mask("block_range", f"mask by blocks of {b}", partial(_blockwise, b=b))

    def queries(call: Call, x: Intermediates) -> Outputs | None:
        if call.key_mask is None:
            return None
        k, v = raw(call, x)
        out = attend(x, mask=seen(call, x), k=k, v=v)["out"]
        rows = np.resize(call.key_mask, (call.q.shape[0], call.q.shape[2]))
        rows[:, : call.key_mask.shape[1]] = call.key_mask[:, : call.q.shape[2]]
        return {"out": np.where(rows[:, None, :, None], out, 0)}

    def denominator(call: Call, x: Intermediates) -> Outputs | None:
        if call.key_mask is None:
            return None
        k, _ = raw(call, x)
        s = x.scale * (x.q @ k.swapaxes(-1, -2))
        mask = np.broadcast_to(seen(call, x), s.shape)
        return {"out": np.where(x.mask, masked_weights(np.where(mask, s, 0), mask), 0) @ x.v}

    yield Model("padding_ignored", "hides queries", queries)
    yield Model("padding_ignored", "hidden in the denominator", denominator)
    for zeroed in (False, True):
        yield Model("mask_broadcast", f"along the heads, {zeroed}", _across_heads(zeroed=zeroed))


def _across_heads(*, zeroed: bool) -> Compute:
    def compute(call: Call, x: Intermediates) -> Outputs | None:
        if call.key_mask is None:
            return None
        k, v = (x.k, x.v) if zeroed else raw(call, x)
        heads = np.arange(x.q.shape[1]) % len(call.key_mask)
        return attend(x, mask=call.key_mask[heads][None, :, None, :] & seen(call, x), k=k, v=v)

    return compute


def _prefix(mask: Bool) -> Bool:
    return np.arange(mask.shape[1])[None, :] < mask.sum(1)[:, None]


def _blockwise(mask: Bool, b: int) -> Bool:
    padded = np.pad(mask, ((0, 0), (0, -mask.shape[1] % b)))
    full = np.repeat(padded.reshape(len(mask), -1, b).any(-1), b, 1)
    return full[:, : mask.shape[1]]


def _head_models() -> Iterator[Model]:
    def mapped(name: str, index: Callable[[Index, int, int], Index], parts: str = "kv") -> Model:
        def compute(call: Call, x: Intermediates) -> Outputs | None:
            if x.group == 1:
                return None
            heads = np.arange(x.q.shape[1])
            chosen = index(heads, x.group, call.k.shape[1]) * x.group  # x.k is repeated
            k = x.k[:, chosen] if "k" in parts else x.k
            v = x.v[:, chosen] if "v" in parts else x.v
            return attend(x, k=k, v=v)

        return Model("gqa_mapping", name, compute)

    for parts in ("kv", "k", "v"):
        yield mapped(f"tiled {parts}", lambda h, g, n: h % n, parts)
        yield mapped(f"first {parts}", lambda h, g, n: 0 * h, parts)
        yield mapped(f"clamped {parts}", lambda h, g, n: np.minimum(h, n - 1), parts)
        yield mapped(f"h // Hkv {parts}", lambda h, g, n: np.minimum(h // n, n - 1), parts)
        yield mapped(f"reversed {parts}", lambda h, g, n: n - 1 - h // g, parts)

    def batch(name: str, move: Callable[[Float], Float], parts: str) -> Model:
        def compute(call: Call, x: Intermediates) -> Outputs | None:
            if len(x.q) == 1:
                return None
            k, v = raw(call, x)
            return attend(x, k=move(k) if "k" in parts else x.k, v=move(v) if "v" in parts else x.v)

        return Model("batch_mixup", f"{name} {parts}", compute)

    for parts in ("kv", "k", "v"):
        yield batch("first", lambda a: np.broadcast_to(a[:1], a.shape), parts)
        yield batch("previous", lambda a: np.roll(a, 1, 0), parts)
        yield batch("next", lambda a: np.roll(a, -1, 0), parts)


def _scale_models() -> Iterator[Model]:
    def scaled(fault_class: str, name: str, factor: Callable[[float, int], float]) -> Model:
        def compute(_: Call, x: Intermediates) -> Outputs | None:
            f = factor(x.scale, x.q.shape[3])
            return None if math.isclose(f, x.scale) else attend(x, s=x.s * (f / x.scale))

        return Model(fault_class, name, compute)

    yield scaled("scale", "lost", lambda w, d: 1.0)
    yield scaled("scale", "twice", lambda w, d: w * w)
    yield scaled("scale", "1/D", lambda w, d: 1 / d)
    yield scaled("scale", "custom ignored", lambda w, d: 1 / math.sqrt(d))
    yield scaled("scale", "root of the scale", lambda w, d: math.sqrt(w))
    yield scaled("scale", "multiplied by sqrt(D)", lambda w, d: math.sqrt(d))
    yield scaled("head_dim", "width padded to 128", lambda w, d: 1 / math.sqrt(-(-d // 128) * 128))
    yield scaled("head_dim", "width padded to 64", lambda w, d: 1 / math.sqrt(-(-d // 64) * 64))
    yield Model(
        "scale",
        "after the softmax",
        lambda _, x: {"out": x.scale * attend(x, s=x.s / x.scale)["out"]},
    )

    def features(name: str, kept: Callable[[int], int]) -> Model:
        def compute(_: Call, x: Intermediates) -> Outputs | None:
            D = x.q.shape[3]
            n = kept(D)
            if n >= D:
                return None
            return attend(x, s=x.scale * (x.q[..., :n] @ x.k[..., :n].swapaxes(-1, -2)))

        return Model("head_dim", name, compute)

    for n in (64, 128):
        yield features(f"first {n}", partial(min, n))
    for n in (8, 16, 32, 64, 128):
        yield features(f"whole {n}", partial(_whole, n))


def _whole(n: int, d: int) -> int:
    return d // n * n


def _axis_models() -> Iterator[Model]:
    def softmax_over(name: str, axis: int) -> Model:
        def compute(_: Call, x: Intermediates) -> Outputs | None:
            mask = np.broadcast_to(x.mask, x.s.shape)
            moved = np.moveaxis(x.s, axis, -1), np.moveaxis(mask, axis, -1)
            return {"out": np.moveaxis(masked_weights(*moved), -1, axis) @ x.v}

        return Model("wrong_axis", name, compute)

    yield softmax_over("over queries", 2)
    yield softmax_over("over heads", 1)
    yield softmax_over("over batch", 0)

    def stored_otherwise(a: Float) -> Float:
        B, H, S, D = a.shape
        return a.reshape(B, S, H, D).swapaxes(1, 2)

    def layout(name: str, parts: str) -> Model:
        def compute(call: Call, x: Intermediates) -> Outputs | None:
            k, v = (np.nan_to_num(a.astype(np.float64)) for a in (call.k, call.v))
            k, v = (
                np.repeat(stored_otherwise(a) if part in parts else a, x.group, 1)
                for part, a in (("k", k), ("v", v))
            )
            q = stored_otherwise(x.q) if "q" in parts else x.q
            out = attend(x, s=x.scale * (q @ k.swapaxes(-1, -2)), v=v)["out"]
            if "o" in parts:
                out = out.swapaxes(1, 2).reshape(out.shape)
            return {"out": out}

        return Model("layout", name, compute)

    for parts in ("k", "v", "q", "o", "kv", "qkv", "qkvo", "qo"):
        yield layout(f"sequence first: {parts}", parts)


def _block_models() -> Iterator[Model]:
    for b in BLOCKS:
        yield Model("length_divisibility", f"tail of {b} dropped", _hiding(b, "tail"))
        yield Model("block_range", f"first {b} skipped", _hiding(b, "first"))
        yield Model("block_range", f"last {b} skipped", _hiding(b, "last"))
        yield Model("tail_block", f"zero keys up to {b}", _zero_keys(b))
        yield Model("tail_block", f"tail of {b} twice", _twice(b))
        yield Model("length_divisibility", f"rows beyond {b}s unwritten", _unwritten(b))
        for kind in ("accumulator", "sum", "inverted"):
            yield Model("stale_rescale", f"{kind}, blocks of {b}", _stale(b, kind))
    for n in (2, 3, 4, 8):
        for kind in ("max", "even", "base two"):
            yield Model("lse", f"{n} ranges merged: {kind}", _merged(n, kind))


def _hiding(b: int, which: str) -> Compute:
    def compute(_: Call, x: Intermediates) -> Outputs | None:
        S = x.k.shape[2]
        j = np.arange(S)
        last = (S - 1) // b * b
        keep = {"tail": j < S // b * b, "first": j >= b, "last": j < last}[which]
        return None if keep.all() else attend(x, mask=x.mask & keep)

    return compute


def _zero_keys(b: int) -> Compute:
    def compute(_: Call, x: Intermediates) -> Outputs | None:
        extra = -x.k.shape[2] % b
        if not extra:
            return None
        s = np.concatenate([x.s, np.zeros((*x.s.shape[:3], extra))], -1)
        mask = np.broadcast_to(x.mask, x.s.shape)
        mask = np.concatenate([mask, np.ones((*x.s.shape[:3], extra), bool)], -1)
        return {"out": masked_weights(s, mask)[..., : x.k.shape[2]] @ x.v}

    return compute


def _twice(b: int) -> Compute:
    def compute(_: Call, x: Intermediates) -> Outputs | None:
        S = x.k.shape[2]
        if S % b == 0 or b > S:
            return None
        again = np.zeros(S)
        again[S - b : S // b * b] = math.log(2)
        return attend(x, s=x.s + again)

    return compute


def _unwritten(b: int) -> Compute:
    def compute(_: Call, x: Intermediates) -> Outputs | None:
        T = x.q.shape[2]
        if T % b == 0:
            return None
        out = x.p @ x.v
        out[:, :, T // b * b :] = np.nan  # and any other garbage counts as that
        return {"out": out}

    return compute


def _stale(b: int, kind: str) -> Compute:
    """The online softmax with one correction left out, or turned round."""

    def compute(_: Call, x: Intermediates) -> Outputs | None:
        S = x.k.shape[2]
        if b >= S:
            return None
        mask = np.broadcast_to(x.mask, x.s.shape)
        top = np.full((*x.s.shape[:3], 1), -np.inf)
        total, out = np.zeros_like(top), np.zeros(x.q.shape)
        with np.errstate(all="ignore"):
            for start in range(0, S, b):
                s, m = x.s[..., start : start + b], mask[..., start : start + b]
                new = np.maximum(top, np.max(s, -1, keepdims=True, where=m, initial=-np.inf))
                safe = np.where(np.isfinite(new), new, 0.0)
                p = np.exp(s - safe, where=m, out=np.zeros(s.shape))
                rescale = np.where(np.isfinite(top), np.exp(top - safe), 0.0)
                undone = {"accumulator": np.ones_like(rescale), "sum": rescale}
                inverse = np.where(rescale > 0, 1 / rescale, 0.0)
                factor = undone.get(kind, inverse)
                out = out * factor + p @ x.v[:, :, start : start + b]
                total = total * (1.0 if kind == "sum" else rescale) + p.sum(-1, keepdims=True)
                top = new
            return {"out": out / np.where(total > 0, total, 1)}

    return compute


def _merged(n: int, kind: str) -> Compute:
    """Key ranges attended apart, merged with wrong weights."""

    def compute(_: Call, x: Intermediates) -> Outputs | None:
        S = x.k.shape[2]
        size = -(-S // n)
        mask = np.broadcast_to(x.mask, x.s.shape)
        outs, scores, seen = [], [], []
        for start in range(0, S, size):
            s, m = x.s[..., start : start + size], mask[..., start : start + size]
            top = np.max(s, -1, keepdims=True, where=m, initial=-np.inf)
            safe = np.where(np.isfinite(top), top, 0.0)
            total = np.exp(s - safe, where=m, out=np.zeros(s.shape)).sum(-1, keepdims=True)
            outs.append(masked_weights(s, m) @ x.v[:, :, start : start + size])
            lse = safe + np.log(np.where(total > 0, total, 1))
            score = {"max": safe, "even": 0 * safe, "base two": lse * math.log(2)}[kind]
            scores.append(score)
            seen.append(total > 0)
        weights = masked_weights(np.concatenate(scores, -1), np.concatenate(seen, -1))
        return {"out": (weights[..., None] * np.stack(outs, -2)).sum(-2)}

    return compute


FORWARD: tuple[Model, ...] = (
    *_causal_models(),
    *_mask_models(),
    *_head_models(),
    *_scale_models(),
    *_axis_models(),
    *_block_models(),
)
