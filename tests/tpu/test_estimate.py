"""The rule: which source counts, and when there is no estimate."""

import dataclasses

import pytest

from lab.tpu.chips import Chip
from lab.tpu.estimate import OpCycles, ceiling_ms, choose, estimate

V5E = Chip("v5e", "TPU v5 lite", "v5e:2x2", 1.5, 197, 819, 2**34, 2**27, 2**24, True, "test")
NO_CLOCK = dataclasses.replace(V5E, name="v6e", clock_ghz=None, validated=False)
XLA = OpCycles("fusion", False, 1, 0, 150_000, 40_000, 90_000)
PALLAS = OpCycles("kernel.1", True, 1, 0, None, 310_000, 300_000)
FLOOR_MS = 0.01


def test_xla_by_cost_model_and_pallas_by_schedule() -> None:
    assert choose(XLA, V5E) == ("cost_model", 150_000)
    assert choose(PALLAS, V5E) == ("schedule", 300_000)
    found = estimate([XLA, PALLAS], (), V5E, FLOOR_MS)
    assert found.ms == pytest.approx((150_000 + 300_000) / 1.5e6)
    assert found.no_estimate is None


def test_totals_by_source_are_null_where_a_source_lacks_an_op() -> None:
    found = estimate([XLA, PALLAS], (), V5E, FLOOR_MS)
    assert found.cost_model_ms is None
    assert found.static_profile_ms == pytest.approx(350_000 / 1.5e6)
    assert found.schedule_ms == pytest.approx(390_000 / 1.5e6)
    zero = dataclasses.replace(PALLAS, static_profile=0)
    assert estimate([XLA, zero], (), V5E, FLOOR_MS).static_profile_ms is None


def test_an_op_of_xla_without_cost_model_counts_by_schedule() -> None:
    assert choose(dataclasses.replace(XLA, cost_model=None), V5E) == ("schedule", 90_000)


def test_an_op_counts_as_often_as_it_runs() -> None:
    found = estimate([dataclasses.replace(XLA, count=7)], (), V5E, FLOOR_MS)
    assert found.ms == pytest.approx(7 * 150_000 / 1.5e6)


def test_a_schedule_that_hangs_on_data_gives_none_whatever_the_profile_says() -> None:
    hangs = dataclasses.replace(PALLAS, schedule=None, schedule_problem="a branch hangs on smem")
    assert choose(hangs, V5E) is None
    found = estimate([XLA, hangs], (), V5E, FLOOR_MS)
    assert found.ms is None
    assert found.no_estimate == "Pallas call kernel.1: a branch hangs on smem"


def test_the_profile_stands_in_for_an_unread_schedule_only_above_the_call_s_floor() -> None:
    unread = dataclasses.replace(
        PALLAS, schedule=None, schedule_problem="another format", schedule_unread=True
    )
    assert choose(unread, V5E) == ("static_profile", 310_000)
    # 310,000 cycles are 0.207 ms, in which v5e writes 169 MB.
    too_much = dataclasses.replace(unread, hbm_output_bytes=200_000_000)
    assert choose(too_much, V5E) is None


def test_below_the_floor_there_is_no_estimate() -> None:
    found = estimate([XLA], (), V5E, floor_ms=0.2)
    assert found.ms is None
    assert "below the floor of 0.2 ms" in str(found.no_estimate)


def test_absurd_figures_are_no_estimate_even_without_a_clock() -> None:
    garbage = dataclasses.replace(XLA, cost_model=10**18)
    for chip in (V5E, NO_CLOCK):
        found = estimate([garbage], (), chip, FLOOR_MS)
        assert found.ms is None
        assert "absurdly far above" in str(found.no_estimate)
    slow = dataclasses.replace(XLA, cost_model=int(ceiling_ms(FLOOR_MS) * 1.5e6 * 0.99))
    assert estimate([slow], (), V5E, FLOOR_MS).ms is not None


def test_without_a_public_clock_there_are_no_milliseconds() -> None:
    found = estimate([XLA], (), NO_CLOCK, FLOOR_MS)
    assert (found.ms, found.cost_model_ms, found.schedule_ms) == (None, None, None)
    assert "clock of v6e is not public" in str(found.no_estimate)


@pytest.mark.parametrize(
    ("ops", "problems", "reason"),
    [
        ([], (), "no op that takes time"),
        ([XLA], ("loop while runs a number of times",), "loop while"),
        ([dataclasses.replace(XLA, cost_model=None, schedule=None)], (), "no source has cycles"),
        ([dataclasses.replace(PALLAS, schedule=0)], (), "no source has cycles"),
    ],
)
def test_every_refusal_has_its_reason(
    ops: list[OpCycles], problems: tuple[str, ...], reason: str
) -> None:
    found = estimate(ops, problems, V5E, FLOOR_MS)
    assert found.ms is None
    assert reason in str(found.no_estimate)
