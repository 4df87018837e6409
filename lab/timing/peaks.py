"""The physical floor of a cell on the chip that ran it, by the table of chips in conf/target."""

from __future__ import annotations

from omegaconf import OmegaConf

from lab.cells.cell import Cell
from lab.cells.config import config_directory
from lab.records.benchmark import PhysicalFloor
from lab.timing import physical
from lab.tpu import roofline


def physical_floor(cell: Cell, device_kind: str) -> PhysicalFloor | str:
    """The floor, or why there is none.

    Keys hidden by a key mask count as work in lab/tpu/roofline.py, and a kernel may skip them: a
    padded cell has no floor that is sure.
    """
    if cell.problem_shape().padding != "none":
        return "a kernel may skip padded keys, so that no least work is known"
    for path in sorted((config_directory() / "target").glob("*.yaml")):
        chip = OmegaConf.load(path)
        if chip.kind == device_kind:
            shape, policy = cell.problem_shape(), cell.policy()
            direction = str(cell.config.direction)
            work = roofline.work(shape, policy, cell.config.scope.name, direction)
            return physical.floor(
                flops=work.flops,
                hbm_bytes=work.hbm_bytes,
                peak_tflops=float(chip.bf16_tflops),
                peak_hbm_gb_s=float(chip.hbm_gb_s),
                source=str(chip.source),
            )
    return f"no peaks of {device_kind} in conf/target"
