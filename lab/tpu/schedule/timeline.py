"""Time on one core: copies that share a channel to HBM, and waits for their sync flags."""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from operator import itemgetter

from lab.tpu.schedule.scalar import CannotFollowError, known


@dataclass(frozen=True)
class Machine:
    """What the timeline needs to know of a chip.

    The defaults of a copy are libtpu's own: its static profile of kernels that only copy small
    blocks on v5e (1, 2 or 4 of them a step) is met within 5 percent. What public measurements say
    is in lab/tpu/chips.py.

    Attributes:
        clock_ghz: cycles a nanosecond.
        hbm_gb_s: datasheet bandwidth between HBM and the core, both directions together.
        dma_latency_ns: from issue to completion of a copy, beyond its time on the channel.
        read_share: of the datasheet bandwidth that copies from HBM reach.
        write_share: the same for copies to HBM, the channel's turning round included.
        piece_ns: time on the channel that each piece of a strided copy costs on top,
        whole_bytes: where the piece is shorter than this.
        granule_bytes: unit of a copy's size in a dump.
    """

    clock_ghz: float
    hbm_gb_s: float
    dma_latency_ns: float = 600.0
    read_share: float = 1.0
    write_share: float = 1.0
    piece_ns: float = 0.0
    whole_bytes: int = 8192
    granule_bytes: int = 32

    @property
    def bytes_per_cycle(self) -> float:
        """HBM bandwidth in the core's own time."""
        return self.hbm_gb_s / self.clock_ghz

    @property
    def latency_cycles(self) -> float:
        """From a copy's end on the channel until its bytes have landed."""
        return self.dma_latency_ns * self.clock_ghz

    def channel_cycles(self, moved: int) -> float:
        """For bytes of which half are read and half written, as where it is not said which."""
        return moved * (1 / self.read_share + 1 / self.write_share) / 2 / self.bytes_per_cycle


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
        self.landed_at = 0.0  # the cycle in which the last byte of all copies so far has landed
        self._latency = machine.latency_cycles
        self._read = 1 / (machine.bytes_per_cycle * machine.read_share)
        self._write = 1 / (machine.bytes_per_cycle * machine.write_share)
        self._piece = machine.piece_ns * machine.clock_ghz
        self._free_at = 0.0
        self._flags: dict[int, _Flag] = defaultdict(_Flag)

    def copy(
        self,
        now: float,
        granules: object,
        flag: object,
        ends: str,
        address: int,
        piece: object = None,
    ) -> None:
        """Issue a copy.

        Args:
            now: the cycle of its issue.
            granules: its size.
            flag: counts its granules as they land.
            ends: `r` where it reads HBM, `w` where it writes HBM, `rw` for both, nothing for a copy
                that stays on the chip.
            address: of the instruction.
            piece: granules that lie together in HBM; None where all of them do.
        """
        size, key = known(granules), known(flag)
        moved = size * self.machine.granule_bytes
        cycles = moved * (self._read * ends.count("r") + self._write * ends.count("w"))
        if piece is not None and ends:
            together = known(piece)
            if together * self.machine.granule_bytes < self.machine.whole_bytes:
                cycles += len(ends) * self._piece * -(-size // together)
        self.traffic[address] += moved * len(ends)
        self.copies += 1
        self._free_at = max(self._free_at, now) + cycles
        self.landed_at = max(self.landed_at, self._free_at + self._latency)
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

    def read(self, flag: object, address: int) -> None:
        """`vsyncmov`: the check at a kernel's end, which halts the chip on a flag that is not 0."""
        state = self._flags[known(flag)]
        left = (state.landed[-1][1] if state.landed else 0) - state.taken
        if left:
            raise CannotFollowError(
                f"a semaphore holds {left} at the kernel's end (bundle {address:#x}), where a TPU "
                "halts: wait for every copy and every signal"
            )

    def end(self, now: float, address: int) -> float:
        """The cycle at which the program is over: no copy is still on its way."""
        if self.landed_at > now:
            self.stalls[address] += self.landed_at - now
        return max(now, self.landed_at)
