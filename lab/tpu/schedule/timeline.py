"""Time on one core: copies that share a channel to HBM, and waits for their sync flags."""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from operator import itemgetter

from lab.tpu.schedule.scalar import CannotFollowError, known


@dataclass(frozen=True)
class Machine:
    """What the timeline needs to know of a chip.

    Attributes:
        clock_ghz: cycles a nanosecond.
        hbm_gb_s: bandwidth between HBM and the core, both directions together.
        dma_latency_ns: from issue to completion of a copy, beyond bytes over bandwidth. The default
            is libtpu's own: its static profile of kernels that only copy small blocks on v5e (1, 2
            or 4 of them a step) is met within 5 percent.
        granule_bytes: unit of a copy's size in a dump.
    """

    clock_ghz: float
    hbm_gb_s: float
    dma_latency_ns: float = 600.0
    granule_bytes: int = 32

    @property
    def bytes_per_cycle(self) -> float:
        """HBM bandwidth in the core's own time."""
        return self.hbm_gb_s / self.clock_ghz


@dataclass
class _Flag:
    """Granules that land over time, and how many the program has taken off again."""

    landed: list[tuple[float, int]] = field(default_factory=list)  # (cycle, granules so far)
    taken: int = 0


class Timeline:
    """Copies in issue order, one after another on the channel; flags count landed granules."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.copies = 0
        self.traffic: dict[int, int] = defaultdict(int)  # address of the copy -> bytes
        self.stalls: dict[int, float] = defaultdict(float)  # address of the wait -> cycles
        self._latency = machine.dma_latency_ns * machine.clock_ghz
        self._free_at = 0.0
        self._flags: dict[int, _Flag] = defaultdict(_Flag)

    def copy(self, now: float, granules: object, flag: object, hbm_ends: int, address: int) -> None:
        """Issue a copy; `hbm_ends` of its two ends are in HBM (0, 1 or 2)."""
        size, key = known(granules), known(flag)
        moved = size * self.machine.granule_bytes * hbm_ends
        self.traffic[address] += moved
        self.copies += 1
        self._free_at = max(self._free_at, now) + moved / self.machine.bytes_per_cycle
        landed = self._flags[key].landed
        so_far = landed[-1][1] if landed else 0
        landed.append((self._free_at + self._latency, so_far + size))

    def wait(self, now: float, flag: object, granules: object, address: int) -> float:
        """The cycle at which the flag holds the granules: `now`, or later when the copy is late."""
        state = self._flags[known(flag)]
        wanted = state.taken + known(granules)
        first = bisect_left(state.landed, wanted, key=itemgetter(1))
        if first == len(state.landed):
            raise CannotFollowError(
                f"the wait at {address:#x} is for more than was copied before it"
            )
        cycle = max(state.landed[first][0], now)
        self.stalls[address] += cycle - now
        return cycle

    def add(self, now: float, flag: object, granules: object) -> None:
        """`vsyncadd`: a negative count, after a wait, takes granules off; a positive signals."""
        state, count = self._flags[known(flag)], known(granules)
        if count > 0:
            state.landed.append((now, count + (state.landed[-1][1] if state.landed else 0)))
        else:
            state.taken -= count
        while len(state.landed) > 1 and state.landed[0][1] <= state.taken:
            state.landed.pop(0)

    def reset(self, flag: object) -> None:
        """`vsyncpa`: set a flag back to its start."""
        self._flags[known(flag)] = _Flag()
