"""Execute the scalar half of libtpu's final VLIW schedule: cycles, DMA stalls, loop trip counts.

    path = bundles.find_dump(directory, "flash_attention.1")   # None: the compiler wrote none
    program = bundles.read(path)                               # .txt, .txt.gz; UnrecognisedDump
    result = execute(program, Machine(clock_ghz=1.5, hbm_gb_s=819))
    if isinstance(result, NoEstimate):
        result.reason                                          # one line
    else:
        result.cycles, result.ms, result.dma_bytes, result.stall_cycles
    slots = bundles.find_slots(directory, "flash_attention.1")  # None: the compiler wrote none
    utilization.loop_utilization(program, result, utilization.read_slots(slots))

A bundle takes one cycle. Only the scalar unit decides which bundle is next, so vector instructions
are skipped and scalar ones are computed: a kernel's grid, its skipped blocks and its loops then
cost exactly as many bundles as the schedule gives them. When a branch, a copy or a wait hangs on a
value that the dump does not hold, there is no estimate, and the reason says where it is from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lab.tpu.schedule.blocks import compile_blocks
from lab.tpu.schedule.bundles import Schedule
from lab.tpu.schedule.scalar import CannotFollowError
from lab.tpu.schedule.timeline import Machine, Timeline

_WORK_LIMIT = 100_000_000  # scalar instructions executed


@dataclass(frozen=True)
class NoEstimate:
    """Why a schedule has no time: one line."""

    reason: str


@dataclass(frozen=True)
class ScheduleEstimate:
    """What executing a schedule took.

    Attributes:
        cycles: from the first bundle until the last copy has landed, stalls included.
        stall_cycles: the part of them spent waiting for copies.
        dma_copies: how many copies were issued.
        runs: for each bundle of the schedule, how often it was executed.
        stalls: address of a wait -> cycles it cost in all.
        traffic: address of a copy -> bytes it moved to or from HBM in all.
        latencies: the schedule shows the units' latencies (see `bundles`); if not, the cycles are
            a lower bound.
        machine: on which it was executed.
    """

    cycles: int
    stall_cycles: int
    dma_copies: int
    runs: tuple[int, ...]
    stalls: dict[int, int]
    traffic: dict[int, int]
    latencies: bool
    machine: Machine

    @property
    def ms(self) -> float:
        """The cycles at the machine's clock."""
        return self.cycles / self.machine.clock_ghz * 1e-6

    @property
    def dma_bytes(self) -> int:
        """Bytes moved to and from HBM."""
        return sum(self.traffic.values())

    @property
    def bundles_executed(self) -> int:
        """Cycles in which a bundle was issued."""
        return sum(self.runs)


def execute(
    schedule: Schedule,
    machine: Machine,
    words: Mapping[int, Mapping[int, int]] = MappingProxyType({}),
) -> ScheduleEstimate | NoEstimate:
    """Run the program on one core, from its first bundle until its last copy has landed.

    Args:
        schedule: of one op.
        machine: to run it on.
        words: operand of the op -> what its words are in scalar memory, where that is known.

    Raises:
        UnrecognisedDump: the schedule cannot be split into blocks.
    """
    timeline = Timeline(machine)
    blocks = compile_blocks(schedule, timeline, words)
    counts = dict.fromkeys(blocks, 0)
    address, now, work = 0, 0.0, 0
    try:
        while address < len(schedule.bundles):
            block = blocks[address]
            counts[address] += 1
            work += block.work
            if work > _WORK_LIMIT:
                return NoEstimate(f"not finished after {_WORK_LIMIT:,} scalar instructions")
            address, now = block.step(now)
    except CannotFollowError as error:
        return NoEstimate(str(error))
    now = timeline.end(now, len(schedule.bundles) - 1)
    runs = [0] * len(schedule.bundles)
    for start, count in counts.items():
        for index in range(start, blocks[start].end):
            runs[index] += count
    return ScheduleEstimate(
        cycles=round(now),
        stall_cycles=round(sum(timeline.stalls.values())),
        dma_copies=timeline.copies,
        runs=tuple(runs),
        stalls={where: round(cost) for where, cost in timeline.stalls.items() if cost > 0},
        traffic=dict(timeline.traffic),
        latencies=schedule.latencies,
        machine=machine,
    )
