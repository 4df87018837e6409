"""The rule: which source counts, and when there is no estimate."""

import dataclasses

import pytest
import samples

from lab.tpu.estimate import OpCycles, ceiling_ms, choose, estimate
from lab.tpu.roofline import Floor

V5E = samples.cell("task=compile", "target=v5e").config.target
NO_CLOCK = dataclasses.replace(V5E, name="v6e", clock_ghz=None, validated=False)
XLA = OpCycles("fusion", "xla", 1, 0, 150_000, 40_000, 90_000)
PALLAS = OpCycles("kernel.1", "pallas", 1, 0, None, 310_000, 300_000)
FLOOR = Floor(0.01, "memory", 0)


def test_xla_by_cost_model_and_pallas_by_schedule() -> None:
    assert choose(XLA, V5E) == ("cost_model", 150_000)
    assert choose(PALLAS, V5E) == ("schedule", 300_000)
    found = estimate([XLA, PALLAS], (), V5E, FLOOR)
    assert found.ms == pytest.approx((150_000 + 300_000) / 1.5e6)
    assert found.no_estimate is None


def test_totals_by_source_are_null_where_a_source_lacks_an_op() -> None:
    found = estimate([XLA, PALLAS], (), V5E, FLOOR)
    assert found.cost_model_ms is None
    assert found.static_profile_ms == pytest.approx(350_000 / 1.5e6)
    assert found.schedule_ms == pytest.approx(390_000 / 1.5e6)
    zero = dataclasses.replace(PALLAS, static_profile=0)
    assert estimate([XLA, zero], (), V5E, FLOOR).static_profile_ms is None


def test_an_op_of_xla_without_cost_model_counts_by_schedule() -> None:
    assert choose(dataclasses.replace(XLA, cost_model=None), V5E) == ("schedule", 90_000)


def test_an_op_counts_as_often_as_it_runs() -> None:
    found = estimate([dataclasses.replace(XLA, count=7)], (), V5E, FLOOR)
    assert found.ms == pytest.approx(7 * 150_000 / 1.5e6)


def test_a_schedule_that_hangs_on_data_gives_none_whatever_the_profile_says() -> None:
    hangs = dataclasses.replace(PALLAS, schedule=None, schedule_problem="a branch hangs on smem")
    assert choose(hangs, V5E) is None
    found = estimate([XLA, hangs], (), V5E, FLOOR)
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
    found = estimate([XLA], (), V5E, Floor(0.2, "memory", 0))
    assert found.ms is None
    assert "below the floor of 0.2 ms" in str(found.no_estimate)


def test_absurd_figures_are_no_estimate_even_without_a_clock() -> None:
    garbage = dataclasses.replace(XLA, cost_model=10**18)
    for chip in (V5E, NO_CLOCK):
        found = estimate([garbage], (), chip, FLOOR)
        assert found.ms is None
        assert "absurdly far above" in str(found.no_estimate)
    slow = dataclasses.replace(XLA, cost_model=int(ceiling_ms(FLOOR.ms) * 1.5e6 * 0.99))
    assert estimate([slow], (), V5E, FLOOR).ms is not None


def test_without_a_public_clock_there_are_no_milliseconds() -> None:
    found = estimate([XLA], (), NO_CLOCK, FLOOR)
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
    found = estimate(ops, problems, V5E, FLOOR)
    assert found.ms is None
    assert reason in str(found.no_estimate)


def test_a_program_whose_instructions_cannot_do_the_work_is_refused_with_the_arithmetic() -> None:
    floor = Floor(0.01, "compute", 8_594_128_896)
    assert estimate([PALLAS], (), V5E, floor, 11_916_374_016).ms is not None
    skips = estimate([PALLAS], (), V5E, floor, 5_200_000_000)
    assert skips.ms is None
    assert "5.2e+09 FLOP at the most" in str(skips.no_estimate)
    assert "8.594e+09 FLOP" in str(skips.no_estimate)


def test_what_only_moves_values_counts_by_its_schedule_but_never_above_the_channel_s_speed() -> (
    None
):
    copy = dataclasses.replace(XLA, moves=True, cost_model=150_000, schedule=9_000, channel=37)
    assert choose(copy, V5E) == ("schedule", 9_000)
    assert choose(dataclasses.replace(copy, channel=12_000), V5E) == ("channel", 12_000)
    assert choose(dataclasses.replace(copy, schedule=None), V5E) == ("cost_model", 150_000)


def test_a_copy_counts_by_what_is_waited_for_it_in_every_total() -> None:
    copy = OpCycles("copy-done", "copy", 2, 0, None, None, None, channel=3_000)
    hidden = dataclasses.replace(copy, channel=0)
    found = estimate([XLA, copy, hidden], (), V5E, FLOOR)
    assert found.ms == pytest.approx((150_000 + 6_000) / 1.5e6)
    assert found.schedule_ms == pytest.approx((90_000 + 6_000) / 1.5e6)
