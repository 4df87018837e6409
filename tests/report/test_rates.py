"""TFLOP/s, GB/s and the ratio to the floor, beside the milliseconds."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples

from lab import records
from lab.report import host
from lab.report.achieved import achieved
from lab.report.host import HostPeaks


def test_rates_are_the_least_work_over_the_time() -> None:
    found = achieved(samples.timed("kernel=xla", "seq=256", ms=2.0, device=samples.TPU))
    assert found is not None
    # Two products over the visible pairs of 8 heads of width 128; q, o of 8 heads, k, v of 2, bf16.
    assert found.flops == 2 * 2 * 8 * (256 * 257 // 2) * 128
    assert found.hbm_bytes == (8 + 8 + 2 + 2) * 256 * 128 * 2
    assert found.tflops == pytest.approx(found.flops / 2e-3 / 1e12)
    assert found.gb_s == pytest.approx(found.hbm_bytes / 2e-3 / 1e9)
    assert found.floor_ms == pytest.approx(found.hbm_bytes / 819e9 * 1e3)
    assert found.times_floor == pytest.approx(2.0 / found.floor_ms)
    assert found.p5_ms is not None
    assert found.p95_ms is not None
    assert found.p5_ms < 2.0 < found.p95_ms


def test_without_peaks_there_is_no_floor_and_a_measured_peak_is_marked() -> None:
    cell = samples.timed("kernel=xla", ms=2.0)
    model = cell.environment.cpu_model
    bare = achieved(cell)
    assert bare is not None
    assert (bare.peaks, bare.floor_ms, bare.times_floor) == (None, None, None)
    own = HostPeaks(cpu_model=model, tflops=0.1, gb_s=10.0, source=host.SOURCE)
    found = achieved(cell, {model: own})
    assert found is not None
    assert found.peaks is not None
    assert found.peaks.measured
    assert found.times_floor is not None
    assert achieved(cell, {"another": own}) == bare


def test_a_cell_without_a_time_has_no_rate() -> None:
    failed = samples.result(samples.cell("kernel=xla"), status="failed", reason="odd")
    assert achieved(failed) is None


def test_the_peaks_of_a_processor_are_measured_once_and_read_back(tmp_path: Path) -> None:
    host.measure_once(tmp_path, "model")
    first = (tmp_path / host.HOST_FILE).read_bytes()
    host.measure_once(tmp_path, "model")
    assert (tmp_path / host.HOST_FILE).read_bytes() == first
    found = host.read([tmp_path])
    assert found == {"model": records.read(tmp_path / host.HOST_FILE, HostPeaks)}
    assert found["model"].tflops > 0
    (tmp_path / host.HOST_FILE).write_text("{}")
    assert host.read([tmp_path]) == {}
