"""The least time that a chip's peaks allow: a time below it is none, whatever a clock says.

Such times come from an output that was never waited for, or from work that a compiler removed.
"""

from __future__ import annotations

from dataclasses import dataclass

TOLERANCE = 0.98
"""Peaks are rounded on datasheets, and clocks may boost: two percent below is not impossible."""


@dataclass(frozen=True)
class PhysicalFloor:
    """Work over peaks; `source` says where the peaks come from."""

    flops: int
    hbm_bytes: int
    peak_tflops: float
    peak_hbm_gb_s: float
    source: str

    @property
    def compute_ms(self) -> float:
        """FLOP / (TFLOP/s)."""
        return self.flops / self.peak_tflops * 1e-9

    @property
    def memory_ms(self) -> float:
        """B / (GB/s)."""
        return self.hbm_bytes / self.peak_hbm_gb_s * 1e-6

    @property
    def ms(self) -> float:
        """The larger of the two."""
        return max(self.compute_ms, self.memory_ms)


def impossible(what: str, ms: float, floor: PhysicalFloor, *, hot: bool) -> str | None:
    """Why a time cannot be one of this chip, with the arithmetic; None if it can.

    Args:
        what: what the time is of.
        ms: the time of one call.
        floor: the least that the call computes and moves, and the chip's peaks.
        hot: calls follow one another on the device, so that arrays may stay in its fast memory;
            then only the arithmetic must take its time.
    """
    by_memory = not hot and floor.memory_ms > floor.compute_ms
    least_ms = floor.memory_ms if by_memory else floor.compute_ms
    if ms >= TOLERANCE * least_ms:
        return None
    if by_memory:
        sum_ = f"{floor.hbm_bytes:.4g} B / {floor.peak_hbm_gb_s:g} GB/s"
    else:
        sum_ = f"{floor.flops:.4g} FLOP / {floor.peak_tflops:g} TFLOP/s"
    return (
        f"{what} {ms:.4g} ms is below the chip's floor: {sum_} = {least_ms:.4g} ms "
        f"(peaks: {floor.source})"
    )
