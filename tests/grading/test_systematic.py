# ruff: noqa: ANN001, ANN201, ANN202 - fixtures, typed by their names
"""Gains and offsets are no rounding, at any tier; sums that saturate are not blamed here."""

import numpy as np
import pytest

from lab.grading.cases import BY_NAME
from lab.grading.engine import grade
from lab.grading.judge.intermediates import over_groups
from lab.grading.judge.numeric import Reference, judge_output
from lab.grading.judge.tiers import ORDER, U16
from lab.truth.problems import POLICIES

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")


@pytest.fixture(scope="module")
def reference():
    return Reference(BY_NAME["plain"].problem(POLICIES["bf16"], 3))


def gate(reference, tier, output, change):
    got = change(reference.truth[output]).astype("bfloat16")
    return next(f for f in judge_output(got, reference, tier, output) if f.gate == "gain")


def one_head(x):
    return x * np.where(np.arange(x.shape[1]) == 1, 1.03, 1)[:, None, None]


@pytest.mark.parametrize("tier", ["bf16", "bf16_scores", "bf16_accumulate"])
@pytest.mark.parametrize("output", ["out", "dq", "dk", "dv"])
def test_a_gain_is_rejected_at_every_tier(reference, tier, output):
    for factor in (1.01, 1.03, 0.97):
        found = gate(reference, tier, output, lambda x, f=factor: x * f)
        assert not found.passed
        assert f"{factor:.4f}" in found.note
    assert not gate(reference, tier, output, one_head).passed
    assert gate(reference, tier, output, lambda x: x).passed


def test_a_constant_is_rejected_and_noise_is_not(reference):
    rng = np.random.default_rng(0)
    for tier in ORDER:
        assert not gate(reference, tier, "out", lambda x: x + 2.0**-7).passed

    def noisy(x):
        return x * (1 + 0.05 * rng.standard_normal(x.shape))

    assert gate(reference, "bf16_accumulate", "out", noisy).passed


@pytest.mark.parametrize("output", ["out", "dk", "dv"])
def test_a_gain_is_rejected_and_named(fake, small_cases, without, output):
    cases = [*small_cases, BY_NAME["plain"], BY_NAME["empty"], BY_NAME["padded"]]
    record = grade(fake(change=without(output, lambda _, x: x * 1.03)), cases=cases)
    assert (record.verdict, record.fault_class) == ("rejected", "gain")
    assert not record.details["guess"]


def test_the_bound_holds_gradients_rounded_by_query_head_before_their_sum():
    """Heads that cancel leave a small sum with the roundings of large parts."""
    reference = Reference(BY_NAME["grouped"].problem(POLICIES["bf16"], 3))
    x, bound = reference.inside, reference.bounds("bf16")["dv"]
    heads = np.abs(x.p.swapaxes(-1, -2) @ x.cotangent)
    assert (bound.worst >= (x.group + 1) * U16 * over_groups(heads, x.group)).all()
