"""The chip that is compiled for: its datasheet peaks, its clock, and whether one is attached."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.cells.config import TargetConfig
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


@dataclass(frozen=True)
class Chip:
    """One JAX device of a TPU generation, as `conf/target/*.yaml` describes it.

    Peaks are datasheet figures: they make a roofline, and are never measurements. Without a public
    clock (None) there are cycles, but no milliseconds.
    """

    name: str
    kind: str
    topology: str
    clock_ghz: float | None
    bf16_tflops: float
    hbm_gb_s: float
    hbm_bytes: int
    vmem_bytes: int
    scoped_vmem_bytes: int
    validated: bool
    source: str

    def label(self, libtpu: str) -> str | None:
        """What must stand beside every time of this chip by this libtpu; None if validated."""
        good = self.validated and libtpu.startswith(VALIDATED_LIBTPU)
        return None if good else NOT_VALIDATED

    def machine(self) -> Machine:
        """What executes a schedule; with a nominal clock, for waits alone, where none is public."""
        return Machine(
            clock_ghz=self.clock_ghz or _NOMINAL_CLOCK_GHZ,
            hbm_gb_s=self.hbm_gb_s,
            dma_latency_ns=DMA_LATENCY_NS,
            read_share=READ_SHARE,
            write_share=WRITE_SHARE,
            piece_ns=PIECE_NS,
        )

    @property
    def mxu_width(self) -> int:
        """Rows and columns of a matrix unit: 128 up to v5, 256 since (at the most)."""
        return 128 if self.name in _NARROW_MXU else 256


def from_config(target: TargetConfig) -> Chip:
    """The chip of a target's configuration."""
    return Chip(
        name=target.name,
        kind=target.kind,
        topology=target.topology,
        clock_ghz=target.clock_ghz,
        bf16_tflops=target.bf16_tflops,
        hbm_gb_s=target.hbm_gb_s,
        hbm_bytes=int(target.hbm_gib * 2**30),
        vmem_bytes=int(target.vmem_mib * 2**20),
        scoped_vmem_bytes=int(target.scoped_vmem_mib * 2**20),
        validated=target.validated,
        source=target.source,
    )


def attached() -> bool:
    """Whether this machine has TPU device files; found without importing jax."""
    devices = Path("/dev")
    return any(devices.glob("accel[0-9]*")) or any((devices / "vfio").glob("[0-9]*"))
