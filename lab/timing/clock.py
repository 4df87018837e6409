"""The clock: wall time of a call, on the host alone or until its results are ready."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import jax

R = TypeVar("R")


def clocked(call: Callable[[], R]) -> tuple[R, float]:
    """The call's result, and the milliseconds until it returned."""
    start = time.perf_counter_ns()
    result = call()
    return result, (time.perf_counter_ns() - start) / 1e6


def synchronised(call: Callable[[], R]) -> tuple[R, float]:
    """The call's results, every one of them ready, and the milliseconds until they were."""
    return clocked(lambda: jax.block_until_ready(call()))
