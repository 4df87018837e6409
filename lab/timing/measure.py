"""Time one cell in this process: phases, dispatch floor, latency, device time, comparison.

Nothing wrong is timed: the first call's results are judged against the float64 oracle before any
sample is taken, and so are the last sample's, unless they are the same bits. A time below what the
chip's peaks allow is rejected.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lab import devices, programs
from lab.cells.cell import Cell
from lab.cells.config import BenchmarkConfig, CandidateConfig, from_plain
from lab.errors import UnsupportedCell
from lab.grading import gate
from lab.timing import budget, peaks, physical, prepare, summaries
from lab.timing import device as device_time
from lab.timing.clock import synchronised
from lab.timing.conditions import Watch
from lab.timing.contest import Contest, Name
from lab.timing.prepare import Ready

INTERPRETED = "a Pallas kernel is interpreted on a CPU: its device time says nothing"
QUICK = "left out by benchmark.quick"
SWITCHED_OFF = "left out by benchmark.device_time"


class _Wrong(Exception):  # noqa: N818 - names what the results are
    """Results that fail the gate; the message says how."""


def measure(payload: dict[str, Any]) -> dict[str, Any]:
    """Worker entry.

    Args:
        payload: `config`, a cell's plain configuration; `baseline`, that of the kernel it is
            compared with, or null; `parallel_jobs`, how many cells the launcher runs at a time.

    Returns:
        device (as lab.devices gives it), interpret, pallas, cache_state; and either `benchmark`
        (the section of the record, milliseconds) or `gate_failure` (the reason). With `benchmark`
        there may be `impossible`, the reason why its time is rejected.
    """
    cell = Cell(from_plain(payload["config"]))
    device = jax.devices()[0]
    on_cpu = device.platform == "cpu"
    facts: dict[str, Any] = {
        "device": devices.attached(),
        "cache_state": _cache_state(),
    }
    built = _programs(cell, payload.get("baseline"), device.platform)
    interpreted = on_cpu and any(programs.uses_pallas(program) for program in built.values())
    facts["interpret"] = interpreted
    if interpreted and cell.config.benchmark.time == "device":
        raise UnsupportedCell(f"benchmark.time=device: {INTERPRETED}")
    arrays, transfer_ms = prepare.transfer(built["kernel"], device)
    ready = {name: prepare.ready(program, arrays) for name, program in built.items()}
    try:
        checked = {name: _gated(name, one, one.first) for name, one in ready.items()}
        section = _section(cell, ready, payload, interpreted=interpreted)
    except _Wrong as wrong:
        return {**facts, "gate_failure": str(wrong)}
    section |= {"transfer_ms": transfer_ms, "gate": checked["kernel"].record()}
    return {**facts, "benchmark": section, **_rejected(cell, section, device.device_kind)}


def _programs(
    cell: Cell, baseline: dict[str, Any] | None, platform: str
) -> dict[Name, programs.Program]:
    """The programs to be timed, all on the kernel's own inputs."""
    interpret = platform == "cpu"
    cells: dict[Name, Cell] = {"kernel": cell}
    if cell.config.benchmark.control:
        cells["control"] = cell
    if baseline is not None:
        reference = CandidateConfig(name="reference", kind="reference", expected="accepted")
        config = dataclasses.replace(cell.config, kernel=baseline, candidate=reference)
        cells["baseline"] = Cell(config)
    made: dict[Name, programs.Program] = {}
    for name, one in cells.items():
        made[name] = programs.build(one, interpret=interpret)
        pallas = programs.uses_pallas(made[name])
        programs.refuse_foreign_device(one, platform, pallas=pallas)
    return made


