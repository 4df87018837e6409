# ruff: noqa: ARG005 - rules of one kind share a signature
"""Float64 models of faults in what a row sees: causality, the key mask, blocks left out by it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lab.grading.faults.model import (
    BLOCKS,
    Compute,
    Index,
    Model,
    Outputs,
    Rule,
    attend,
    everything,
    grid,
    keys,
    raw,
    seen,
    shifted,
    window,
)
from lab.grading.judge.intermediates import masked_weights

if TYPE_CHECKING:
    from lab.grading.executor import Call
    from lab.grading.judge.intermediates import Bool, Intermediates


WINDOWS = tuple(2**n for n in range(5, 15))  # keys of a local attention, 32 to 16384
# Positions of rows where the heads of a group are folded into the rows.
FOLDED: dict[str, Callable[[Index, int, int], Index]] = {
    "row divided by the group": lambda i, g, T: i // g,
    "row times the group": lambda i, g, T: i * g,
    "last head's rows": lambda i, g, T: i + (g - 1) * T,
    "row modulo the group": lambda i, g, T: i % g,
}


def _causal(fault_class: str, name: str, rule: Rule) -> Model:
    def compute(call: Call, x: Intermediates) -> Outputs | None:
        if not call.causal:
            return None
        return attend(x, mask=keys(call, x) & rule(*grid(x)))

    return Model(fault_class, name, compute)


def _causal_models() -> Iterator[Model]:
    yield _causal("causal_ignored", "ignored", everything)
    yield _causal("causal_alignment", "top-left", lambda i, j, o: j <= i)
    yield _causal("causal_alignment", "reversed", lambda i, j, o: j <= i - o)
    for shift in (-2, -1, 1, 2):
        yield _causal("causal_off_by_one", f"{shift:+d}", shifted(shift))
    yield _causal("mask_polarity", "inverted causal", lambda i, j, o: j > i + o)
    yield _causal("mask_polarity", "inverted causal, own key", lambda i, j, o: j >= i + o)
    for bits in (8, 16):
        yield _causal("position_overflow", f"int{bits}", _wrapped(bits))
    for width in WINDOWS:
        yield _causal("block_range", f"window of {width} left on", window(width))
        yield Model("block_range", f"window of {width} left on, both sides", _both_sides(width))
    for b in BLOCKS:
        for padded in ("T", "S", "TS"):
            yield _causal("causal_alignment", f"from {padded} padded to {b}", _padded(padded, b))
        yield _causal("block_range", f"by blocks of {b}", _by_blocks(b))
        yield _causal("block_range", f"diagonal block of {b} skipped", _diagonal_skipped(b))
    for bq in BLOCKS:
        for bk in BLOCKS:
            yield _causal("block_range", f"crossing {bq}x{bk} skipped", _crossing(bq, bk))
            yield _causal("block_range", f"begun {bq}x{bk} skipped", _begun(bq, bk))
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


def _both_sides(width: int) -> Compute:
    def compute(call: Call, x: Intermediates) -> Outputs | None:
        i, j, o = grid(x)
        near = np.abs(i + o - j) < width
        return None if near.all() else attend(x, mask=keys(call, x) & seen(call, x) & near)

    return compute


def _length_models() -> Iterator[Model]:
    """T where S is meant, and rows whose position is another's."""
    for name, position in FOLDED.items():
        yield Model("causal_alignment", f"causal {name}", _folded(position))
    for b in (1, *BLOCKS):
        yield Model("block_bound", f"keys up to T, in blocks of {b}", _up_to_queries(b))


def _folded(position: Callable[[Index, int, int], Index]) -> Compute:
    def compute(call: Call, x: Intermediates) -> Outputs | None:
        if not call.causal or x.group == 1:
            return None
        i, j, o = grid(x)
        return attend(x, mask=keys(call, x) & (j <= position(i, x.group, len(i)) + o))

    return compute


def _up_to_queries(b: int) -> Compute:
    """The loop over the keys ends where the queries do, rounded up to blocks."""

    def compute(_: Call, x: Intermediates) -> Outputs | None:
        T, S = x.q.shape[2], x.k.shape[2]
        end = -(-T // b) * b
        return None if end >= S else attend(x, mask=x.mask & (np.arange(S) < end))

    return compute


def _padded(which: str, b: int) -> Rule:
    """The offset S - T taken from lengths that were padded to whole blocks."""

    def rule(i: Index, j: Index, o: int) -> Bool:
        T, S = len(i), j.shape[1]
        return j <= i + o + ("S" in which) * (-S % b) - ("T" in which) * (-T % b)

    return rule


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


def _begun(bq: int, bk: int) -> Rule:
    return lambda i, j, o: ((j // bk + 1) * bk - 1 <= i // bq * bq + bq - 1 + o) & (j <= i + o)


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

    yield Model("padding_ignored", "hides queries", queries)
    for which, at_zero, width in itertools.product(("masked", "all"), (False, True), (1, 128)):
        name = f"hidden in the denominator: {which}, {at_zero}, {width}"
        yield Model("padding_ignored", name, _in_denominator(which, width, at_zero=at_zero))
    for zeroed in (False, True):
        yield Model("mask_broadcast", f"along the heads, {zeroed}", _across_heads(zeroed=zeroed))


def _in_denominator(which: str, width: int, *, at_zero: bool) -> Compute:
    """Hidden keys count in the sum of weights and nowhere else.

    Those that the key mask hides, or all; with their scores or with 0 in their place; and with
    them the lanes up to a multiple of `width`.
    """

    def compute(call: Call, x: Intermediates) -> Outputs | None:
        k, _ = raw(call, x)
        extra = -x.k.shape[2] % width
        s = np.where(x.mask, x.s, 0.0 if at_zero else x.scale * (x.q @ k.swapaxes(-1, -2)))
        counted = seen(call, x) if which == "masked" else np.ones_like(seen(call, x))
        counted = np.broadcast_to(counted, s.shape)
        if counted.sum() == np.broadcast_to(x.mask, s.shape).sum() and not extra:
            return None
        lanes = ((0, 0),) * 3 + ((0, extra),)
        s, counted = np.pad(s, lanes), np.pad(counted, lanes, constant_values=True)
        weights = masked_weights(np.where(counted, s, 0), counted)[..., : x.k.shape[2]]
        return {"out": np.where(x.mask, weights, 0) @ x.v}

    return compute


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


MASKS: tuple[Model, ...] = (*_causal_models(), *_length_models(), *_mask_models())
