# ruff: noqa: ARG005 - rules of one kind share a signature
"""Float64 models of faults that show in the output; those of masks are in mask_faults."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lab.grading.faults.masks import MASKS
from lab.grading.faults.model import BLOCKS, Compute, Index, Model, Outputs, attend, raw
from lab.grading.judge.intermediates import masked_weights

if TYPE_CHECKING:
    from lab.grading.executor import Call
    from lab.grading.judge.intermediates import Float, Intermediates


ONLINE_BLOCKS = (*range(8, 72, 8), 96, 128)  # nothing in an online softmax asks for a power of 2


def _head_models() -> Iterator[Model]:
    def mapped(name: str, index: Callable[[Index, int, int], Index], parts: str = "kv") -> Model:
        def compute(call: Call, x: Intermediates) -> Outputs | None:
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


CAPS = (2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0)


def _cap_models() -> Iterator[Model]:
    """A soft cap left on: logits c tanh(s / c)."""

    def capped(cap: float) -> Compute:
        return lambda _, x: attend(x, s=cap * np.tanh(x.s / cap))

    for cap in CAPS:
        yield Model("soft_cap", f"cap of {cap:g} left on", capped(cap))


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
        yield Model("length_divisibility", f"rows beyond {b}s unwritten", _unwritten(b, np.nan))
        yield Model("length_divisibility", f"rows beyond {b}s zero", _unwritten(b, 0.0))
    for b in ONLINE_BLOCKS:
        for kind in ("accumulator", "sum", "inverted", "own frame", "base two", "twice"):
            yield Model("stale_rescale", f"{kind}, blocks of {b}", _stale(b, kind))
    for n in (2, 3, 4, 8):
        for kind in ("max", "even", "e for base two", "base two for e"):
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


def _unwritten(b: int, left: float) -> Compute:
    def compute(_: Call, x: Intermediates) -> Outputs | None:
        T = x.q.shape[2]
        if T % b == 0 or b > T:  # where no row is written, `uninitialised` says more
            return None
        out = x.p @ x.v
        out[:, :, T // b * b :] = left  # NaN stands for any garbage
        return {"out": out}

    return compute


def _stale(b: int, kind: str) -> Compute:
    """The online softmax with one correction left out, turned round, or in another frame."""

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
                own = np.max(s, -1, keepdims=True, where=m, initial=-np.inf)
                frame = np.where(np.isfinite(own), own, 0.0) if kind == "own frame" else safe
                p = np.exp(s - frame, where=m, out=np.zeros(s.shape))
                power = {"base two": math.log(2), "twice": 2.0}.get(kind, 1.0)
                rescale = np.where(np.isfinite(top), np.exp(power * (top - safe)), 0.0)
                undone = {"accumulator": np.ones_like(rescale), "sum": rescale}
                inverse = np.where(rescale > 0, 1 / rescale, 0.0)
                factor = undone.get(kind, inverse if kind == "inverted" else rescale)
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
            scores.append(
                {
                    "max": safe,
                    "even": 0 * safe,
                    "e for base two": lse * math.log(2),
                    "base two for e": lse / math.log(2),
                }[kind]
            )
            seen.append(total > 0)
        weights = masked_weights(np.concatenate(scores, -1), np.concatenate(seen, -1))
        return {"out": (weights[..., None] * np.stack(outs, -2)).sum(-2)}

    return compute


def _index_models() -> Iterator[Model]:
    """Block index maps that count elements: block n is read at n * b, held within the array."""
    for b in BLOCKS:
        for part in ("kv", "k", "v", "q", "mask", "mask of rows"):
            yield Model("index_map", f"{part} in elements, blocks of {b}", _in_elements(part, b))


def _in_elements(part: str, b: int) -> Compute:
    def moved(a: Float) -> Float:
        """Blocks of rows, axis 2, as such a map reads them; what lies beyond the array is 0."""
        n = a.shape[2]
        block = np.arange(n) // b
        source = np.minimum(block * b, -(-n // b) - 1) * b + np.arange(n) % b
        padded = np.pad(a, ((0, 0), (0, 0), (0, -n % b), (0, 0)))
        return np.asarray(padded[:, :, source])

    def compute(_: Call, x: Intermediates) -> Outputs | None:
        mask = np.broadcast_to(x.mask, x.s.shape)
        if part == "q":
            return attend(x, s=x.scale * (moved(x.q) @ x.k.swapaxes(-1, -2)))
        if part == "mask":
            mask = moved(mask.swapaxes(2, 3).astype(float)).swapaxes(2, 3) > 0
            return attend(x, mask=mask)
        if part == "mask of rows":
            return attend(x, mask=moved(mask.astype(float)) > 0)
        k = moved(x.k) if "k" in part else x.k
        v = moved(x.v) if "v" in part else x.v
        return attend(x, k=k, v=v)

    return compute


FORWARD: tuple[Model, ...] = (
    *MASKS,
    *_head_models(),
    *_scale_models(),
    *_cap_models(),
    *_axis_models(),
    *_block_models(),
    *_index_models(),
)
