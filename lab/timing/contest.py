"""The programs of one measurement, sampled side by side in one process.

kernel     what is measured
control    the kernel once more, compiled by itself (benchmark.control)
baseline   another kernel on the same arrays (benchmark.baseline)
floor      an empty computation of the same arguments: the dispatch floor
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import jax

from lab.timing import device, sampling
from lab.timing.clock import synchronised
from lab.timing.prepare import Ready
from lab.timing.sampling import Arm, Blocks, StopRule

Name = Literal["kernel", "control", "baseline"]
REWARM_BELOW_MS = 20.0
"""A shorter call is preceded by one that is not timed, so that it finds its caches warm."""
WARM_UP_MOST = 1_000


@dataclass
class Contest:
    """Compiled programs, what is timed of each, and the results of the calls timed last.

    Attributes:
        programs: by name; `kernel` is always there.
        floor: the empty computation.
        last: the results of each program's last timed call.
        chains: the chained arms, where device time is what is compared.
    """

    programs: dict[Name, Ready]
    floor: Callable[[], object]
    last: dict[Name, Sequence[jax.Array]] = field(default_factory=dict)
    chains: dict[Name, device.Recorder] = field(default_factory=dict)

    def warm_up(self, least: int, least_ms: float) -> list[float]:
        """Call every program, at least so often and so long; the kernel's milliseconds are kept."""
        for name in self.programs:
            if name != "kernel":
                self._warm(name, least, least_ms)
        for _ in range(least):
            self.floor_sample()
        return self._warm("kernel", least, least_ms)

    def _warm(self, name: Name, least: int, least_ms: float) -> list[float]:
        taken: list[float] = []
        begun = time.perf_counter()
        while len(taken) < least or (
            len(taken) < WARM_UP_MOST and (time.perf_counter() - begun) * 1e3 < least_ms
        ):
            taken.append(synchronised(self.programs[name].call)[1])
        return taken

    def floor_sample(self) -> float:
        """One sample of the dispatch floor."""
        synchronised(self.floor)
        return synchronised(self.floor)[1]

    def latency(self, name: Name) -> Arm:
        """The arm of a program's synchronised calls."""
        call = self.programs[name].call
        usual_ms = synchronised(call)[1]

        def sample() -> float:
            if usual_ms < REWARM_BELOW_MS:
                synchronised(call)
            self.last[name], ms = synchronised(call)
            return ms

        return sample

    def sample(self, rule: StopRule, seed: int) -> Blocks:
        """Sample all programs and the floor, until the rule stops it."""
        arms: dict[str, Arm] = {
            name: self.chains.get(name) or self.latency(name) for name in self.programs
        }
        arms["floor"] = self.floor_sample
        return sampling.take(arms, rule, seed=seed, watched=self._watched)

    def _watched(self, samples: Mapping[str, Sequence[float]]) -> Sequence[float]:
        """What must be known well: the ratio, if there is one, else the kernel's median."""
        for other in ("baseline", "control"):
            if other in samples:
                pairs = zip(samples["kernel"], samples[other], strict=True)
                return [a / b for a, b in pairs]
        return samples["kernel"]
