"""Gates A and B: an answer against the float64 truth, in units of what rounding may do.

The worst row decides: no mean, no share of good elements, no global cosine. NaN never matches.
`budgets` derives both bounds; `calibration` holds the thresholds of gate B.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lab import truth as oracle
from lab.grading.executor import Answer, Call, call_of
from lab.grading.findings import GRADIENT_CHECK, OUTPUTS, Finding
from lab.grading.judge.budgets import TINY, Bound, budgets, growth
from lab.grading.judge.calibration import FEW_TERMS, row_threshold
from lab.grading.judge.intermediates import Intermediates, intermediates
from lab.grading.judge.systematic import systematic
from lab.grading.judge.tiers import DECLARED, TIERS, U32, UNIT_ROUNDOFF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.grading.judge.intermediates import Float
    from lab.truth.problems import Array, AttentionProblem, SoftmaxProblem


SINGLE_DRAW = 1.75  # 1.6, the least threshold, times this is the 2 sqrt(2) of three roundings


class Reference:
    """The truth of one problem and its budgets at every tier; computed once, judged against often.

    Attributes:
        truth: float64 `out` `[B, Hq, T, D]`, `dq`, `dk`, `dv` in the shapes of q, k, v, from
            `lab.truth` on the rounded inputs.
    """

    def __init__(self, problem: AttentionProblem) -> None:
        self.problem = problem
        self.call: Call = call_of(problem)
        p = problem
        masks: dict[str, Any] = {"causal": p.causal, "key_mask": p.key_mask, "scale": p.scale}
        forward = oracle.forward(p.q, p.k, p.v, **masks)
        gradients = oracle.backward(p.q, p.k, p.v, p.cotangent, **masks)
        self.truth: dict[str, Float] = {
            "out": forward.out,
            "dq": gradients.dq,
            "dk": gradients.dk,
            "dv": gradients.dv,
        }
        self.memory: dict[tuple[str, str], Any] = {}  # what others derived from it, by name
        self._bounds: dict[str, dict[str, Bound]] = {}

    @cached_property
    def inside(self) -> Intermediates:
        """Float64 intermediates of the problem."""
        return intermediates(self.call)

    def bounds(self, tier: str) -> dict[str, Bound]:
        """The budget of each output at a tier."""
        if tier not in self._bounds:
            policy = self.problem.policy
            self._bounds[tier] = budgets(
                self.inside, self.truth, TIERS[tier], policy.input, policy.output
            )
        return self._bounds[tier]


def judge_attention(
    answer: Answer,
    problem: AttentionProblem | Reference,
    tier: str,
    *,
    check: str = "values",
    case: str = "",
    outputs: Sequence[str] = OUTPUTS,
) -> list[Finding]:
    """Judge the returned arrays by both gates.

    Args:
        answer: of kind `ok`; an output it lacks is not judged.
        problem: the problem, or its `Reference` when it is judged against more than once.
        tier: a name in `tiers.TIERS`.
        check: the id under which findings about `out` are filed; gradients have their own.
        case: a name for the findings.
        outputs: which results to judge.

    Returns:
        Three findings (gates `element`, `row` and `gain`) for each output.
    """
    reference = problem if isinstance(problem, Reference) else Reference(problem)
    bounds = reference.bounds(tier)
    exact = tier == "fp32" and reference.problem.policy.name == "f32"
    kind = "f32" if exact else "bf16"  # which roundings the errors are made of
    promised = reference.bounds(DECLARED[reference.problem.policy.name])
    findings: list[Finding] = []
    for name in outputs:
        got = getattr(answer, name)
        if got is None:
            continue
        filed = GRADIENT_CHECK.get(name, check)
        truth = reference.truth[name]
        findings += gates(got, truth, bounds[name], kind, filed, case, name)
        deviation = promised[name].deviation
        found = systematic(got, truth, bounds[name], deviation, TIERS[tier])
        findings.append(
            Finding(
                filed,
                "gain",
                case,
                name,
                found.units <= 1.0,
                found.units,
                found.batch,
                found.head,
                found.row,
                note=f"{name} {found.describe()}" if found.units > 1 else "",
            )
        )
    return findings


def holds(got: Array, reference: Reference, tier: str, output: str) -> bool:
    """Whether one output passes gates A, B and G; the later ones are asked only if need be."""
    truth, bound = reference.truth[output], reference.bounds(tier)[output]
    if not _element(got, truth, bound.worst, "", "", output).passed:
        return False
    return all(finding.passed for finding in judge_output(got, reference, tier, output))


def judge_output(got: Array, reference: Reference, tier: str, output: str) -> list[Finding]:
    """Gates A, B and G on one output of a problem: findings of no case and no check."""
    answer = replace(Answer("ok"), **{output: got})  # type: ignore[arg-type]
    return judge_attention(answer, reference, tier, outputs=(output,))


def judge_softmax(
    probabilities: Array,
    gradient: Array | None,
    problem: SoftmaxProblem,
    *,
    check: str = "softmax_parity",
    case: str = "",
) -> list[Finding]:
    """Judge a masked softmax (and its gradient in the logits) by gate A; outputs `p`, `dlogits`.

    With p the weights, g the cotangent and Delta = rowsum(p g): the subtraction and exp give p a
    relative error rho = 2 u32 |s - max s| + 4 u32 + g(S), and
    dlogits = p (g - Delta) one of p (rho + g(S)) (|g| + 2 sum p|g|) before it is rounded to the
    logits' dtype. Hidden logits are 0 in both, exactly.
    """
    mask = np.broadcast_to(problem.mask, problem.logits.shape)
    s = np.where(mask, problem.logits.astype(np.float64), 0.0)
    p = oracle.softmax_forward(problem.logits, problem.mask)
    top = np.max(s, axis=-1, keepdims=True, where=mask, initial=-np.inf)
    below = np.abs(s - np.where(np.isfinite(top), top, 0.0))
    rho = 2 * U32 * below + 4 * U32 + 2 * growth(s.shape[-1])
    findings = [_element(probabilities, p, np.where(mask, p * rho + TINY, 0), check, case, "p")]
    if gradient is not None:
        g = np.abs(problem.cotangent.astype(np.float64))
        d = oracle.softmax_backward(problem.logits, problem.mask, problem.cotangent)
        spread = g + 2 * (p * g).sum(-1, keepdims=True)
        u = UNIT_ROUNDOFF[problem.policy.input]
        bound = np.where(mask, u * np.abs(d) + 2 * p * rho * spread + TINY, 0)
        findings.append(_element(gradient, d, bound, check, case, "dlogits"))
    return findings


def gates(
    got: Array, truth: Float, bound: Bound, kind: str, check: str, case: str, output: str
) -> list[Finding]:
    """Gates A and B on one output `[B, H, rows, D]`."""
    element = _element(got, truth, bound.worst, check, case, output)
    few, many = (row_threshold(output, kind, few=few) for few in (True, False))
    threshold = np.where(bound.terms < FEW_TERMS, few, many)
    units = _as_units(row_ratios(got, truth, bound) / (threshold * concentration(bound)))
    return [element, _worst(units, check, "row", case, output)]


def row_ratios(got: Array, truth: Float, bound: Bound) -> Float:
    """Gate B's statistic: rms error of each row over its expected deviation, `[B, H, rows]`."""
    with np.errstate(all="ignore"):
        error = np.square(got.astype(np.float64) - truth).mean(-1)
        return np.asarray(np.sqrt(error / np.square(bound.deviation).mean(-1)))


