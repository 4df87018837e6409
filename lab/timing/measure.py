"""Time one cell in this process: phases, dispatch floor, latency, device time, comparison.

Nothing wrong is timed: the first call's results are judged against the float64 oracle before any
sample is taken, and so are the last sample's, unless they are the same bits. A time below what the
chip's peaks allow is rejected.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence

import jax
import numpy as np
from pydantic import JsonValue

from lab import devices, programs
from lab.cells.cell import Cell, Outcome
from lab.cells.config import BenchmarkConfig, CandidateConfig
from lab.errors import UnsupportedCell
from lab.grading import gate
from lab.records.benchmark import BenchmarkSection, Gate, PhysicalFloor, Recheck
from lab.timing import budget, peaks, physical, prepare, summaries
from lab.timing import device as device_time
from lab.timing.clock import synchronised
from lab.timing.conditions import Watch
from lab.timing.contest import Contest, Name
from lab.timing.prepare import Ready
from lab.timing.spent import Stopwatch

INTERPRETED = "a Pallas kernel is interpreted on a CPU: its device time says nothing"
QUICK = "left out by benchmark.quick"
SWITCHED_OFF = "left out by benchmark.device_time"


class _Wrong(Exception):  # noqa: N818 - names what the results are
    """Results that fail the gate; the message says how."""


def measure(
    cell: Cell, baseline: dict[str, JsonValue] | None = None, parallel_jobs: int = 1
) -> Outcome:
    """Worker entry.

    Args:
        cell: what is timed.
        baseline: the configuration of the kernel that it is compared with.
        parallel_jobs: how many cells the launcher runs at a time.

    Returns:
        failed where a result is wrong, and where a time is rejected; that keeps its section.
    """
    spent = Stopwatch()
    device = jax.devices()[0]
    spent.end("start")
    built = _programs(cell, baseline, device.platform)
    interpreted = device.platform == "cpu" and any(map(programs.uses_pallas, built.values()))
    if interpreted and cell.config.benchmark.time == "device":
        raise UnsupportedCell(f"benchmark.time=device: {INTERPRETED}")
    spent.end("inputs")
    arrays, transfer_ms = prepare.transfer(built["kernel"], device)
    ready = {name: prepare.ready(program, arrays) for name, program in built.items()}
    spent.end("compile")
    outcome = functools.partial(
        Outcome.computed,
        device=devices.attached(),
        interpreted=interpreted,
        cache_state=_cache_state(),
    )
    try:
        checked = {name: _gated(f"the {name}", one, one.first) for name, one in ready.items()}
        spent.end("gate")
        section = _section(
            cell,
            ready,
            baseline,
            spent,
            transfer_ms=transfer_ms,
            gate=checked["kernel"].record(),
            floor=peaks.physical_floor(cell, device.device_kind),
            interpreted=interpreted,
            parallel_jobs=parallel_jobs,
        )
    except _Wrong as wrong:
        return outcome(None, failure=f"not timed, because it is wrong: {wrong}")
    impossible = _impossible(section)
    return outcome(section, failure=f"rejected: {impossible}" if impossible else None)


def _programs(
    cell: Cell, baseline: dict[str, JsonValue] | None, platform: str
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
    cell: Cell,
    ready: dict[Name, Ready],
    baseline: dict[str, JsonValue] | None,
    spent: Stopwatch,
    *,
    transfer_ms: float,
    gate: Gate,
    floor: PhysicalFloor | str,
    interpreted: bool,
    parallel_jobs: int,
) -> BenchmarkSection:
    settings, kernel = cell.config.benchmark, ready["kernel"]
    contest = Contest(ready, prepare.empty(kernel.arrays, len(kernel.program.results)))
    warmups, rule = budget.of(settings, programs=len(ready))
    warmups_ms = contest.warm_up(warmups, 0.0 if settings.quick else settings.warmup_ms)
    dispatch_ms = min(contest.floor_sample() for _ in range(5))
    no_device = _no_device_time(settings, interpreted=interpreted)
    if settings.time == "device":
        _chain_all(contest, dispatch_ms)
    watch = Watch()
    blocks = contest.sample(rule, cell.config.seed)
    spent.end("samples")
    sampled = summaries.sampled(blocks, rule)
    spent.end("statistics")
    last: dict[str, list[jax.Array]] = {n: list(x) for n, x in contest.last.items()}
    chained, latency_ms = None, None
    if settings.time == "device":
        chained = contest.chains["kernel"].time()
        latency_ms = [synchronised(kernel.call)[1] for _ in range(settings.samples)]
        last["kernel"] = list(kernel.call())
    elif no_device is None:
        made = device_time.compile_for(kernel, dispatch_ms)
        if isinstance(made, str):
            no_device = made
        else:
            chained = device_time.sampled(made)
            last["chain"] = list(made.run(made.calls)[0])
    profiler = None
    if not interpreted and not settings.quick and settings.device_time:
        usual_ms = float(np.median(latency_ms or sampled["samples_ms"]))
        profiler = device_time.traced(kernel, usual_ms)
    spent.end("samples")
    floors_ms = blocks.samples_ms["floor"]
    compared = summaries.compared(blocks, settings.threshold, baseline)
    conditions = watch.conditions(jax.devices()[0].platform, parallel_jobs)
    spent.end("statistics")
    recheck = _rechecked(ready, last)
    spent.end("recheck")
    section = BenchmarkSection(
        transfer_ms=transfer_ms,
        **dataclasses.asdict(kernel.phases),
        warmups_ms=warmups_ms,
        used=settings.time.value,
        **sampled,
        **compared,
        dispatch_floor_ms=float(np.median(floors_ms)),
        floor_samples_ms=floors_ms,
        latency_ms=latency_ms,
        device=chained,
        no_device_time=None if chained else no_device,
        profiler=profiler,
        physical_floor=None if isinstance(floor, str) else floor,
        no_physical_floor=floor if isinstance(floor, str) else None,
        peak_bytes=kernel.peak_bytes(),
        devices_used=_devices_used(kernel),
        conditions=conditions,
        gate=gate,
        recheck=recheck,
        spent=spent.spent(),
    )
    return section.model_copy(update={"flags": summaries.flags(section)})


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
        whose = "" if what == "the kernel" else f"{what}: "
        raise _Wrong(f"{whose}{checked.describe()}")
    return checked


def _rechecked(ready: dict[Name, Ready], last: dict[str, list[jax.Array]]) -> Recheck:
    """Judge what was timed last. Not every device repeats its bits; other bits may be right."""
    same, worst = True, 0.0
    for name, results in last.items():
        one = next((r for n, r in ready.items() if n == name), ready["kernel"])  # or the chain
        if not prepare.same_bits(one.first, results):
            same = False
            what = "the last timed call" if name == "kernel" else f"the last timed {name} call"
            worst = max(worst, _gated(what, one, results).units)
    return Recheck(same_bits=same, error=None if same else worst)


def _impossible(section: BenchmarkSection) -> str | None:
    """Why a time of the section is none, if one is."""
    floor, by_device = section.physical_floor, section.used == "device"
    if floor is None:
        return None
    reason = physical.impossible("the median", section.median_ms, floor, hot=by_device)
    if reason is None and section.device and not by_device:
        ms = section.device.median_ms
        reason = physical.impossible("the device time", ms, floor, hot=True)
    return reason


def _devices_used(ready: Ready) -> int:
    arrays = (*ready.arrays, *ready.first)
    return len(set().union(*(x.sharding.device_set for x in arrays)))


def _cache_state() -> str:
    # A fresh process has empty caches, unless jax was told to keep compiled programs on disk.
    return "persistent" if os.environ.get("JAX_COMPILATION_CACHE_DIR") else "cold"
