"""Device time of one call, by two witnesses: chained calls, and the profiler's trace."""

from __future__ import annotations

import time

import numpy as np

from lab.records.benchmark import DeviceTime, ProfilerTime
from lab.timing import chain, trace
from lab.timing.chain import Chain, NotChained
from lab.timing.clock import synchronised
from lab.timing.prepare import Ready
from lab.timing.statistics import median_interval

LEAST_ROUNDS, MOST_ROUNDS, ROUNDS_S = 6, 20, 2.0
MOST_TRACED, TRACED_S = 20, 1.0


class Recorder:
    """An arm of a sampling that keeps both dispatches of each chained sample."""

    def __init__(self, made: Chain) -> None:
        self._chain = made
        self._samples: list[chain.Sample] = []

    def __call__(self) -> float:
        """One sample: milliseconds of a call."""
        self._samples.append(self._chain.sample())
        return self._samples[-1].call_ms

    def time(self) -> DeviceTime:
        """All samples so far."""
        calls_ms = [s.call_ms for s in self._samples]
        interval = median_interval(calls_ms)
        return DeviceTime(
            inner_calls=self._chain.calls,
            full_ms=[s.full_ms for s in self._samples],
            empty_ms=[s.empty_ms for s in self._samples],
            samples_ms=calls_ms,
            median_ms=float(np.median(calls_ms)),
            lo_ms=interval.lo if interval else None,
            hi_ms=interval.hi if interval else None,
        )


def compile_for(ready: Ready, floor_ms: float) -> Chain | str:
    """The chain of a ready program, or why there is none."""
    program = ready.program.function
    try:
        return chain.compile_chain(program, ready.arrays, ready.hlo, floor_ms=floor_ms)
    except NotChained as problem:
        return str(problem)


def sampled(made: Chain) -> DeviceTime:
    """A few rounds of chained calls, within about two seconds."""
    record = Recorder(made)
    begun = time.monotonic()
    taken = 0
    while taken < LEAST_ROUNDS or (taken < MOST_ROUNDS and time.monotonic() - begun < ROUNDS_S):
        record()
        taken += 1
    return record.time()


def traced(ready: Ready, latency_ms: float) -> ProfilerTime | None:
    """Device time by the profiler; None where the trace names no ops of the program."""
    calls = round(min(max(TRACED_S * 1e3 / max(latency_ms, 1e-3), 1), MOST_TRACED))

    def run() -> None:
        for _ in range(calls):
            synchronised(ready.call)

    return trace.traced(run, calls=calls, module=trace.module_name(ready.hlo))
