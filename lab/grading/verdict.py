"""From findings to a verdict: accepted, accepted at a lower tier, or rejected.

Meaning comes first and knows no tier. Then the numbers: the declared tier is tried, then the
coarser ones. A coarser tier is granted only if everything holds there, in cases that can still fail
at it, and if no fault explains the errors better than rounding does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lab.grading.examine import Examined, findings
from lab.grading.judge.null_answers import passing
from lab.grading.judge.tiers import ORDER, lower_than

if TYPE_CHECKING:
    from lab.grading.findings import Finding

VerdictName = Literal["accepted", "accepted_lower_tier", "rejected"]


@dataclass(frozen=True)
class Verdict:
    """What is decided and from what.

    Attributes:
        name: the verdict.
        tier: the finest tier reached; None if rejected.
        findings: at the tier reached (rejected: at the declared tier).
        declared: at the declared tier.
        vacuous: `(case, output)` pairs that prove nothing at that tier.
    """

    name: VerdictName
    tier: str | None
    findings: tuple[Finding, ...]
    declared: tuple[Finding, ...]
    vacuous: frozenset[tuple[str, str]]


def decide(examined: Sequence[Examined], declared: str) -> Verdict:
    """Judge all cases at the declared tier, and at coarser ones if that fails."""
    at_declared = all_findings(examined, declared)
    if all(f.passed for f in at_declared):
        finer = ORDER[: ORDER.index(declared)]
        reached = next((t for t in finer if _holds(examined, t)), declared)
        return Verdict("accepted", reached, at_declared, at_declared, vacuous(examined, declared))
    if not any(_is_meaning(f) and not f.passed for f in at_declared):
        for tier in lower_than(declared):
            found = all_findings(examined, tier)
            empty = vacuous(examined, tier)
            if all(f.passed for f in found) and _explains(at_declared, empty):
                return Verdict("accepted_lower_tier", tier, found, at_declared, empty)
    return Verdict("rejected", None, at_declared, at_declared, vacuous(examined, declared))


def _explains(at_declared: Sequence[Finding], empty: frozenset[tuple[str, str]]) -> bool:
    """Whether some failure lies where the coarser tier could still have failed.

    A kernel of lower precision shows it on ordinary values. One that fails only where a coarser
    bound lets everything pass has shown no precision at all.
    """
    return any(not f.passed and (f.case, f.output) not in empty for f in at_declared)


def all_findings(examined: Sequence[Examined], tier: str) -> tuple[Finding, ...]:
    """The findings of every case at a tier."""
    return tuple(f for one in examined for f in findings(one, tier))


def vacuous(examined: Sequence[Examined], tier: str) -> frozenset[tuple[str, str]]:
    """The `(case, output)` pairs in which a null answer passes the gates of a tier."""
    return frozenset(
        (one.case.name, name.split("/")[1])
        for one in examined
        for name in passing(one.reference, tier)
    )


def _holds(examined: Sequence[Examined], tier: str) -> bool:
    return all(f.passed for one in examined for f in findings(one, tier))


def _is_meaning(finding: Finding) -> bool:
    """Relations and the contract hold at every tier; sums of weights are numbers."""
    return finding.gate not in (
        "element",
        "row",
        "gain",
        "forward_alone",
        "constant_v",
        "one_hot_v",
    )