def concentration(bound: Bound) -> Float:
    """How much further a row's ratio may stray because few elements make its error, `[B, H, rows]`.

    The threshold is that of rows whose elements are of one size: an rms over D draws. Where one
    element outweighs the others (a column of large values) the row is a single draw, and an error
    of several roundings may reach twice its deviation. From 1 (all alike) to `SINGLE_DRAW`.
    """
    fourth, second = (np.power(bound.deviation, n).mean(-1) for n in (4, 2))
    D = bound.deviation.shape[-1]
    share = np.sqrt(fourth / D) / second  # 1/sqrt(D) where all are alike, 1 where one is all
    return np.asarray(1 + (SINGLE_DRAW - 1) * np.maximum(share - 2 / math.sqrt(D), 0))


def _element(got: Array, truth: Float, bound: Float, check: str, case: str, output: str) -> Finding:
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - truth)
        # A bound of 0 asks for exactly 0.
        units = np.where(error == 0, 0.0, error / bound)
    return _worst(_as_units(units).max(-1), check, "element", case, output)


def _as_units(ratio: Float) -> Float:
    return np.where(np.isnan(ratio), np.inf, ratio)


def _worst(units: Float, check: str, gate: str, case: str, output: str) -> Finding:
    batch, head, row = (int(i) for i in np.unravel_index(int(units.argmax()), units.shape))
    worst = float(units.max())
    return Finding(check, gate, case, output, worst <= 1.0, worst, batch, head, row)
