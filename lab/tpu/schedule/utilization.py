"""What a loop of a kernel is bound by: the share of each unit's slots it uses, copies, waits.

The compiler writes, for each bundle of the schedule with latencies, how many slots of each unit are
busy (``*pre-delay_hlo-static-per-bundle-utilization.txt``). Weighted by how often each bundle ran,
these give a loop's use. The units, in the file's words, and what a high share means:

* MXU: matrix units; near 1 is what a matmul kernel wants.
* XLU: cross-lane units (row maxima and sums, transposes, rotations).
* VALU: vector arithmetic (masks, scaling, corrections, conversions).
* EUP: transcendental unit (exp, reciprocal).
* VPOP: results taken off the units' queues.
* VLOAD, VSTORE: VMEM loads and stores; VLOAD:FILL and VSTORE:SPILL are the part of them that only
  moves registers that did not fit, which smaller blocks avoid.
* SALU: scalar arithmetic (addresses, grid bookkeeping).
* HBM: the channel for copies.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from lab.tpu.schedule.bundles import DELAY_SLOTS, Schedule, UnrecognisedDump, read_text
from lab.tpu.schedule.execute import ScheduleEstimate
from lab.tpu.schedule.needed import is_copy

_HEADING = re.compile(
    r"== CAPAC\w+:\s*\n(?P<names>[A-Z:, ]+)\n(?P<capacity>[\d ]+)\n== UTIL\w+:\s*\n"
)
_PART_OF = {"VLOAD:FILL": "VLOAD", "VSTORE:SPILL": "VSTORE"}


@dataclass(frozen=True)
class Slots:
    """Capacity of each unit in one bundle, and the busy slots of every bundle in the same order."""

    units: tuple[str, ...]
    capacity: tuple[int, ...]
    busy: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class LoopUse:
    """One loop without the loops inside it; with first == 0, what lies outside all loops.

    Attributes:
        first: address of its first bundle.
        last: address of its last bundle.
        trips: how often its first bundle ran.
        cycles: that it took in all, stalls included.
        share: of the op's cycles.
        stall_cycles: part of `cycles` spent waiting for copies.
        dma_bytes: moved to and from HBM by copies that it issued.
        latency: share of `cycles` with nothing to do but wait for a unit to finish.
        use: unit -> share of its slots busy over `cycles`; HBM -> share of its bandwidth.
    """

    first: int
    last: int
    trips: int
    cycles: int
    share: float
    stall_cycles: int
    dma_bytes: int
    latency: float
    use: dict[str, float]

    @property
    def bound_by(self) -> str:
        """What fills most of the loop's time: a unit, HBM, `copy waits` or `latency`."""
        waits = self.stall_cycles / self.cycles if self.cycles else 0.0
        shares = {"copy waits": waits, "latency": self.latency}
        shares |= {unit: use for unit, use in self.use.items() if unit not in _PART_OF}
        return max(shares, key=shares.__getitem__)


def read_slots(path: Path) -> Slots:
    """Parse a slot-use file (.txt or .txt.gz).

    Raises:
        UnrecognisedDump: it is of another format.
    """
    text = read_text(path)
    heading = _HEADING.match(text)
    if heading is None:
        raise UnrecognisedDump(f"{path.name}: expected a table of capacities and of utilization")
    units = tuple(name.strip() for name in heading["names"].split(","))
    capacity = tuple(map(int, heading["capacity"].split()))
    rows = text[heading.end() :].splitlines()
    if not all(re.fullmatch(r"\d+( \d+)*", row) for row in rows):
        raise UnrecognisedDump(f"{path.name}: expected rows of integers")
    busy = tuple(tuple(map(int, row.split())) for row in rows)
    if any(len(row) != len(units) for row in (capacity, *busy)):
        raise UnrecognisedDump(f"{path.name}: expected {len(units)} numbers in every row")
    return Slots(units, capacity, busy)


def loop_utilization(schedule: Schedule, estimate: ScheduleEstimate, slots: Slots) -> list[LoopUse]:
    """Use of every loop that ran, the one that took most cycles first.

    Raises:
        UnrecognisedDump: the slot use is not of this schedule.
    """
    if not schedule.latencies or len(slots.busy) != len(schedule.bundles):
        raise UnrecognisedDump(
            f"{schedule.name}: expected the slot use of its {len(schedule.bundles)} bundles,"
            f" found that of {len(slots.busy)}"
        )
    loops = _loops(schedule)
    members: dict[tuple[int, int], list[int]] = {loop: [] for loop in loops}
    for address in range(len(schedule.bundles)):
        inside = [loop for loop in loops if loop[0] <= address <= loop[1]]
        members[min(inside, key=lambda loop: loop[1] - loop[0])].append(address)
    found = [_use(loop, addresses, estimate, slots) for loop, addresses in members.items()]
    return sorted((use for use in found if use is not None), key=lambda use: -use.cycles)


def copy_trips(schedule: Schedule, estimate: ScheduleEstimate) -> tuple[int, int]:
    """Trips of the loop with copies that went round most often, and its cycles; (0, 0) without one.

    A Pallas grid is such a loop, and so is a kernel's own loop around its copies.
    """
    copies = {
        address
        for address, bundle in enumerate(schedule.bundles)
        if any(is_copy(instruction.opcode) for instruction in bundle.instructions)
    }
    found = (0, 0)
    for first, last in _loops(schedule)[1:]:
        inside = range(first, last + 1)
        if not any(address in copies and estimate.runs[address] for address in inside):
            continue
        cycles = sum(estimate.runs[a] + estimate.stalls.get(a, 0) for a in inside)
        found = max(found, (estimate.runs[first], cycles))
    return found


def _loops(schedule: Schedule) -> list[tuple[int, int]]:
    """(first, last) of every loop, and of the whole."""
    whole = (0, len(schedule.bundles) - 1)
    backward: dict[int, int] = {}
    for address, bundle in enumerate(schedule.bundles):
        for instruction in bundle.instructions:
            target = instruction.target
            if target is not None and target <= address:
                backward[target] = max(address + DELAY_SLOTS, backward.get(target, 0))
    return [whole, *backward.items()]


def _use(
    loop: tuple[int, int], addresses: list[int], estimate: ScheduleEstimate, slots: Slots
) -> LoopUse | None:
    """A loop's use over its own bundles; None when it never ran."""
    runs = {address: estimate.runs[address] for address in addresses if estimate.runs[address]}
    if not runs:
        return None
    stalls = sum(estimate.stalls.get(address, 0) for address in runs)
    moved = sum(estimate.traffic.get(address, 0) for address in runs)
    cycles = sum(runs.values()) + stalls
    busy = [
        sum(count * slots.busy[address][column] for address, count in runs.items())
        for column in range(len(slots.units))
    ]
    use = {
        unit: total / (capacity * cycles)
        for unit, total, capacity in zip(slots.units, busy, slots.capacity, strict=True)
    }
    use["HBM"] = moved / estimate.machine.bytes_per_cycle / cycles
    return LoopUse(
        first=loop[0],
        last=loop[1],
        trips=runs.get(loop[0], 0),
        cycles=cycles,
        share=cycles / estimate.cycles,
        stall_cycles=stalls,
        dma_bytes=moved,
        latency=sum(n for address, n in runs.items() if not any(slots.busy[address])) / cycles,
        use=use,
    )
