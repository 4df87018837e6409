"""Name the fault class that fits best, from where an implementation fails and what it returned.

Three steps. What only one kind of input shows is named by that input (`_by_pattern`: only poisoned
keys, only rows without a key, only extreme logits...). Else float64 models of the fault classes are
compared with what was returned, row by row, and the nearest one names it (`_by_model`). Else the
checks that failed do (`_by_check`). Candidates are not known here, only faults.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lab.grading.cases import FEW_QUERIES
from lab.grading.checks import BY_CHECKS, CHECKS
from lab.grading.faults.backward import BACKWARD
from lab.grading.faults.forward import FORWARD
from lab.grading.judge.numeric import judge_output
from lab.grading.judge.relations import visible_keys
from lab.grading.judge.systematic import without_bias
from lab.grading.judge.tiers import DECLARED

if TYPE_CHECKING:
    from lab.grading.examine import Examined
    from lab.grading.faults.model import Model
    from lab.grading.findings import Finding
    from lab.grading.judge.intermediates import Bool, Float

CONVINCING = 0.8  # share of the wrong rows that a model must give, to be believed
NEAREST = 0.3  # to be named for want of anything better
LARGE_CASE = 1 << 17  # logits: larger cases are left to the smaller ones
LARGEST_CASE = 1 << 21  # where no smaller one fails
SHORTLIST = 12  # models that get a closer look after the first two cases
# The regimes that only extreme logits make; a mixture may be one of them.
EXTREME = ("large_logits", "below_sentinel", "mixture")
ORDINARY_WIDTHS = (64, 128)
DECODING_WIDTH = 32  # of the long decode cases alone: it says nothing about widths
# Faults of far positions, the only ones tried on cases too large for all models.
FAR = ("position_overflow", "block_bound")
SAME_GAIN = 0.004  # two estimates of one factor

# The check whose advice helps with a class.
ADVICE = {
    "causal_alignment": "causal_alignment",
    "causal_ignored": "causal",
    "causal_off_by_one": "causal",
    "block_bound": "combined",
    "block_range": "combined",
    "mask_polarity": "padding",
    "mask_broadcast": "padding",
    "padding_ignored": "padding",
    "poison_leak": "poisoned_padding",
    "empty_row": "empty_row",
    "finite_sentinel": "extreme_logits",
    "overflow": "extreme_logits",
    "stale_rescale": "moving_max",
    "lse": "weights",
    "tail_block": "tail_block",
    "length_divisibility": "tail_block",
    "gqa_mapping": "gqa_mapping",
    "group_gradient": "grad_k",
    "backward_term": "grad_q",
    "dv_rows": "grad_v",
    "scale": "scale",
    "wrong_axis": "layout",
    "layout": "layout",
    "low_precision_scores": "precision",
    "low_precision_accumulate": "precision",
    "batch_mixup": "multi_batch",
    "head_dim": "head_dim",
    "position_overflow": "long_row",
    "uninitialised": "repeatable",
    "index_map": "combined",
    "silent_fallback": "causal",
    "gain": "precision",
    "soft_cap": "scale",
    "dropout": "weights",
}


@dataclass(frozen=True)
class Fault:
    """The class that fits best.

    Attributes:
        fault_class: an id, or None if nothing is wrong or nothing fits.
        advice: one line.
        convincing: whether a model or a pattern explains what was returned, so that rounding
            cannot be the reason.
        by_rounding: whether the class is one of low precision.
        why: what the name rests on.
        guess: whether neither a model nor a pattern supports the name.
        also: other classes that are plain beside it.
    """

    fault_class: str | None
    advice: str | None
    convincing: bool = False
    by_rounding: bool = False
    why: str = ""
    guess: bool = False
    also: tuple[str, ...] = ()


def classify(examined: Sequence[Examined], found: Sequence[Finding]) -> Fault:
    """The fault class of an implementation with failed findings."""
    judged = [e for e in examined if e.judged]
    failed = [f for f in found if not f.passed and f.check != "contract"]
    if not failed:
        return Fault(None, "See the reason given for the check `contract`.")
    fault = _classify(judged, failed)
    also = tuple(name for name in _plain_too(failed) if name != fault.fault_class)
    return replace(fault, also=also)


def _classify(judged: Sequence[Examined], failed: Sequence[Finding]) -> Fault:
    pattern = _by_pattern(judged, failed)
    if pattern:
        return _fault(pattern, convincing=True, why="only the inputs meant for it fail")
    gain = _by_gain(judged, failed)
    if gain:
        return _fault("gain", convincing=True, why=gain)
    model, score = _by_model(judged, failed)
    if model is not None and score >= CONVINCING:
        why = f"the model `{model.name}` gives {score:.0%} of the rows that are wrong"
        return _fault(model.fault_class, convincing=True, why=why)
    plain = _by_answer(judged, failed)
    if plain is not None:
        return plain
    by_check = _by_check(judged, failed)
    if by_check in (None, "index_map") and model is not None and score > NEAREST:
        why = f"nearest model: {model.name} ({score:.0%})"
        return _fault(model.fault_class, why=why, guess=True)
    return _fault(by_check or "backward_term", why=BY_CHECKS, guess=True)


def name_of_tier(tier: str) -> Fault:
    """The class of an implementation that is right at a lower tier."""
    accumulate = tier == "bf16_accumulate"
    name = "low_precision_accumulate" if accumulate else "low_precision_scores"
    return Fault(name, CHECKS["precision"].advice, by_rounding=True, why=f"right at tier {tier}")


def _fault(name: str, *, convincing: bool = False, why: str, guess: bool = False) -> Fault:
    advice = CHECKS[ADVICE.get(name, "accuracy")].advice
    return Fault(name, advice, convincing, why=why, guess=guess)


def _plain_too(failed: Sequence[Finding]) -> list[str]:
    """Classes that show by themselves in cases whose numbers are right."""
    wrong = {f.case for f in failed if f.gate in ("element", "row", "hidden_values")}
    own = {"hidden_poison": "poison_leak", "empty_row_is_zero": "empty_row"}
    found = {own[f.gate] for f in failed if f.gate in own and f.case not in wrong}
    if any(f.gate == "repeat" for f in failed):
        found.add("uninitialised")
    return sorted(found)


# By what was returned, without a model.


def _by_answer(judged: Sequence[Examined], failed: Sequence[Finding]) -> Fault | None:
    if _dropped(judged, failed):
        return _fault("dropout", convincing=True, why="weights are 0 or scaled up by one factor")
    if _zeroed(judged, failed):
        return _fault("uninitialised", convincing=True, why="every wrong row is exactly 0")
    return None


def _by_gain(judged: Sequence[Examined], failed: Sequence[Finding]) -> str | None:
    """Why it is a gain or an offset: without it, every result is within the roundings allowed.

    One factor, near 1, over several unlike cases: a factor that changes with the width or the group
    is another fault.
    """
    failing = {(f.case, f.output) for f in failed if f.gate in ("element", "row", "gain")}
    biased = [f for f in failed if f.gate == "gain"]
    if not biased or not {f.output for f in biased} >= {output for _, output in failing}:
        return None
    cases = {
        e.case.name: e
        for e in judged
        # Few rows say little of a factor; one head of a group is none of the key head's gradient.
        if e.case.regime == "normal" and not _few_queries(e) and e.case.shape.group == 1
    }
    gains: list[float] = []
    for name, output in sorted({(f.case, f.output) for f in biased if f.case in cases}):
        reference, got = cases[name].reference, getattr(cases[name].answer, output)
        tier = DECLARED[reference.problem.policy.name]
        straightened = without_bias(got, reference.truth[output], reference.bounds(tier)[output])
        if straightened is None:
            continue
        gates = judge_output(straightened.values, reference, tier, output)
        if not all(f.passed for f in gates if f.gate == "row"):
            return None
        gains.append(straightened.gain)
    shapes = {cases[f.case].case.shape for f in biased if f.case in cases}
    near_one = all(0.5 < g < 2 for g in gains)
    if not gains or len(shapes) < 2 or not near_one or max(gains) - min(gains) > SAME_GAIN:
        return None
    return f"{biased[0].note}, and right but for that"


def _dropped(judged: Sequence[Examined], failed: Sequence[Finding]) -> bool:
    """Whether the weights that a one-hot V reads out are 0, or all larger by 1 / (share kept)."""
    names = {f.case for f in failed}
    for e in judged:
        if e.case.regime != "one_hot_v" or e.case.name not in names or e.answer.out is None:
            continue
        v = e.reference.inside.v
        alone = (v != 0).sum(2)[:, :, None, :] == 1  # columns that read one key
        told = np.broadcast_to(alone, e.answer.out.shape) & (e.reference.truth["out"] > 2.0**-9)
        ratio = e.answer.out.astype(np.float64)[told] / e.reference.truth["out"][told]
        kept = ratio[ratio > 0.1]
        lost = 1 - kept.size / max(ratio.size, 1)
        if kept.size and 0.01 < lost < 0.9:
            factor = float(np.median(kept))
            alike = float(np.mean(np.abs(kept / factor - 1) < 0.02)) > 0.95
            return alike and abs(factor * (1 - lost) - 1) < 0.1
    return False


def _zeroed(judged: Sequence[Examined], failed: Sequence[Finding]) -> bool:
    """Whether every wrong row of `out` is exactly 0: it was never written, or never computed."""
    names = {f.case for f in failed if f.output == "out" and f.gate in ("element", "row", "gain")}
    evidence = [_evidence(e, ("out",)) for e in judged if e.case.name in names]
    if all(e.one.case.regime in EXTREME for e in evidence):
        return False  # an underflow
    wrong = [one.got["out"][one.wrong["out"]] for one in evidence if "out" in one.got]
    return any(len(rows) for rows in wrong) and not any(rows.any() for rows in wrong)


# By pattern.


def _by_pattern(  # noqa: PLR0911 - a list of patterns
    judged: Sequence[Examined], failed: Sequence[Finding]
) -> str | None:
    """A class that is plain from which inputs fail, all others being right."""
    cases = {e.case.name: e for e in judged}
    names = {f.case for f in failed}
    forward = any(f.output in ("out", "") for f in failed)

    def only(holds: dict[str, bool]) -> bool:
        return all(holds[name] for name in names)

    poisoned = all(
        f.gate == "hidden_poison" or cases[f.case].case.regime == "poisoned" for f in failed
    )
    if poisoned:
        return "poison_leak"
    if all(f.gate == "repeat" for f in failed):
        return "uninitialised"
    if all(f.gate == "forward_alone" for f in failed):
        return "silent_fallback"  # what is differentiated is not what runs
    blind = {n: _has_blind_rows(e) for n, e in cases.items()}
    empty = any(f.gate == "empty_row_is_zero" for f in failed)
    # Numbers in `out` are those of rows that see a key: they are right if this is the fault.
    padded = any(cases[n].case.shape.padding == "empty" for n in names)
    if only(blind) and (empty or padded) and not _numbers_fail(failed, "out"):
        return "empty_row"
    dead = {n: e.case.shape.padding in ("head", "hole", "mixed") for n, e in cases.items()}
    if only(dead) and any(math.isinf(f.units) and f.gate == "element" for f in failed):
        return "empty_row"  # of a whole block that is hidden
    extreme = {n: e.case.regime in EXTREME for n, e in cases.items()}
    hidden = {n: e.case.shape.causal or e.case.shape.padding != "none" for n, e in cases.items()}
    if only(extreme):
        # What overflows does so at large logits above all. A sentinel needs logits below it, and
        # may stand in padded lanes too, where no mask is.
        large = any(cases[n].case.regime == "large_logits" for n in names)
        return "overflow" if large and not only(hidden) else "finite_sentinel"
    # A finite stand-in for -inf also gives rows without a key the mean of V.
    if only({n: hidden[n] and (extreme[n] or blind[n]) for n in cases}) and any(
        extreme[n] for n in names
    ):
        return "finite_sentinel"
    both = {n: e.case.shape.causal and e.case.shape.padding != "none" for n, e in cases.items()}
    if only(both) and any(f.gate == "future_keys" for f in failed):
        return "silent_fallback"
    if only({n: e.reference.inside.group > 1 for n, e in cases.items()}):
        shapes = {cases[n].case.shape for n in names}
        if any(not shape.causal for shape in shapes):
            return "gqa_mapping" if forward else "group_gradient"
    given = all(cases[n].case.scale is not None for n in names)
    return "scale" if given else _by_width(cases, names)


def _few_queries(one: Examined) -> bool:
    return one.case.shape.q_len <= max(FEW_QUERIES)


def _has_blind_rows(one: Examined) -> bool:
    return bool((~visible_keys(one.reference.call).any(-1)).any())


def _numbers_fail(failed: Sequence[Finding], output: str) -> bool:
    return any(f.output == output and f.gate in ("element", "row", "gain") for f in failed)


def _mask(one: Examined) -> tuple[bool, str]:
    """Which mask a case is hidden by; one query, the last, is hidden from nothing by causality."""
    shape = one.case.shape
    return shape.causal and shape.q_len > 1, shape.padding


def _by_width(cases: dict[str, Examined], names: set[str]) -> str | None:
    """Every failing width is an odd one, in several unlike shapes, and no width does both."""
    widths = {cases[n].case.shape.head_dim for n in names} - {DECODING_WIDTH}
    unlike = {cases[n].case.shape.causal for n in names}
    right = {e.case.shape.head_dim for n, e in cases.items() if n not in names}
    odd = not widths & set(ORDINARY_WIDTHS) and bool(right & set(ORDINARY_WIDTHS))
    masked = {_mask(e) for n, e in cases.items() if n not in names}
    alike = {_mask(cases[n]) for n in names} <= masked
    if widths and right and min(widths) > max(right) and alike:
        return "head_dim"  # the widest alone, whose masks narrower cases got right
    return "head_dim" if widths and odd and len(unlike) > 1 and not widths & right else None


# By model.


@dataclass(frozen=True)
class _Evidence:
    """What one case says: each result, where it is wrong, and how near counts as equal."""

    one: Examined
    got: dict[str, Float]
    wrong: dict[str, Bool]
    slack: dict[str, Float]


def _by_model(judged: Sequence[Examined], failed: Sequence[Finding]) -> tuple[Model | None, float]:
    """The model nearest to what was returned, and the share of rows it explains."""
    forward = _numbers_fail(failed, "out")
    models, outputs = (FORWARD, ("out",)) if forward else (BACKWARD, ("dq", "dk", "dv"))
    failing = {
        f.case for f in failed if f.output in outputs and f.gate in ("element", "row", "gain")
    }
    telling = _telling(judged, failing)
    if not telling:
        telling = _telling(judged, failing, LARGEST_CASE)[:1]
        models = tuple(m for m in models if m.fault_class in FAR or not _of_blocks(m))
    right = [e for e in _telling(judged, _comparable(judged, failing)) if e not in telling]
    evidence = [_evidence(e, outputs) for e in (*telling[:5], *right[:4])]
    first = [e for e in evidence if e.one.case.name in failing][:2]
    if not first:
        return None, 0.0
    ranked = sorted(models, key=lambda model: -_score(model, first))[:SHORTLIST]
    scores = [(_score(model, evidence), model) for model in ranked]
    score, model = max(scores, key=lambda pair: pair[0])
    return model, score


def _of_blocks(model: Model) -> bool:
    """Whether it is one of many that differ in a block size: too many for a large case."""
    return any(digit in model.name for digit in "0123456789") and "window" not in model.name


def _comparable(judged: Sequence[Examined], failing: set[str]) -> set[str]:
    """Cases that are right, and were to fail as well if the fault were general.

    What fails in decoding alone, in all but decoding, or on long keys alone, may lie in code for
    these alone.
    """
    shapes = {e.case.name: e.case.shape for e in judged}
    wrong = [shapes[name] for name in failing]
    decoding = {e.case.name for e in judged if _few_queries(e)}
    shortest = min((s.kv_len for s in wrong), default=0)
    kept = {n for n, s in shapes.items() if n not in failing and s.kv_len >= shortest}
    if failing <= decoding:
        kept = {n for n in kept & decoding if shapes[n].q_len in {s.q_len for s in wrong}}
    elif not failing & decoding:
        kept -= decoding
    return kept


def _telling(
    judged: Sequence[Examined], names: set[str], limit: int = LARGE_CASE
) -> list[Examined]:
    """Cases with ordinary values, one a shape, the small ones first."""
    usable = [
        e
        for e in judged
        if e.case.name in names
        and e.case.regime not in ("poisoned", *EXTREME)
        and e.reference.inside.s.size <= limit
    ]
    # What a fault makes of rows without a key is anyone's guess: cases with such rows come last.
    # Few rows say little, so do those of decoding.
    usable.sort(
        key=lambda e: (_has_blind_rows(e), e.case.check == "decode", e.reference.inside.s.size)
    )
    shapes: dict[object, Examined] = {}
    for e in usable:
        shapes.setdefault(e.case.shape, e)
    return list(shapes.values())


def _evidence(one: Examined, outputs: Sequence[str]) -> _Evidence:
    got, wrong, slack = {}, {}, {}
    for output in outputs:
        array = getattr(one.answer, output)
        if array is not None:
            got[output] = array.astype(np.float64)
            slack[output] = one.reference.bounds("bf16")[output].worst.mean(-1)
            wrong[output] = ~_near(got[output], one.reference.truth[output], slack[output])
    return _Evidence(one, got, wrong, slack)


def _score(model: Model, evidence: Sequence[_Evidence]) -> float:
    """Of the rows that are wrong, or wrong according to the model, the share that agree."""
    agree = total = 0
    for e in evidence:
        modelled = _modelled(model, e.one) or {}
        for output, got in e.got.items():
            truth, slack = e.one.reference.truth[output], e.slack[output]
            concerned = e.wrong[output]
            if output in modelled:
                says = modelled[output]
                concerned = concerned | ~_near(says, truth, slack)
                agree += int((_near(got, says, slack) & concerned).sum())
            total += int(concerned.sum())
    return agree / total if total else 0.0


def _modelled(model: Model, one: Examined) -> dict[str, Float] | None:
    key = ("model", f"{model.fault_class} {model.name}")
    if key not in one.reference.memory:
        with np.errstate(all="ignore"):
            one.reference.memory[key] = model.compute(one.reference.call, one.reference.inside)
    found: dict[str, Float] | None = one.reference.memory[key]
    return found


def _near(a: Float, b: Float, slack: Float) -> Bool:
    """Rows `[B, H, rows]` equal up to a few roundings; two that are not finite count as equal."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(a).all(-1) & np.isfinite(b).all(-1)
        error = np.sqrt(np.square(a - b).mean(-1))
        size = np.sqrt(np.square(b).mean(-1))
        both_broken = ~np.isfinite(a).all(-1) & ~np.isfinite(b).all(-1)
    return np.where(finite, error <= slack + 0.01 * size, both_broken)


