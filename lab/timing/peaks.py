"""The physical floor of a cell on the chip that ran it, by the table of chips in conf/target."""

from __future__ import annotations

from lab.cells.cell import Cell
from lab.cells.config import chips
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
    if (chip := chips().get(device_kind)) is None:
        return f"no peaks of {device_kind} in conf/target"
    direction = str(cell.config.direction)
    work = roofline.work(cell.problem_shape(), cell.policy(), cell.config.scope.name, direction)
    return physical.floor(
        flops=work.flops,
        hbm_bytes=work.hbm_bytes,
        peak_tflops=chip.bf16_tflops,
        peak_hbm_gb_s=chip.hbm_gb_s,
        source=chip.source,
    )
