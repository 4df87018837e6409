"""A processor's peaks, measured once by a small product and a small copy, and kept beside a sweep.

A CPU has no datasheet that this lab trusts. What NumPy reaches here is a lower bound of the peak,
and is marked as measured wherever it makes a roof.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from pydantic import Field

from lab import records
from lab.records.model import Model

HOST_FILE = "host_peaks.json"
SOURCE = (
    "measured on the CPU, the least it can: NumPy, float32 product of 1024 x 1024 and copy of "
    "64 MiB, best of 5"
)


class HostPeaks(Model):
    """What one processor reached."""

    cpu_model: str
    tflops: float = Field(gt=0)
    gb_s: float = Field(gt=0)
    source: str


def measure(cpu_model: str) -> HostPeaks:
    """Measure this machine; takes well under a second. The copy counts its reads and writes."""
    n = 1024
    a = np.ones((n, n), np.float32)
    source = np.ones(2**24, np.float32)
    target = np.empty_like(source)
    product_s = _best(lambda: a @ a)
    copy_s = _best(lambda: np.copyto(target, source))
    return HostPeaks(
        cpu_model=cpu_model,
        tflops=2 * n**3 / product_s * 1e-12,
        gb_s=2 * source.nbytes / copy_s * 1e-9,
        source=SOURCE,
    )


def _best(call: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measure_once(directory: Path, cpu_model: str) -> None:
    """Keep the peaks of this machine in a sweep's directory, if they are not there yet."""
    path = directory / HOST_FILE
    if not path.exists():
        records.write(path, measure(cpu_model))


def read(directories: Iterable[Path]) -> dict[str, HostPeaks]:
    """The peaks kept in the directories of a report, by processor; unreadable ones are no peaks."""
    found = {}
    for directory in directories:
        for path in sorted(directory.rglob(HOST_FILE)):
            try:
                peaks = records.read(path, HostPeaks)
            except records.InvalidRecord:
                continue
            found[peaks.cpu_model] = peaks
    return found
