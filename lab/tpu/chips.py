"""What the compiler and its estimates need to know of a chip, and whether one is attached."""

from __future__ import annotations

from pathlib import Path

from lab.cells.config import Chip
from lab.tpu.schedule.timeline import Machine

NOT_VALIDATED = "estimates not validated"
VALIDATED_LIBTPU = "0.0.42."
"""A newer compiler fuses otherwise: see evidence/tpu-v5e-compiled/newest."""
# How copies behave: what scripts/fit_copies.py prints, the least squares of the relative error on
# 40 public timings of two kernels on a v5e (evidence/tpu-v5e-compiled/kernels.md). A stream that
# is read and written in turn, as an elementwise kernel's, so reaches 80% of the datasheet's
# bandwidth.
DMA_LATENCY_NS = 552.0
READ_SHARE = 0.948
WRITE_SHARE = 0.696
# For each stretch of HBM that a strided copy reads or writes, below 8 KiB: from there on the public
# timings show no cost.
PIECE_NS = 0.295

# Without a public clock a schedule still has cycles, and its waits need some bandwidth per cycle.
_NOMINAL_CLOCK_GHZ = 1.5
_NARROW_MXU = frozenset({"v4", "v5e", "v5p"})


def label(chip: Chip, libtpu: str) -> str | None:
    """What must stand beside every time of this chip by this libtpu; None if validated."""
    good = chip.validated and libtpu.startswith(VALIDATED_LIBTPU)
    return None if good else NOT_VALIDATED


def machine(chip: Chip) -> Machine:
    """What executes a schedule; with a nominal clock, for waits alone, where none is public."""
    return Machine(
        clock_ghz=chip.clock_ghz or _NOMINAL_CLOCK_GHZ,
        hbm_gb_s=chip.hbm_gb_s,
        dma_latency_ns=DMA_LATENCY_NS,
        read_share=READ_SHARE,
        write_share=WRITE_SHARE,
        piece_ns=PIECE_NS,
    )


def mxu_width(chip: Chip) -> int:
    """Rows and columns of a matrix unit: 128 up to v5, 256 since (at the most)."""
    return 128 if chip.name in _NARROW_MXU else 256


def attached() -> bool:
    """Whether this machine has TPU device files; found without importing jax."""
    devices = Path("/dev")
    return any(devices.glob("accel[0-9]*")) or any((devices / "vfio").glob("[0-9]*"))
