"""Exit codes, read from records: what is as expected and what is not."""

from __future__ import annotations

from typing import Any

import pytest
import samples

from lab.cells import expectations
from lab.records import Result


def rubric(score: float, verdict: str, expected: str, *overrides: str) -> Result:
    section = {
        "score": score, "max_score": 100.0, "verdict": verdict, "expected": expected, "tier": None,
        "fault_class": None, "worst": None, "items": [],
    }  # fmt: skip
    return samples.result(samples.cell("task=rubric", *overrides), section)


def correctness(*passed: bool) -> Result:
    checks: list[dict[str, Any]] = [
        {"name": f"check{n}", "passed": p, "error": 0.5, "bound": 1.0, "margin": 2.0}
        for n, p in enumerate(passed)
    ]
    return samples.result(samples.cell("task=correctness"), {"checks": checks})


def verify(*, passed: bool) -> Result:
    section = {"path": "dataset", "passed": passed, "checks": []}
    return samples.result(samples.cell("task=verify"), section)


LOWER = "accepted_lower_tier"
DONE = samples.timed(ms=1.0)
UNSUPPORTED = samples.result(samples.cell("seq=7"), status="unsupported", reason="odd length")


@pytest.mark.parametrize("status", ["failed", "timeout", "interrupted"])
def test_a_cell_that_did_not_finish_is_a_surprise_with_its_reason(status: str) -> None:
    result = samples.result(samples.cell(), status=status, reason="because")
    assert expectations.surprises(result) == (f"{status}: because",)
    assert expectations.exit_code([DONE, result, DONE]) == 1


def test_one_unsupported_cell_among_others_is_a_row_and_all_of_them_a_failure() -> None:
    assert expectations.exit_code([DONE]) == 0
    assert expectations.exit_code([DONE, UNSUPPORTED]) == 0
    assert expectations.exit_code([UNSUPPORTED, UNSUPPORTED]) == 1
    assert expectations.exit_code([]) == 1


def test_a_failed_check_is_named() -> None:
    assert expectations.exit_code([correctness(True, True)]) == 0
    assert expectations.surprises(correctness(True, False, False)) == (
        "checks failed: check1, check2",
    )
    assert expectations.exit_code([correctness(True, False)]) == 1


def test_a_rejected_fault_is_expected_and_an_accepted_one_is_not() -> None:
    fault = "candidate=ignores-causal"
    assert expectations.exit_code([rubric(40, "rejected", "rejected", fault)]) == 0
    (reason,) = expectations.surprises(rubric(100, "accepted", "rejected", fault))
    assert reason == "verdict accepted, expected rejected"
    assert expectations.exit_code([rubric(40, "rejected", "accepted")]) == 1


def test_a_strangers_file_is_rejected_and_nobody_is_said_to_have_expected_otherwise() -> None:
    custom = ("candidate=custom", f"candidate.path={__file__}", "candidate.function=rubric")
    found = rubric(40, "rejected", "accepted", *custom)
    assert expectations.surprises(found) == ("verdict rejected",)
    assert expectations.exit_code([found]) == 1
    said = rubric(40, "rejected", LOWER, *custom, f"candidate.expected={LOWER}")
    assert expectations.surprises(said) == (f"verdict rejected, expected {LOWER}",)


def test_fail_under_looks_at_the_score_alone() -> None:
    limit = "rubric.fail_under=90"
    assert expectations.exit_code([rubric(90, "accepted", "accepted", limit)]) == 0
    (reason,) = expectations.surprises(rubric(89.5, "accepted", "accepted", limit))
    assert reason == "score 89.5 is under rubric.fail_under=90"


def test_a_release_that_does_not_verify_is_a_failure() -> None:
    assert expectations.exit_code([verify(passed=True)]) == 0
    assert expectations.exit_code([verify(passed=False)]) == 1
