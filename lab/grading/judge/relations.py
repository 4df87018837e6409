"""Metamorphic relations: how answers to related questions must be related, with no tolerance.

They need no truth and no bound, so they hold at every precision: what is hidden changes no bit,
what is visible moves exactly its rows, permuted questions get permuted answers, powers of two pass
through. A relation compares two answers of one compiled program, row by row at the same place, so
that equal really means equal bits (and -0 equals 0). The two that read weights out through V are
the exception: their sums are 1 to within the roundings of p and of the output.

Where both answers hold NaN a relation says nothing; the numeric gates reject NaN anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lab.grading.cases import BY_NAME
from lab.grading.executor import Answer, Call, changed
from lab.grading.findings import GRADIENT_CHECK, OUTPUTS, Finding
from lab.grading.judge.budgets import low_precision_sum
from lab.grading.judge.numeric import judge_attention
from lab.grading.judge.rows import as_units, finding, moved, same, zero
from lab.grading.judge.tiers import TIERS, U16, U32
from lab.truth.problems import poison, visible

if TYPE_CHECKING:
    from lab.grading.judge.numeric import Reference
    from lab.truth.problems import Array

Verify = Callable[[Answer, Answer, str, str], "list[Finding]"]


@dataclass(frozen=True)
class Relation:
    """A second call and what its answer must be, given the answer to the case's own call.

    `verify(base, answer, case, tier)` returns findings whose gate is the relation's name; only the
    sums of weights look at the tier.
    """

    name: str
    call: Call
    verify: Verify


def relations(reference: Reference, seed: int) -> list[Relation]:
    """Every relation that applies to a problem; `seed` draws the changed values."""
    rng = np.random.default_rng(seed)
    found = [forward_alone(reference), _repeat(reference)]
    found += [_weights_constant(reference), _weights_one_hot(reference)]
    found += [_powers_of_two(reference), _one_query(reference, rng), _one_value(reference, rng)]
    found += [
        _first_value(reference),
        *_last_cotangent(reference),
        _one_key(reference, rng),
        *_hidden(reference, rng),
        *_causality(reference, rng),
    ]
    return found + _permutations(reference)


def empty_rows(reference: Reference, base: Answer, case: str) -> list[Finding]:
    """Rows that see no key: `out` and `dq` are exactly 0 there. Needs no second call."""
    call = reference.call
    blind = ~visible_keys(call).any(-1)
    if not blind.any():
        return []
    rows = np.broadcast_to(blind, call.q.shape[:3])
    gate = "empty_row_is_zero"
    return [zero("empty_row", gate, case, o, getattr(base, o), rows) for o in ("out", "dq")]


def seeing_rows(answer: Answer, call: Call) -> Answer:
    """The answer with rows that see no key set to 0: `empty_rows` judges those, and exactly."""
    blind = ~visible_keys(call).any(-1)
    if not blind.any():
        return answer
    rows = np.broadcast_to(blind, call.q.shape[:3])[..., None]
    out = None if answer.out is None else np.where(rows, 0, answer.out).astype(answer.out.dtype)
    dq = None if answer.dq is None else np.where(rows, 0, answer.dq).astype(answer.dq.dtype)
    return replace(answer, out=out, dq=dq)


def forward_alone(reference: Reference) -> Relation:
    """Called for its output alone, it must be as right as where it is differentiated.

    The two are different programs: a custom_vjp has one rule for each.
    """

    def verify(_: Answer, got: Answer, case: str, tier: str) -> list[Finding]:
        judged = seeing_rows(got, reference.call)
        gates = judge_attention(judged, reference, tier, case=case, outputs=("out",))
        worst = max(gates, key=lambda found: found.units)
        check = BY_NAME[case].check if case in BY_NAME else "accuracy"
        return [replace(worst, check=check, gate="forward_alone")]

    return Relation("forward_alone", changed(reference.call, cotangent=None), verify)


# What is hidden.


def _hidden(reference: Reference, rng: np.random.Generator) -> list[Relation]:
    call = reference.call
    if call.key_mask is None or call.key_mask.all() or not call.key_mask.any():
        return []
    hidden = np.broadcast_to(~call.key_mask[:, None, :], call.k.shape[:3])
    rest = {"dk": ~hidden, "dv": ~hidden}

    def verify(check: str, gate: str) -> Verify:
        def compare(base: Answer, got: Answer, case: str, _tier: str) -> list[Finding]:
            kept = [
                same(check, gate, case, o, getattr(base, o), getattr(got, o), rest.get(o))
                for o in OUTPUTS
            ]
            gone = [zero(check, gate, case, o, getattr(got, o), hidden) for o in ("dk", "dv")]
            return kept + gone

        return compare

    other = changed(call, k=_replaced(call.k, hidden, rng), v=_replaced(call.v, hidden, rng))
    poisoned = poison(reference.problem)
    return [
        Relation("hidden_values", other, verify("padding", "hidden_values")),
        Relation(
            "hidden_poison",
            changed(call, k=poisoned.k, v=poisoned.v),
            verify("poisoned_padding", "hidden_poison"),
        ),
    ]


def _causality(reference: Reference, rng: np.random.Generator) -> list[Relation]:
    """Later keys do not reach earlier rows; earlier rows send no gradient to later keys."""
    call = reference.call
    T, S = call.q.shape[2], call.k.shape[2]
    if not call.causal or T < 2:
        return []
    first_row = int(rng.integers(1, T)) if S >= T else int(rng.integers(T - S + 1, T))
    first_key = first_row + S - T  # seen by first_row and later ones only
    later_keys = np.zeros(call.k.shape[:3], bool)
    later_keys[:, :, first_key:] = True
    earlier_rows = np.zeros(call.q.shape[:3], bool)
    earlier_rows[:, :, :first_row] = True

    def future(base: Answer, got: Answer, case: str, _tier: str) -> list[Finding]:
        return [
            same("causal", "future_keys", case, o, getattr(base, o), getattr(got, o), earlier_rows)
            for o in ("out", "dq")
        ]

    def past(_: Answer, got: Answer, case: str, _tier: str) -> list[Finding]:
        gate, later_rows = "past_cotangent", ~earlier_rows
        return [
            zero("grad_k", gate, case, "dk", got.dk, later_keys),
            zero("grad_v", gate, case, "dv", got.dv, later_keys),
            zero("grad_q", gate, case, "dq", got.dq, later_rows),
        ]

    k, v = _replaced(call.k, later_keys, rng), _replaced(call.v, later_keys, rng)
    found = [Relation("future_keys", changed(call, k=k, v=v), future)]
    if call.cotangent is not None:
        cotangent = np.where(earlier_rows[..., None], call.cotangent, 0).astype(
            call.cotangent.dtype
        )
        found.append(Relation("past_cotangent", changed(call, cotangent=cotangent), past))
    return found


# What is visible, and what it reaches.


def _one_value(reference: Reference, rng: np.random.Generator) -> Relation:
    """Change one visible V: the rows that weigh it move, all others keep their bits."""
    call, group = reference.call, reference.inside.group
    b, h, j = _some_key(reference, rng)
    v = np.array(call.v)
    v[b, h, j] = (v[b, h, j].astype(np.float64) + 64.0).astype(v.dtype)
    heads = slice(h * group, (h + 1) * group)
    seen = np.broadcast_to(visible_keys(call)[..., j], call.q.shape[:3])
    weight = reference.inside.p[..., j]
    touched = np.zeros(call.q.shape[:3], bool)
    touched[b, heads] = seen[b, heads]
    # 64 p against values of size 1 with roundings of 2^-8: from p = 2^-6 on, no rounding hides it.
    must_move = touched & (weight > 2.0**-6)

    def verify(base: Answer, got: Answer, case: str, _tier: str) -> list[Finding]:
        gate = "one_value"
        check = "accuracy" if group == 1 else "gqa_mapping"
        own = moved(check, gate, case, base.out, got.out, must_move)
        return [own, *_elsewhere(reference, base, got, case, gate, (b, h, touched))]

    return Relation("one_value", changed(call, v=v), verify)


def _first_value(reference: Reference) -> Relation:
    """Change V of the first key: every row that sees it moves, however far away.

    A window that was left on, or a block skipped, has no excuse in rounding: the value moves by
    4096, so that a weight of 2^-14 moves the output by 1/4.
    """
    call = reference.call
    B, S = call.k.shape[0], call.k.shape[2]
    mask = np.broadcast_to(visible_keys(call), (B, 1, call.q.shape[2], S))[:, 0]
    first = mask.sum(1).argmax(-1)  # of each batch entry, the first of those that most rows see
    v = np.array(call.v)
    weigh = np.zeros(call.q.shape[:3], bool)
    for b, j in enumerate(first):
        v[b, :, j] = (v[b, :, j].astype(np.float64) + 4096.0).astype(v.dtype)
        weigh[b] = mask[b, :, j] & (reference.inside.p[b, ..., j] > 2.0**-14)

    def verify(base: Answer, got: Answer, case: str, _tier: str) -> list[Finding]:
        check = "causal" if call.causal else "accuracy"
        return [moved(check, "first_value", case, base.out, got.out, weigh)]

    return Relation("first_value", changed(call, v=v), verify)


def _last_cotangent(reference: Reference) -> list[Relation]:
    """A cotangent on the last row alone: every key that it sees gets gradient in V."""
    call, group = reference.call, reference.inside.group
    if call.cotangent is None:
        return []
    B, Hkv, S = call.k.shape[:3]
    mask = np.broadcast_to(visible_keys(call), (B, 1, call.q.shape[2], S))[:, 0]
    last = np.zeros(call.q.shape[:3], bool)
    reached = np.zeros((B, Hkv, S), bool)
    for b in range(B):
        row = int(np.flatnonzero(mask[b].any(-1))[-1]) if mask[b].any() else 0
        last[b, :, row] = True
        p = reference.inside.p[b, :, row].reshape(Hkv, group, S)
        # One head of the group suffices; that two cancel in every column is not to be feared.
        reached[b] = mask[b, row] & (p.max(1) > 2.0**-14)
    cotangent = np.where(last[..., None], call.cotangent, 0).astype(call.cotangent.dtype)

    def verify(_: Answer, got: Answer, case: str, _tier: str) -> list[Finding]:
        if got.dv is None:
            return []
        absent = (got.dv == 0).all(-1)
        return [finding("grad_v", "last_cotangent", case, "dv", as_units(absent, reached))]

    return [Relation("last_cotangent", changed(call, cotangent=cotangent), verify)]


def _one_key(reference: Reference, rng: np.random.Generator) -> Relation:
    """Change one visible K: other batch entries, other heads and blind rows keep their bits."""
    call, group = reference.call, reference.inside.group
    b, h, j = _some_key(reference, rng)
    k = np.array(call.k)
    k[b, h, j] = np.asarray(rng.standard_normal(k.shape[-1])).astype(k.dtype)
    touched = np.zeros(call.q.shape[:3], bool)
    seen = np.broadcast_to(visible_keys(call)[..., j], call.q.shape[:3])
    touched[b, h * group : (h + 1) * group] = seen[b, h * group : (h + 1) * group]

    def verify(base: Answer, got: Answer, case: str, _tier: str) -> list[Finding]:
        return _elsewhere(reference, base, got, case, "one_key", (b, h, touched))

    return Relation("one_key", changed(call, k=k), verify)


def _elsewhere(
    reference: Reference,
    base: Answer,
    got: Answer,
    case: str,
    gate: str,
    where: tuple[int, int, Array],
) -> list[Finding]:
    b, h, touched = where
    group = reference.inside.group
    findings = []
    for output, per_head in (("out", group), ("dq", group), ("dk", 1), ("dv", 1)):
        before, after = getattr(base, output), getattr(got, output)
        shape = reference.truth[output].shape[:3]
        own = np.zeros(shape, bool)
        own[b, h * per_head : (h + 1) * per_head] = True
        other_batch, same_batch = np.ones(shape, bool), np.zeros(shape, bool)
        other_batch[b], same_batch[b] = False, True
        if shape[0] > 1:
            findings.append(same("multi_batch", gate, case, output, before, after, other_batch))
        if not (own[b]).all():
            rows = same_batch & ~own
            findings.append(same("gqa_mapping", gate, case, output, before, after, rows))
        if output in ("out", "dq"):
            check = "causal" if reference.call.causal else "accuracy"
            findings.append(same(check, gate, case, output, before, after, own & ~touched))
    return findings


def _one_query(reference: Reference, rng: np.random.Generator) -> Relation:
    """Change every other query: the rows between keep their bits."""
    call = reference.call
    odd = np.zeros(call.q.shape[:3], bool)
    odd[:, :, 1::2] = True

    def verify(base: Answer, got: Answer, case: str, _tier: str) -> list[Finding]:
        return [
            same("layout", "one_query", case, o, getattr(base, o), getattr(got, o), ~odd)
            for o in ("out", "dq")
        ]

    return Relation("one_query", changed(call, q=_replaced(call.q, odd, rng)), verify)


def _permutations(reference: Reference) -> list[Relation]:
    """Roll the batch, or the key heads with their groups: the answers roll along."""
    call, group = reference.call, reference.inside.group

    def rolled(check: str, gate: str, axis: int) -> Relation:
        steps = {"q": group if axis == 1 else 1, "cotangent": group if axis == 1 else 1}
        fields = {}
        for name in ("q", "k", "v", "cotangent", "key_mask"):
            array = getattr(call, name)
            if array is not None and not (name == "key_mask" and axis == 1):
                fields[name] = np.roll(array, steps.get(name, 1), axis)

        def verify(base: Answer, got: Answer, case: str, _tier: str) -> list[Finding]:
            findings = []
            for output in OUTPUTS:
                before = getattr(base, output)
                step = group if axis == 1 and output in ("out", "dq") else 1
                before = None if before is None else np.roll(before, step, axis)
                findings.append(same(check, gate, case, output, before, getattr(got, output)))
            return findings

        return Relation(gate, changed(call, **fields), verify)

    found = []
    if call.q.shape[0] > 1:
        found.append(rolled("multi_batch", "batch_roll", 0))
    if call.k.shape[1] > 1:
        found.append(rolled("gqa_mapping", "head_roll", 1))
    return found


# Values that pass straight through.


def _powers_of_two(reference: Reference) -> Relation:
    """4 V and 8 g: every result is multiplied by the power of two it is linear in, exactly."""
    call = reference.call
    factors = {"out": 4, "dq": 32, "dk": 32, "dv": 8}
    v = (call.v.astype(np.float64) * 4).astype(call.v.dtype)
    cotangent = None if call.cotangent is None else call.cotangent * call.cotangent.dtype.type(8)

    def verify(base: Answer, got: Answer, case: str, _tier: str) -> list[Finding]:
        findings = []
        for output, factor in factors.items():
            before, after = getattr(base, output), getattr(got, output)
            if before is not None:
                wide = before.astype(np.float64)
                # Below that, a product may have lost bits to underflow on one side only.
                safe = np.where(np.abs(wide) < 2.0**-90, np.nan, wide) * factor
                after = np.where(np.isnan(safe), np.nan, after.astype(np.float64))
                before = safe
            check = GRADIENT_CHECK.get(output, "weights")
            findings.append(same(check, "power_of_two", case, output, before, after))
        return findings

    return Relation("power_of_two", changed(call, v=v, cotangent=cotangent), verify)


def _weights_constant(reference: Reference) -> Relation:
    call = reference.call
    ones = np.ones_like(call.v)

    def verify(_: Answer, got: Answer, case: str, tier: str) -> list[Finding]:
        return [_sums_to_one(reference, got.out, case, tier, "constant_v")]

    return Relation("constant_v", changed(call, v=ones), verify)


def _weights_one_hot(reference: Reference) -> Relation:
    call = reference.call
    S, D = call.v.shape[2:]
    hot = np.broadcast_to(np.arange(D) == (np.arange(S)[:, None] % D), call.v.shape)

    def verify(_: Answer, got: Answer, case: str, tier: str) -> list[Finding]:
        assert got.out is not None
        out = got.out.astype(np.float64)
        total = np.where((out < 0).any(-1, keepdims=True), np.nan, out.sum(-1, keepdims=True))
        return [_sums_to_one(reference, total, case, tier, "one_hot_v")]

    return Relation("one_hot_v", changed(call, v=hot.astype(call.v.dtype)), verify)


def _sums_to_one(
    reference: Reference, sums: Array | None, case: str, tier: str, gate: str
) -> Finding:
    """Sums are 1 in a row that sees a key; p and the output are rounded, once or thereabouts."""
    assert sums is not None
    call = reference.call
    S = call.k.shape[2]
    rounded = call.q.dtype.name == "bfloat16" or TIERS[tier].intermediate > 0
    u = U16 if rounded else U32 * S**0.5
    keys = np.broadcast_to(visible_keys(call).sum(-1), call.q.shape[:3])
    allowed = 4 * u + 2 * low_precision_sum(keys.astype(np.float64), TIERS[tier].accumulate)
    error = np.abs(sums.astype(np.float64) - 1).max(-1)
    error = np.where(keys > 0, error, 0.0)  # `empty_rows` judges the others
    units = np.where(np.isnan(error), np.inf, error / allowed)
    return finding("weights", gate, case, "out", units)


def _repeat(reference: Reference) -> Relation:
    def verify(base: Answer, got: Answer, case: str, _tier: str) -> list[Finding]:
        return [
            same("repeatable", "repeat", case, o, getattr(base, o), getattr(got, o))
            for o in OUTPUTS
        ]

    return Relation("repeat", reference.call, verify)


# Keys and values to change.


def visible_keys(call: Call) -> Array:
    """Bool `[B or 1, 1, T, S]`."""
    mask = visible(call.q.shape[2], call.k.shape[2], causal=call.causal, key_mask=call.key_mask)
    return mask.reshape((1,) * (4 - mask.ndim) + mask.shape)


def _some_key(reference: Reference, rng: np.random.Generator) -> tuple[int, int, int]:
    """A key (batch, key head, index) that some row sees and, if it can be, some row does not."""
    call = reference.call
    B, Hkv, S = call.k.shape[:3]
    mask = np.broadcast_to(visible_keys(call), (B, 1, call.q.shape[2], S))
    h = int(rng.integers(Hkv))
    b = int(rng.choice(np.flatnonzero(mask.any((1, 2, 3)))))
    seen = mask[b, 0].any(0)
    partly = seen & ~mask[b, 0].all(0)
    return b, h, int(rng.choice(np.flatnonzero(partly if partly.any() else seen)))


def _replaced(x: Array, where: Array, rng: np.random.Generator) -> Array:
    """Other finite values, twice as large as N(0, 1), in the rows `where` `[B, H, rows]`."""
    other = np.asarray(2 * rng.standard_normal(x.shape)).astype(np.float32)
    return np.where(where[..., None], other, x.astype(np.float32)).astype(x.dtype)
