# ruff: noqa: ARG005 - rules of one kind share a signature
"""Float64 models of faults in the backward, beside a right output."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from lab.grading.faults.model import (
    BLOCKS,
    Compute,
    Model,
    Outputs,
    Rule,
    everything,
    grid,
    keys,
    raw,
    seen,
    shifted,
    window,
)
from lab.grading.judge.intermediates import masked_weights, over_groups

if TYPE_CHECKING:
    from lab.grading.executor import Call
    from lab.grading.judge.intermediates import Bool, Float, Intermediates


def _gradients(
    x: Intermediates,
    *,
    p: Float | None = None,
    dp: Float | None = None,
    delta: Float | None = None,
    ds: Float | None = None,
) -> Outputs:
    p = x.p if p is None else p
    dp = x.dp if dp is None else dp
    delta = x.delta if delta is None else delta
    ds = p * (dp - delta) if ds is None else ds
    return {
        "dq": x.scale * (ds @ x.k),
        "dk": over_groups(x.scale * (ds.swapaxes(-1, -2) @ x.q), x.group),
        "dv": over_groups(p.swapaxes(-1, -2) @ x.cotangent, x.group),
    }


def _lse(x: Intermediates) -> Float:
    mask = np.broadcast_to(x.mask, x.s.shape)
    top = np.max(x.s, -1, keepdims=True, where=mask, initial=-np.inf)
    safe = np.where(np.isfinite(top), top, 0.0)
    total = np.exp(x.s - safe, where=mask, out=np.zeros(x.s.shape)).sum(-1, keepdims=True)
    return safe + np.log(np.where(total > 0, total, 1))


def _backward_models() -> Iterator[Model]:
    def term(name: str, compute: Callable[[Intermediates], Outputs]) -> Model:
        return Model("backward_term", name, lambda _, x: compute(x))

    yield term("no row term", lambda x: _gradients(x, delta=0 * x.delta))
    yield term("row term added", lambda x: _gradients(x, delta=-x.delta))
    yield term("plain mean", lambda x: _gradients(x, delta=_plain_mean(x)))
    yield term("mean over all", lambda x: _gradients(x, delta=x.dp.mean(-1, keepdims=True)))
    yield term("no weights", lambda x: _gradients(x, ds=(x.dp - x.delta) * x.mask))
    yield term("detached scores", lambda x: _gradients(x, ds=0 * x.ds))
    yield term("ones for the cotangent", _ones)
    for output in ("dq", "dk", "dv"):
        yield Model("backward_term", f"{output} absent", _moved_gradient(output, np.zeros_like))
    for b in BLOCKS:
        yield Model("backward_term", f"last key block of {b}", _last_block(b))
        yield Model("length_divisibility", f"dK beyond {b}s zero", _truncated(b))
    yield from _recomputed_models()
    yield from _gradient_scale_models()
    for name, move in (
        ("reversed", lambda a: a[:, :, ::-1]),
        ("one late", lambda a: np.roll(a, 1, 2)),
        ("one early", lambda a: np.roll(a, -1, 2)),
    ):
        yield Model("dv_rows", f"cotangent {name}", _moved_cotangent(move))
        yield Model("dv_rows", f"written {name}", _moved_gradient("dv", move))
    for output in ("dq", "dk", "dv"):
        for step in (1, -1):
            roll = lambda a, n=step: np.roll(a, n, 0)  # noqa: E731
            yield Model("batch_mixup", f"{output} rolled {step:+d}", _moved_gradient(output, roll))


def _plain_mean(x: Intermediates) -> Float:
    seen = np.broadcast_to(x.mask, x.dp.shape).sum(-1, keepdims=True)
    return x.dp.sum(-1, keepdims=True) / np.maximum(seen, 1)


def _ones(x: Intermediates) -> Outputs:
    dp = np.where(x.mask, np.ones_like(x.cotangent) @ x.v.swapaxes(-1, -2), 0)
    delta = (x.p * dp).sum(-1, keepdims=True)
    found = _gradients(x, dp=dp, delta=delta)
    found["dv"] = over_groups(x.p.swapaxes(-1, -2) @ np.ones_like(x.cotangent), x.group)
    return found


def _last_block(b: int) -> Compute:
    def compute(_: Call, x: Intermediates) -> Outputs | None:
        S = x.k.shape[2]
        start = (S - 1) // b * b
        return {"dq": x.scale * (x.ds[..., start:] @ x.k[:, :, start:])}

    return compute


def _truncated(b: int) -> Compute:
    def compute(_: Call, x: Intermediates) -> Outputs | None:
        S = x.k.shape[2]
        found = _gradients(x)
        found["dk"][:, :, S // b * b :] = 0
        return {"dk": found["dk"]}

    return compute


# How a backward gets its weights back, and its row term: normalised anew; from the forward's
# log-sum-exp with the row term from the output; the same with the row term from those weights.
RECOMPUTED = ("anew", "lse", "lse, own row term")


def _weights(s: Float, mask: Bool, lse: Float, kind: str) -> Float:
    if kind == "anew":
        return masked_weights(np.where(mask, s, 0), mask)
    return np.where(mask, np.exp(np.minimum(s - lse, 700)), 0)


def _row_term(x: Intermediates, p: Float, dp: Float, kind: str) -> Float:
    return x.delta if kind == "lse" else np.asarray((p * dp).sum(-1, keepdims=True))


def _recomputed_models() -> Iterator[Model]:
    """Weights recomputed in the backward, from the forward's log-sum-exp or normalised anew."""

    def recomputed(
        fault_class: str, name: str, wrong: Callable[[Call, Intermediates], Bool | None]
    ) -> Iterator[Model]:
        for kind, zeroed in itertools.product(RECOMPUTED, (False, True)):

            def compute(
                call: Call, x: Intermediates, *, kind: str = kind, zeroed: bool = zeroed
            ) -> Outputs | None:
                mask = wrong(call, x)
                if mask is None:
                    return None
                k, v = (x.k, x.v) if zeroed else raw(call, x)
                s = x.scale * (x.q @ k.swapaxes(-1, -2))
                mask = np.broadcast_to(mask, s.shape)
                p = _weights(s, mask, _lse(x), kind)
                dp = np.where(mask, x.cotangent @ v.swapaxes(-1, -2), 0)
                ds = p * (dp - _row_term(x, p, dp, kind))
                return {
                    "dq": x.scale * (ds @ k),
                    "dk": over_groups(x.scale * (ds.swapaxes(-1, -2) @ x.q), x.group),
                    "dv": over_groups(p.swapaxes(-1, -2) @ x.cotangent, x.group),
                }

            yield Model(fault_class, f"backward: {name}, {kind}, {zeroed}", compute)

    def causal(rule: Rule) -> Callable[..., Bool | None]:
        return lambda call, x: keys(call, x) & rule(*grid(x)) if call.causal else None

    def masked(change: Callable[[Bool], Bool]) -> Callable[..., Bool | None]:
        def wrong(call: Call, x: Intermediates) -> Bool | None:
            if call.key_mask is None:
                return None
            return change(call.key_mask)[:, None, None, :] & seen(call, x)

        return wrong

    yield from recomputed("backward_term", "causality absent", causal(everything))
    yield from recomputed("causal_alignment", "top-left", causal(lambda i, j, o: j <= i))
    yield from recomputed("causal_alignment", "reversed", causal(lambda i, j, o: j <= i - o))
    for d in (-1, 1):
        yield from recomputed("causal_off_by_one", f"{d:+d}", causal(shifted(d)))
    for width in (128, 256, 1024, 4096):
        name = f"window of {width} left on"
        yield from recomputed("block_range", name, causal(window(width)))
    yield from recomputed("padding_ignored", "key mask absent", masked(np.ones_like))
    yield from recomputed("mask_polarity", "key mask inverted", masked(np.logical_not))
    yield from recomputed("batch_mixup", "mask of the first", masked(lambda m: m[:1] | (m & False)))


