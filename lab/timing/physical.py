"""The least time that a chip's peaks allow: a time below it is none, whatever a clock says.

Such times come from an output that was never waited for, or from work that a compiler removed.
"""

from __future__ import annotations

from lab.records.benchmark import PhysicalFloor

TOLERANCE = 0.98
"""Peaks are rounded on datasheets, and clocks may boost: two percent below is not impossible."""


def floor(
    *, flops: int, hbm_bytes: int, peak_tflops: float, peak_hbm_gb_s: float, source: str
) -> PhysicalFloor:
    """Work over peaks: the larger of the arithmetic's time and the memory's."""
    return PhysicalFloor(
        ms=max(flops / peak_tflops * 1e-9, hbm_bytes / peak_hbm_gb_s * 1e-6),
        flops=flops,
        hbm_bytes=hbm_bytes,
        peak_tflops=peak_tflops,
        peak_hbm_gb_s=peak_hbm_gb_s,
        source=source,
    )


def impossible(what: str, ms: float, floor: PhysicalFloor, *, hot: bool) -> str | None:
    """Why a time cannot be one of this chip, with the arithmetic; None if it can.

    Args:
        what: what the time is of.
        ms: the time of one call.
        floor: the least that the call computes and moves, and the chip's peaks.
        hot: calls follow one another on the device, so that arrays may stay in its fast memory;
            then only the arithmetic must take its time.
    """
    compute_ms = floor.flops / floor.peak_tflops * 1e-9  # FLOP / (TFLOP/s)
    by_memory = not hot and floor.ms > compute_ms
    least_ms = floor.ms if by_memory else compute_ms
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
