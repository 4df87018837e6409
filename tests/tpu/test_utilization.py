from collections.abc import Callable
from pathlib import Path

import pytest

from lab.tpu.schedule import bundles
from lab.tpu.schedule.bundles import Schedule, UnrecognisedDump
from lab.tpu.schedule.execute import ScheduleEstimate, execute
from lab.tpu.schedule.timeline import Machine
from lab.tpu.schedule.utilization import LoopUse, Slots, loop_utilization, read_slots

V5E = Machine(clock_ghz=1.5, hbm_gb_s=819)
# 32 bytes a cycle, so a granule a cycle; 100 cycles of latency.
MACHINE = Machine(clock_ghz=2.0, hbm_gb_s=64.0, dma_latency_ns=50.0, granule_bytes=32)


def executed(schedule: Schedule, machine: Machine) -> ScheduleEstimate:
    result = execute(schedule, machine)
    assert isinstance(result, ScheduleEstimate), result
    return result


def of_dump(directory: Path, op: str) -> list[LoopUse]:
    path, slots = bundles.find_dump(directory, op), bundles.find_slots(directory, op)
    assert path is not None
    assert slots is not None
    schedule = bundles.read(path)
    return loop_utilization(schedule, executed(schedule, V5E), read_slots(slots))


def test_slots_are_weighted_by_how_often_each_bundle_ran(
    program: Callable[..., Schedule],
) -> None:
    schedule = program(
        "%s1_s0 = smov 0",
        "LB %s2_s1 = sphi %s1_s0, %s3_s2",
        "%s3_s2 = sadd.s32 1, %s2_s1 ;; %6 = dma.hbm_to_vmem 0, 4, 0, [#allocation1]",
        "%p4_p0 = scmp.ge.s32.totalorder %s3_s2, 10",
        "%5 = sbr.rel (!%p4_p0) target bundleno = 1 (0x1), region = 1",
        *[""] * 4,
        "%7 = dma.done.wait [#allocation1], 40",
    )
    busy = ((0, 2), (1, 0), (1, 0), (0, 1), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0))
    slots = Slots(("MXU", "SALU"), (2, 2), busy)
    outside, loop = loop_utilization(schedule, executed(schedule, MACHINE), slots)
    assert (loop.first, loop.last, loop.trips, loop.cycles) == (1, 8, 10, 80)
    assert loop.use == {
        "MXU": pytest.approx(20 / 160),
        "SALU": pytest.approx(10 / 160),
        "HBM": pytest.approx(40 / 80),
    }
    assert (loop.dma_bytes, loop.stall_cycles) == (40 * 32, 0)
    assert loop.latency == pytest.approx(50 / 80)
    assert loop.bound_by == "latency"
    # The last copy starts at cycle 74, lands at 178; the wait is at cycle 81.
    assert (outside.first, outside.last, outside.trips) == (0, 9, 1)
    assert (outside.cycles, outside.stall_cycles) == (2 + 97, 97)
    assert outside.bound_by == "copy waits"
    assert outside.share + loop.share == pytest.approx(1)


def test_a_kernel_of_large_blocks_is_bound_by_the_matrix_unit(dumps: Path) -> None:
    grid = of_dump(dumps / "flash-512-full-2048", "flash_attention.1")[0]
    assert grid.trips == 8 * 4 * 4 + 2  # the pipeline's two extra steps
    assert grid.share > 0.99
    assert grid.bound_by == "MXU"
    # The busy slots are exactly the kernel's products: four units of 128 x 128 cells.
    flops = 4 * 8 * 2048 * 2048 * 128
    assert grid.use["MXU"] == pytest.approx(flops / (4 * 2 * 128 * 128) / grid.cycles, rel=0.01)
    assert 0 < grid.use["VSTORE:SPILL"] < grid.use["VSTORE"] <= 1


def test_an_8_row_kernel_waits_for_its_copies(dumps: Path) -> None:
    grid = of_dump(dumps / "softmax-8row", "softmax.1")[0]
    assert grid.trips == 128 + 2
    assert grid.bound_by == "copy waits"
    assert grid.stall_cycles / grid.cycles > 0.5
    assert grid.latency > 0.3
    assert grid.use["HBM"] < 0.05


def test_inner_loops_are_apart_from_outer_ones(dumps: Path) -> None:
    uses = of_dump(dumps / "packed", "packed.1")
    assert sum(use.share for use in uses) == pytest.approx(1)
    inner, grid = uses[:2]
    assert grid.first < inner.first <= inner.last < grid.last
    assert (grid.trips, inner.trips) == (2 * 8 + 2, 2 * 12)
    assert inner.dma_bytes == 0 < grid.dma_bytes


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected a table of capacities"),
        ("== CAPACTIY:\nMXU, XLU\n 4 3\n== UTILIZATION:\n1 x\n", "expected rows of integers"),
        ("== CAPACTIY:\nMXU, XLU\n 4 3\n== UTILIZATION:\n1 2 3\n", "expected 2 numbers"),
        ("== CAPACTIY:\nMXU, XLU\n 4\n== UTILIZATION:\n1 2\n", "expected 2 numbers"),
    ],
)
def test_another_format_of_slot_use_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "slots.txt"
    path.write_text(text)
    with pytest.raises(UnrecognisedDump, match=complaint):
        read_slots(path)


def test_slot_use_of_another_schedule_is_refused(program: Callable[..., Schedule]) -> None:
    schedule = program("", "")
    slots = Slots(("MXU",), (4,), ((0,),))
    with pytest.raises(UnrecognisedDump, match="expected the slot use of its 2 bundles"):
        loop_utilization(schedule, executed(schedule, MACHINE), slots)
