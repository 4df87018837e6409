"""Grade one implementation: cases, gates, verdict, fault class, points. The same for everyone.

    from lab.grading import InProcess, grade
    record = grade(InProcess(my_attention), policy="bf16")
    record.verdict, record.score, record.fault_class

`grade` needs an `Executor`; the judge itself imports no jax.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from lab.errors import UserError
from lab.grading.cases import SUITE, Case
from lab.grading.checks import CHECKS, GATES, NOT_COVERED, OUTSIDE
from lab.grading.coverage import covered_by
from lab.grading.examine import Examined, examine
from lab.grading.faults.classify import Fault, classify, name_of_tier
from lab.grading.judge.tiers import DECLARED, TIERS, lower_than
from lab.grading.verdict import Verdict, decide
from lab.records import RubricItem, RubricSection, Worst
from lab.truth.problems import POLICIES

if TYPE_CHECKING:
    from lab.grading.executor import Executor
    from lab.grading.findings import Finding

GRADIENT_CHECKS = ("grad_q", "grad_k", "grad_v")
Expected = Literal["accepted", "accepted_lower_tier", "rejected"]


def grade(
    executor: Executor,
    *,
    policy: str = "bf16",
    tier: str | None = None,
    expected: Expected = "accepted",
    backward: Literal["auto", "required", "none"] = "required",
    seed: int | Callable[[str], int] = 0,
    cases: Sequence[Case] = SUITE,
    rejection: Callable[[], str | None] = lambda: None,
) -> RubricSection:
    """Grade an implementation of attention, forward and backward.

    Args:
        executor: runs it; `InProcess(function)` for one you trust, `Sandbox` for one you don't.
        policy: dtype policy of the inputs, `bf16` or `f32`.
        tier: the precision tier it promises; None for the policy's own.
        expected: the verdict its author expects; kept in the record beside the verdict reached.
        backward: `required`: gradients are part of the contract. `auto`: they are graded if they
            can be had. `none`: they are not asked for.
        seed: a number, or a function that gives each case's seed by its name.
        cases: what it is asked.
        rejection: asked once after the answers: why it is rejected whatever they are worth.

    Returns:
        The `rubric` section of a result: score, verdict, tier, fault class, worst error, items.

    Raises:
        UserError: an unknown policy or tier.
    """
    if policy not in POLICIES:
        raise UserError(f"policy={policy}: allowed are {', '.join(POLICIES)}")
    declared = DECLARED[policy] if tier is None else tier
    if declared not in TIERS:
        raise UserError(f"candidate.tier={tier}: allowed are {', '.join(TIERS)}")
    seed_of = seed if callable(seed) else (lambda _: seed)
    examined = examine(executor, POLICIES[policy], cases, seed_of, backward=backward != "none")
    return summarise(examined, declared, expected, backward=backward, rejection=rejection())


def summarise(
    examined: Sequence[Examined],
    declared: str,
    expected: Expected,
    *,
    backward: str = "required",
    rejection: str | None = None,
) -> RubricSection:
    """Verdict, class and points for examined cases."""
    verdict = decide(examined, declared)
    missing = _missing_backward(examined)
    uncovered = [e.case.name for e in examined if e.answer.kind == "unsupported"]
    uncovered_core = [e.case.name for e in examined if e.case.core and e.case.name in uncovered]
    if rejection is None and missing and backward == "required":
        rejection = f"no gradients: {missing}"
    if rejection is None and uncovered_core:
        rejection = f"the minimum core is not supported: {', '.join(uncovered_core)}"
    undeclared = [e for e in examined if e.answer.kind == "unsupported" and not _declared(e)]
    if rejection is None and 2 * len(undeclared) > len(examined):
        rejection = (
            f"refuses {len(undeclared)} of {len(examined)} cases and declares none of it: "
            f"say so by candidate.supports ({undeclared[0].answer.detail})"
        )
    fault = _fault(examined, verdict) if rejection is None else Fault(None, rejection)
    if fault.fault_class and verdict.name == "accepted_lower_tier" and not fault.by_rounding:
        verdict = Verdict("rejected", None, verdict.declared, verdict.declared, verdict.vacuous)
    rejected = rejection is not None or verdict.name == "rejected"
    items = _items(
        examined,
        verdict,
        declared,
        gradients=missing is None and backward != "none",
        offered=backward != "none",
        rejection=rejection,
    )
    return RubricSection(
        score=sum(item.earned for item in items),
        max_score=sum(item.points for item in items),
        verdict="rejected" if rejected else verdict.name,
        expected=expected,
        tier=None if rejected else verdict.tier,
        fault_class=fault.fault_class,
        worst=_worst(verdict.declared),
        items=items,
        advice=fault.advice if rejected or fault.fault_class else None,
        details={
            "why": fault.why or None,
            "guess": fault.guess,
            "also": list(fault.also),
            **_details(examined, verdict, declared, uncovered, missing, rejection),
        },
    )


def _declared(one: Examined) -> bool:
    """Whether a refusal is one that the candidate's declaration made, not its code."""
    return one.answer.declared