# By check.


def _by_check(  # noqa: PLR0911 - a list of rules
    judged: Sequence[Examined], failed: Sequence[Finding]
) -> str | None:
    """A class from which checks and cases fail, in order of how much they say."""
    cases = {e.case.name: e for e in judged}
    names = {f.case for f in failed}
    gates = {f.gate for f in failed}
    checks = {f.check for f in failed}
    wrong_out = _numbers_fail(failed, "out")
    if not wrong_out and not any(
        f.gate == "empty_row_is_zero" and f.output == "out" for f in failed
    ):
        return _by_gradient(failed, names, cases)
    if _broken(cases) or "repeat" in gates:
        return "uninitialised"
    if names == {"positions"}:
        return "position_overflow"
    masked = {n for n, e in cases.items() if e.case.shape.padding != "none"}
    causal = {n for n, e in cases.items() if e.case.shape.causal}
    if names <= masked:
        return "batch_mixup" if "multi_batch" in checks else "padding_ignored"
    if names <= causal:
        square = any(
            e.case.shape.q_len == e.case.shape.kv_len for n, e in cases.items() if n in names
        )
        return "block_bound" if square else "causal_alignment"
    if "multi_batch" in checks:
        return "batch_mixup"
    if "one_query" in gates:
        return "layout"
    if "constant_v" in gates:
        return "tail_block"
    return "index_map"


def _by_gradient(
    failed: Sequence[Finding], names: set[str], cases: dict[str, Examined]
) -> str | None:
    outputs = {f.output for f in failed}
    if names <= {n for n, e in cases.items() if e.reference.inside.group > 1}:
        return "group_gradient"
    if names <= {n for n, e in cases.items() if e.case.shape.padding != "none"}:
        return "padding_ignored"
    return "dv_rows" if outputs == {"dv"} else "backward_term"


def _broken(cases: dict[str, Examined]) -> bool:
    """Ordinary values give NaN, or the first rows of every head are right and later ones are not.

    Without causality nothing but what was left behind by the rows before can tell rows apart.
    """
    plain = cases.get("plain")
    if plain is None or plain.answer.out is None:
        return False
    evidence = _evidence(plain, ("out",))
    wrong = evidence.wrong["out"]
    first_right = not wrong[:, :, :8].any() and bool(wrong.any(-1).all())
    return not bool(np.isfinite(evidence.got["out"]).all()) or first_right
