"""What a time means for the chip: TFLOP/s, GB/s, and how far it is from what the chip allows.

The work is the least that a cell must do (lab/tpu/roofline.py), so that a kernel which computes
more, or reads twice, shows a lower rate. Peaks come from the record or from the table of chips in
conf/target; a CPU's are measured (lab/report/host.py), and without any there is no roof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lab.cells.config import chips
from lab.records import Result
from lab.report.comparisons import time_ms
from lab.report.host import HostPeaks
from lab.tpu import roofline
from lab.truth.problems import POLICIES, Shape


@dataclass(frozen=True)
class Peaks:
    """What a device can do at most, and who says so."""

    tflops: float
    gb_s: float
    source: str
    measured: bool = False


@dataclass(frozen=True)
class Achieved:
    """The rates of one cell's time."""

    ms: float
    flops: int
    hbm_bytes: int
    p5_ms: float | None
    p95_ms: float | None
    peaks: Peaks | None

    @property
    def tflops(self) -> float:
        """Useful floating-point operations, 10^12 a second."""
        return self.flops / self.ms * 1e-9

    @property
    def gb_s(self) -> float:
        """Arguments read once and results written once, 10^9 bytes a second."""
        return self.hbm_bytes / self.ms * 1e-6

    @property
    def intensity(self) -> float:
        """FLOP a byte."""
        return self.flops / self.hbm_bytes

    @property
    def floor_ms(self) -> float | None:
        """The time that the peaks allow; None without peaks."""
        if self.peaks is None:
            return None
        return max(self.flops / self.peaks.tflops * 1e-9, self.hbm_bytes / self.peaks.gb_s * 1e-6)

    @property
    def times_floor(self) -> float | None:
        """How many times the floor it took."""
        return self.ms / self.floor_ms if self.floor_ms else None


def achieved(result: Result, host: Mapping[str, HostPeaks] | None = None) -> Achieved | None:
    """The rates of a timed or estimated cell; None of a cell without a time.

    Args:
        result: a record.
        host: measured peaks of processors, by their model.
    """
    ms = time_ms(result) if result.status == "done" else None
    if not ms:
        return None
    cell, sizes = result.cell, result.config["shape"]
    shape = Shape(
        q_len=cell.q_len,
        kv_len=cell.seq,
        **{name: value for name, value in sizes.items() if name != "name"},
    )
    work = roofline.work(shape, POLICIES[cell.dtype], cell.scope, cell.direction)
    p5 = p95 = None
    if result.benchmark is not None and len(result.benchmark.samples_ms) > 1:
        p5, p95 = (float(x) for x in np.percentile(result.benchmark.samples_ms, [5, 95]))
    return Achieved(ms, work.flops, work.hbm_bytes, p5, p95, peaks(result, host or {}))


def peaks(result: Result, host: Mapping[str, HostPeaks]) -> Peaks | None:
    """The peaks of the device that a cell ran on or was compiled for."""
    if result.compile is not None:
        work = result.compile.work
        return Peaks(work.peak_tflops, work.peak_hbm_gb_s, work.peak_source)
    if result.environment.platform == "cpu":
        found = host.get(result.environment.cpu_model)
        return Peaks(found.tflops, found.gb_s, found.source, measured=True) if found else None
    chip = chips().get(result.environment.device_kind or "")
    return Peaks(chip.bf16_tflops, chip.hbm_gb_s, chip.source) if chip else None