def _fault(examined: Sequence[Examined], verdict: Verdict) -> Fault:
    if verdict.name == "accepted":
        return Fault(None, None)
    fault = classify(examined, verdict.declared)
    if verdict.name == "accepted_lower_tier":
        assert verdict.tier is not None
        return fault if fault.convincing else name_of_tier(verdict.tier)
    return fault


def _missing_backward(examined: Sequence[Examined]) -> str | None:
    return next((e.answer.backward_error for e in examined if e.answer.backward_error), None)


def _items(
    examined: Sequence[Examined],
    verdict: Verdict,
    declared: str,
    *,
    gradients: bool,
    offered: bool,
    rejection: str | None,
) -> list[RubricItem]:
    """A line for each check; one that declared limits leave out costs nothing.

    Args:
        examined: the cases and their answers.
        verdict: what is decided, with the findings.
        declared: the tier promised.
        gradients: whether there are any.
        offered: whether the candidate says that it has a backward.
        rejection: why it is rejected whatever the findings are.
    """
    filed: dict[str, list[Finding]] = defaultdict(list)
    for finding in verdict.findings:
        filed[finding.check].append(finding)
    lower = verdict.name == "accepted_lower_tier"
    proved = {
        f.check
        for f in verdict.findings
        if f.gate not in ("element", "row", "gain") or (f.case, f.output) not in verdict.vacuous
    }
    limited = any(_declared(e) for e in examined if e.answer.kind == "unsupported")
    ran = [e.case for e in examined if e.judged]
    promised_less = any(
        declared in lower_than(DECLARED[e.reference.problem.policy.name]) for e in examined[:1]
    )
    items = []
    for check in CHECKS.values():
        found, note = filed[check.id], None
        points, covered = float(check.points), True
        failed = [f for f in found if not f.passed]
        passed = not failed and (check.id in proved)
        if check.id == "precision":
            passed = verdict.name == "accepted"
            note = f"reached {verdict.tier}" if verdict.tier else "no tier is reached"
        elif check.id in GRADIENT_CHECKS and not gradients:
            passed, note = False, "no gradients"
            if not offered:
                points, note = 0.0, "not offered (candidate.backward=none)"
        elif failed:
            note = describe(max(failed, key=lambda f: f.units))
        elif not found:
            covered, note = False, NOT_COVERED
            if limited:
                points, note = 0.0, OUTSIDE
        elif not passed:
            note = f"proves nothing at tier {declared if promised_less else verdict.tier}"
            if promised_less and not lower:
                points = 0.0  # out of reach of anyone who promises no more
        else:
            note = covered_by(check.id, ran)
        if rejection is not None and check.id == "contract":
            passed, note = False, rejection
        earned = points if passed else 0.0
        items.append(
            RubricItem(
                id=check.id, points=points, earned=earned, passed=passed, covered=covered, note=note
            )
        )
    return items


def describe(finding: Finding) -> str:
    """A finding in a few words: what, how much, where."""
    if finding.note:
        return f"{finding.case}: {finding.note}"
    if math.isinf(finding.units) and finding.gate in ("element", "row", "forward_alone"):
        what, size = "is not finite, or not 0 where only 0 is right", ""
    else:
        what = GATES[finding.gate]
        size = "" if math.isinf(finding.units) else f", {finding.units:.3g} x the bound"
    where = f", at batch {finding.batch}, head {finding.head}, row {finding.row}"
    return f"{finding.case}: {finding.output} {what}{size}{where}"


def _worst(findings: Sequence[Finding]) -> Worst | None:
    """The worst error: of failed findings if there are any, the numeric ones first."""
    numeric = [f for f in findings if f.gate in ("element", "row", "gain")]
    failed = [f for f in numeric if not f.passed] or [f for f in findings if not f.passed]
    pool = failed or numeric
    if not pool:
        return None
    worst = max(pool, key=lambda f: f.units)
    units = None if math.isinf(worst.units) else worst.units
    return Worst(
        case=worst.case,
        output=worst.output or None,
        units=units,
        batch=worst.batch,
        head=worst.head,
        row=worst.row,
    )


def _details(
    examined: Sequence[Examined],
    verdict: Verdict,
    declared: str,
    uncovered: list[str],
    missing: str | None,
    rejection: str | None,
) -> dict[str, Any]:
    failed = [f for f in verdict.declared if not f.passed]
    failed.sort(key=lambda f: -f.units)
    by_name = {e.case.name: e for e in examined}
    return {
        "declared_tier": declared,
        "cases": len(examined),
        "unsupported_cases": uncovered,
        "vacuous": sorted("/".join(pair) for pair in verdict.vacuous),
        "rejection": rejection,
        "backward_error": missing,
        "failed": [
            {
                "check": f.check,
                "gate": f.gate,
                "case": f.case,
                "output": f.output,
                "seed": by_name[f.case].reference.problem.seed,
                "relation_seed": by_name[f.case].relation_seed,
                "units": None if math.isinf(f.units) else f.units,
                "batch": f.batch,
                "head": f.head,
                "row": f.row,
                "note": f.note,
            }
            for f in failed[:40]
        ],
        "failed_count": len(failed),
    }
