"""One cell measured in this process: what the section holds, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import samples

from lab.cells.cell import Outcome
from lab.errors import UnsupportedCell
from lab.kernels import options
from lab.records.benchmark import BenchmarkSection, PhysicalFloor
from lab.timing import contest, measure, peaks, physical

TINY = ("shape=tiny", "seq=32", "kernel=xla", "benchmark.max_samples=20", "benchmark.warmup_ms=0")


def measured(*overrides: str, baseline: str | None = None) -> Outcome:
    against = None if baseline is None else options.configuration(baseline)
    return measure.measure(samples.cell(*TINY, *overrides), against)


def section(outcome: Outcome) -> BenchmarkSection:
    assert isinstance(outcome.section, BenchmarkSection)
    return outcome.section


@pytest.fixture(scope="module")
def full() -> BenchmarkSection:
    outcome = measured("benchmark.control=true", "benchmark.baseline=xla", baseline="xla")
    assert outcome.reason is None
    return section(outcome)


def test_a_section_holds_every_part_of_a_time(full: BenchmarkSection) -> None:
    assert full.used == "latency"
    assert len(full.samples_ms) == len(full.floor_samples_ms or []) == 20
    assert full.dispatch_floor_ms is not None
    assert 0 < full.dispatch_floor_ms < full.median_ms
    assert full.trace_ms is not None
    assert min(full.transfer_ms, full.trace_ms, full.lower_ms, full.compile_ms) > 0
    assert full.device is not None
    assert full.device.inner_calls >= 4
    assert len(full.device.samples_ms) >= 6
    sums = zip(full.device.full_ms, full.device.empty_ms, full.device.samples_ms, strict=True)
    assert all(s == pytest.approx((a - b) / full.device.inner_calls) for a, b, s in sums)
    assert full.profiler is not None
    assert full.profiler.events >= full.profiler.calls
    assert full.peak_bytes
    assert full.conditions is not None
    assert full.no_physical_floor == "no peaks of cpu in conf/target"
    assert full.recheck is not None


def test_the_steps_of_the_process_say_what_the_lab_itself_costs(full: BenchmarkSection) -> None:
    spent = full.spent
    assert spent is not None
    assert full.sampling is not None
    steps = spent.model_dump()
    assert spent.overhead_s == pytest.approx(
        sum(steps.values()) - spent.compile_s - spent.samples_s, abs=1e-6
    )
    assert spent.compile_s * 1e3 >= full.compile_ms + full.first_call_ms - 1
    assert spent.samples_s >= full.sampling.elapsed_s - 0.001
    assert min(steps.values()) >= 0


def test_control_and_baseline_share_the_blocks(full: BenchmarkSection) -> None:
    assert full.sampling is not None
    assert full.sampling.reason == "fixed"
    names = ["baseline", "control", "floor", "kernel"]
    assert all(sorted(block.split()) == names for block in full.sampling.order)
    assert len(set(full.sampling.order)) > 5
    for other in (full.control, full.paired):
        assert other is not None
        assert len(other.samples_ms) == other.pairs == 20
        assert other.ratio_lo is not None
        assert other.ratio_hi is not None
        assert other.ratio_lo <= other.ratio <= other.ratio_hi
    assert full.paired is not None
    assert full.control is not None
    assert full.paired.baseline["name"] == "xla"
    assert full.paired.noise_floor == full.control.own_noise
    assert full.verdict == full.paired.verdict


def test_device_time_can_be_what_is_compared() -> None:
    given = ("benchmark.time=device", "benchmark.samples=6", "benchmark.max_samples=6")
    found = section(measured(*given))
    assert found.used == "device"
    assert found.device is not None
    assert found.samples_ms == found.device.samples_ms
    assert len(found.latency_ms or []) == 6


def test_a_quick_look_is_quick() -> None:
    found = section(measured("benchmark.quick=true"))
    assert len(found.samples_ms) == 5
    assert len(found.warmups_ms) == 1
    assert found.device is found.profiler is None
    assert found.no_device_time == measure.QUICK


def test_an_interpreted_kernel_has_no_device_time() -> None:
    outcome = measured("kernel=pallas", "benchmark.samples=5", "benchmark.max_samples=5")
    assert outcome.interpret
    assert outcome.evidence == "interpreted"
    assert section(outcome).no_device_time == measure.INTERPRETED
    with pytest.raises(UnsupportedCell, match=r"benchmark\.time=device: a Pallas kernel is inter"):
        measured("kernel=pallas", "benchmark.time=device")


def test_the_last_timed_output_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = contest.Contest.sample

    def corrupted(self: contest.Contest, *arguments: Any) -> Any:
        blocks = honest(self, *arguments)
        self.last["kernel"] = [x * 0 + 7 for x in self.last["kernel"]]
        return blocks

    monkeypatch.setattr(contest.Contest, "sample", corrupted)
    outcome = measured("benchmark.quick=true")
    assert outcome.status == "failed"
    assert "wrong: the last timed call: out is" in (outcome.reason or "")
    assert outcome.section is None


def test_a_time_below_the_chips_floor_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    floor = physical.floor(
        flops=10**18, hbm_bytes=1, peak_tflops=100.0, peak_hbm_gb_s=1000.0, source="a datasheet"
    )
    monkeypatch.setattr(peaks, "physical_floor", lambda *_: floor)
    outcome = measured("benchmark.quick=true")
    assert outcome.status == "failed"
    assert "is below the chip's floor: 1e+18 FLOP / 100 TFLOP/s" in (outcome.reason or "")
    assert section(outcome).samples_ms, "its samples are kept"
    assert section(outcome).physical_floor == floor
    assert floor.ms == pytest.approx(1e7)


def test_the_floor_of_a_known_chip_and_of_unknown_ones() -> None:
    cell = samples.cell("seq=1024", "kernel=xla")
    floor = peaks.physical_floor(cell, "TPU v5 lite")
    assert isinstance(floor, PhysicalFloor)
    assert (floor.peak_tflops, floor.peak_hbm_gb_s) == (197, 819)
    assert floor.ms > 0
    assert peaks.physical_floor(cell, "abacus") == "no peaks of abacus in conf/target"
    padded = samples.cell("seq=1024", "kernel=xla", "shape.padding=tail")
    assert "padded keys" in str(peaks.physical_floor(padded, "TPU v5 lite"))


def test_the_empty_program_takes_the_same_arguments() -> None:
    from lab.timing import prepare

    arrays = (jax.numpy.ones((4, 4)), jax.numpy.ones((2,), bool))
    assert [int(x) for x in prepare.empty(arrays, 3)()] == [0, 1, 2]