def _section(
    cell: Cell, ready: dict[Name, Ready], payload: dict[str, Any], *, interpreted: bool
) -> dict[str, Any]:
    settings, kernel = cell.config.benchmark, ready["kernel"]
    contest = Contest(ready, prepare.empty(kernel.arrays, len(kernel.program.results)))
    warmups, rule = budget.of(settings, programs=len(ready))
    warmups_ms = contest.warm_up(warmups, 0.0 if settings.quick else settings.warmup_ms)
    floor_ms = min(contest.floor_sample() for _ in range(5))
    no_device = _no_device_time(settings, interpreted=interpreted)
    if settings.time == "device":
        _chain_all(contest, floor_ms)
    watch = Watch()
    blocks = contest.sample(rule, cell.config.seed)
    floors_ms = blocks.samples_ms["floor"]
    section = {
        **dataclasses.asdict(kernel.phases),
        "warmups_ms": warmups_ms,
        "used": settings.time,
        **summaries.sampled(blocks, rule),
        **summaries.compared(blocks, settings.threshold, payload.get("baseline")),
        "dispatch_floor_ms": float(np.median(floors_ms)),
        "floor_samples_ms": floors_ms,
        "devices_used": _devices_used(kernel),
        "peak_bytes": kernel.peak_bytes(),
    }
    last: dict[str, list[jax.Array]] = {n: list(x) for n, x in contest.last.items()}
    if settings.time == "device":
        section["device"] = contest.chains["kernel"].chained().plain()
        section["latency_ms"] = [synchronised(kernel.call)[1] for _ in range(settings.samples)]
        last["kernel"] = list(kernel.call())
    elif no_device is None:
        made = device_time.compile_for(kernel, floor_ms)
        if isinstance(made, str):
            no_device = made
        else:
            section["device"] = device_time.sampled(made).plain()
            last["chain"] = list(made.run(made.calls)[0])
    section["no_device_time"] = None if "device" in section else no_device
    if not interpreted and not settings.quick and settings.device_time:
        latency_ms = float(np.median(section.get("latency_ms") or section["samples_ms"]))
        section["profiler"] = device_time.traced(kernel, latency_ms)
    section["conditions"] = {
        **watch.conditions(jax.devices()[0].platform).plain(),
        "parallel_jobs": payload.get("parallel_jobs", 1),
    }
    section["flags"] = summaries.flags(section, floors_ms)
    section["recheck"] = _rechecked(ready, last)
    return section


def _no_device_time(settings: BenchmarkConfig, *, interpreted: bool) -> str | None:
    if interpreted:
        return INTERPRETED
    if settings.quick:
        return QUICK
    return None if settings.device_time else SWITCHED_OFF


def _chain_all(contest: Contest, floor_ms: float) -> None:
    for name, one in contest.programs.items():
        made = device_time.compile_for(one, floor_ms)
        if isinstance(made, str):
            raise UnsupportedCell(f"benchmark.time=device: no device time of the {name}: {made}")
        contest.last[name], _ = made.run(made.calls)
        contest.chains[name] = device_time.Recorder(made)


def _gated(what: str, ready: Ready, results: Sequence[jax.Array]) -> gate.Checked:
    checked = gate.check(ready.program.problem, ready.named(results))
    if not checked.passed:
        whose = "" if what == "kernel" else f"the {what}: "
        raise _Wrong(f"{whose}{checked.describe()}")
    return checked


def _rechecked(ready: dict[Name, Ready], last: dict[str, list[jax.Array]]) -> dict[str, Any]:
    """Judge what was timed last. Not every device repeats its bits; other bits may be right."""
    same, worst = True, 0.0
    for name, results in last.items():
        one = next((r for n, r in ready.items() if n == name), ready["kernel"])  # or the chain
        if not prepare.same_bits(one.first, results):
            same = False
            what = "the last timed call" if name == "kernel" else f"the last timed {name} call"
            worst = max(worst, _gated(what, one, results).units)
    return {"same_bits": same, "error": None if same else worst}


def _rejected(cell: Cell, section: dict[str, Any], device_kind: str) -> dict[str, str]:
    """`impossible`, if a time is; the floor goes into the section."""
    floor = peaks.physical_floor(cell, device_kind)
    if isinstance(floor, str):
        section["physical_floor"], section["no_physical_floor"] = None, floor
        return {}
    section["physical_floor"] = {**dataclasses.asdict(floor), "ms": floor.ms}
    by_device = section["used"] == "device"
    reasons = [physical.impossible("the median", section["median_ms"], floor, hot=by_device)]
    if section.get("device") and not by_device:
        ms = section["device"]["median_ms"]
        reasons.append(physical.impossible("the device time", ms, floor, hot=True))
    found = [reason for reason in reasons if reason]
    return {"impossible": found[0]} if found else {}


def _devices_used(ready: Ready) -> int:
    arrays = (*ready.arrays, *ready.first)
    return len(set().union(*(x.sharding.device_set for x in arrays)))


def _cache_state() -> str:
    # A fresh process has empty caches, unless jax was told to keep compiled programs on disk.
    return "persistent" if os.environ.get("JAX_COMPILATION_CACHE_DIR") else "cold"
