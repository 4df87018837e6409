"""Time one cell in this process: transfer, lower, compile, first call and steady samples apart.

Nothing wrong is timed: the first call's results are judged against the float64 oracle before any
sample is taken, and so are the last sample's, unless they are the same bits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from lab import devices, programs
from lab.cells.cell import Cell
from lab.cells.config import from_plain
from lab.grading import gate
from lab.programs import Program

R = TypeVar("R")


def measure(payload: dict[str, Any]) -> dict[str, Any]:
    """Worker entry: `payload["config"]` is a cell's plain configuration.

    Returns:
        device (as lab.devices gives it), interpret, pallas, cache_state; and either `benchmark`
        (the section of the record, milliseconds) or `gate_failure` (the reason).
    """
    cell = Cell(from_plain(payload["config"]))
    device = jax.devices()[0]
    interpret = device.platform == "cpu"
    facts: dict[str, Any] = {
        "device": devices.attached(),
        "cache_state": _cache_state(),
    }
    program = programs.build(cell, interpret=interpret)
    pallas = programs.uses_pallas(program)
    programs.refuse_foreign_device(cell, device.platform, pallas=pallas)
    facts["interpret"] = interpret and pallas
    arrays, transfer_ms = _timed(lambda: jax.device_put(list(program.inputs.values()), device))
    jitted = jax.jit(program.function)
    lowered, lower_ms = _clocked(lambda: jitted.lower(*arrays))
    compiled, compile_ms = _clocked(lowered.compile)
    first, first_call_ms = _timed(lambda: compiled(*arrays))
    checked = gate.check(program.problem, _named(program, first))
    if not checked.passed:
        return {**facts, "gate_failure": checked.describe()}

    settings = cell.config.benchmark
    warmups_ms = [_timed(lambda: compiled(*arrays))[1] for _ in range(settings.warmups)]
    samples_ms: list[float] = []
    last = first
    for _ in range(settings.samples):
        last, sample_ms = _timed(lambda: compiled(*arrays))
        samples_ms.append(sample_ms)
    # Not every device repeats its bits; other bits are right if they pass the same gate.
    if not _same_bits(first, last):
        rechecked = gate.check(program.problem, _named(program, last))
        if not rechecked.passed:
            return {**facts, "gate_failure": f"the last timed call: {rechecked.describe()}"}
    section = {
        "transfer_ms": transfer_ms,
        "lower_ms": lower_ms,
        "compile_ms": compile_ms,
        "first_call_ms": first_call_ms,
        "warmups_ms": warmups_ms,
        "samples_ms": samples_ms,
        "median_ms": float(np.median(samples_ms)),
        "devices_used": len(set().union(*(x.sharding.device_set for x in (*arrays, *last)))),
        "gate": checked.record(),
    }
    return {**facts, "benchmark": section}


def _cache_state() -> str:
    # A fresh process has empty caches, unless jax was told to keep compiled programs on disk.
    return "persistent" if os.environ.get("JAX_COMPILATION_CACHE_DIR") else "cold"


def _clocked(call: Callable[[], R]) -> tuple[R, float]:
    start = time.perf_counter_ns()
    result = call()
    return result, (time.perf_counter_ns() - start) / 1e6


def _timed(call: Callable[[], R]) -> tuple[R, float]:
    """The call's results, every one of them ready, and the milliseconds until they were."""
    return _clocked(lambda: jax.block_until_ready(call()))


def _named(program: Program, outputs: Sequence[jax.Array]) -> dict[str, np.ndarray[Any, Any]]:
    return {n: np.asarray(x) for n, x in zip(program.results, outputs, strict=True)}


def _same_bits(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> bool:
    return all(
        np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in zip(a, b, strict=True)
    )
