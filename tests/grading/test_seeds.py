"""Seed plans: unknown before, the same for everyone after."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lab.grading.sandbox.seeds import SeedPlan


def test_plans_are_drawn_anew_and_their_commitments_differ() -> None:
    plans = [SeedPlan.draw() for _ in range(20)]
    assert len({plan.secret for plan in plans}) == 20
    assert len({plan.commitment for plan in plans}) == 20
    assert all(plan.secret not in plan.commitment for plan in plans)


@given(st.text(max_size=40))
def test_a_revealed_plan_repeats_every_seed(case: str) -> None:
    plan = SeedPlan("00ff" * 8)
    again = SeedPlan(plan.secret)
    assert again.commitment == plan.commitment
    assert again.seed(case) == plan.seed(case)
    assert 0 <= plan.seed(case) < 2**31


def test_seeds_depend_on_case_and_plan() -> None:
    one, other = SeedPlan("00" * 16), SeedPlan("01" * 16)
    seeds = {one.seed("a"), one.seed("b"), other.seed("a"), other.seed("b")}
    assert len(seeds) == 4