def _gradient_scale_models() -> Iterator[Model]:
    def of_size(output: str, name: str, factor: Callable[[float], float]) -> Model:
        def compute(_: Call, x: Intermediates) -> Outputs | None:
            return {o: g * factor(x.scale) for o, g in _gradients(x).items() if o in output}

        return Model("scale", f"{output} {name}", compute)

    for output in ("dq", "dk", "dqdk"):
        yield of_size(output, "lacks the scale", lambda w: 1 / w)
        yield of_size(output, "scaled twice", lambda w: w)

    def from_logits(
        fault_class: str, name: str, change: Callable[[Float, Intermediates], Float]
    ) -> Iterator[Model]:
        for kind in RECOMPUTED:

            def compute(_: Call, x: Intermediates, *, kind: str = kind) -> Outputs | None:
                mask = np.broadcast_to(x.mask, x.s.shape)
                base = change(_lse(x), x) if fault_class == "lse" else _lse(x)
                p = _weights(change(x.s, x), mask, base, kind)
                return _gradients(x, p=p, delta=_row_term(x, p, x.dp, kind))

            yield Model(fault_class, f"backward: {name}, {kind}", compute)

    yield from from_logits("scale", "from unscaled scores", lambda s, x: s / x.scale)
    yield from from_logits("scale", "from scores scaled twice", lambda s, x: s * x.scale)
    yield from from_logits("lse", "in base two", lambda s, x: s * math.log(2))


def _moved_cotangent(move: Callable[[Float], Float]) -> Compute:
    def compute(_: Call, x: Intermediates) -> Outputs | None:
        return {"dv": over_groups(x.p.swapaxes(-1, -2) @ move(x.cotangent), x.group)}

    return compute


def _moved_gradient(output: str, move: Callable[[Float], Float]) -> Compute:
    def compute(_: Call, x: Intermediates) -> Outputs | None:
        return {output: move(_gradients(x)[output])}

    return compute


BACKWARD: tuple[Model, ...] = tuple(_backward_models())
