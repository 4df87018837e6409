"""Was this the expected outcome? Read from the record alone, so that every launcher agrees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lab.records import CompareSection, Result, RubricSection


def surprises(result: Result) -> tuple[str, ...]:
    """Reasons, one line each, why this finished cell is not as expected; empty if it is.

    An unsupported cell is a result; `exit_code` decides whether a whole run may consist of them.
    """
    if result.status == "unsupported":
        return ()
    if result.status != "done":
        return (f"{result.status}: {result.reason}",)
    reasons: tuple[str, ...] = ()
    if result.correctness:
        failed = [check.name for check in result.correctness.checks if not check.passed]
        reasons = (f"checks failed: {', '.join(failed)}",) if failed else ()
    elif result.rubric:
        reasons = _rubric_surprises(result, result.rubric)
    elif result.audit:
        reasons = tuple(result.audit.summary.get("failures", ()))
    elif result.compare:
        reasons = _compare_surprises(result.compare)
    elif result.verify:
        reasons = () if result.verify.passed else ("the release does not verify",)
    elif result.doctor:
        reasons = () if result.doctor.ready else (f"not ready: {result.doctor.advice}",)
    elif result.campaign:
        bad = [step.name for step in result.campaign.steps if not step.as_expected]
        reasons = (f"campaign steps failed: {', '.join(bad)}",) if bad else ()
    return reasons


def _compare_surprises(section: CompareSection) -> tuple[str, ...]:
    if not section.compared:
        return ("no case has a time on both sides",)
    limit = f"compare.max_regression={section.max_regression:g}"
    return tuple(
        f"regression: {one.case}: "
        + (one.note or "" if one.ratio is None else f"{one.ratio:.3f} times, over {limit}")
        for one in section.cells
        if one.regression
    )


def _rubric_surprises(result: Result, rubric: RubricSection) -> tuple[str, ...]:
    reasons = []
    if rubric.verdict != rubric.expected:
        expected = f", expected {rubric.expected}"
        declared = verdict_is_declared(result.config["candidate"])
        reasons.append(f"verdict {rubric.verdict}{expected if declared else ''}")
    fail_under = result.config["rubric"]["fail_under"]
    if fail_under is not None and rubric.score < fail_under:
        reasons.append(f"score {rubric.score:g} is under rubric.fail_under={fail_under:g}")
    return tuple(reasons)


def verdict_is_declared(candidate: Mapping[str, Any]) -> bool:
    """Whether somebody said which verdict is expected: for a stranger's file it is a default."""
    return bool(candidate["kind"] != "custom" or candidate["expected"] != "accepted")


def exit_code(results: Iterable[Result]) -> int:
    """0 if all went as expected; 1 if any did not, or if every cell was unsupported."""
    results = list(results)
    if any(surprises(result) for result in results):
        return 1
    return int(all(result.status == "unsupported" for result in results))
