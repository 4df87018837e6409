"""What the compiler's files say about a program: its ops with their cycles, and what bounds them.

A pure function of files, so that a dump made anywhere can be read again without a compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.tpu.chips import Chip
from lab.tpu.estimate import OpCycles
from lab.tpu.hlo import ops as hlo
from lab.tpu.hlo.text import UnrecognisedHloError
from lab.tpu.schedule import bundles, utilization
from lab.tpu.schedule import execute as schedule
from lab.tpu.schedule.bundles import UnrecognisedDump
from lab.tpu.schedule.execute import NoEstimate, ScheduleEstimate
from lab.tpu.schedule.timeline import Machine
from lab.tpu.schedule.utilization import LoopUse

LEAST_SHARE = 0.03  # loops that take less of an op are not worth a row
BOUND_OPS = 3  # how many ops, the longest ones, are looked at
# Without a public clock a schedule still has cycles, and its waits need some bandwidth per cycle.
_NOMINAL_CLOCK_GHZ = 1.5


@dataclass(frozen=True)
class Program:
    """The ops of a compiled program.

    Attributes:
        ops: with the cycles of each source.
        contains: op -> what was fused into it, of `dot` and `reduce`.
        scoped_vmem_bytes: op -> VMEM it takes while it runs.
        problems: why the list of ops is incomplete, if it is.
        loops: op -> its loops, the longest first, for the longest ops.
        unread: why parts of the dump say nothing here.
    """

    ops: tuple[OpCycles, ...]
    contains: dict[str, tuple[str, ...]]
    scoped_vmem_bytes: dict[str, int]
    problems: tuple[str, ...]
    loops: dict[str, tuple[LoopUse, ...]]
    unread: tuple[str, ...]


@dataclass(frozen=True)
class _Executed:
    program: bundles.Schedule | None
    result: ScheduleEstimate | None
    problem: str | None
    unread: bool


def analyse(hlo_text: str, profile_text: str | None, dump: Path | None, chip: Chip) -> Program:
    """Read a compiled program.

    Args:
        hlo_text: its optimised HLO.
        profile_text: the HLO of the same program as compiled with static profiles, or None.
        dump: the directory of schedules, or None.
        chip: that it was compiled for.

    Raises:
        UnrecognisedHloError: the HLO text is of another format.
    """
    module = hlo.read(hlo_text)
    profiled = _profiles(profile_text)
    machine = chip.machine() or Machine(clock_ghz=_NOMINAL_CLOCK_GHZ, hbm_gb_s=chip.hbm_gb_s)
    executed = {counted.op.name: _execute(dump, counted.op.name, machine) for counted in module.ops}
    ops = tuple(_cycles(counted, executed[counted.op.name], profiled) for counted in module.ops)
    loops, unread = _loops(dump, ops, executed)
    return Program(
        ops=ops,
        contains={counted.op.name: counted.contains for counted in module.ops},
        scoped_vmem_bytes={c.op.name: c.op.scoped_vmem_bytes for c in module.ops},
        problems=module.problems,
        loops=loops,
        unread=tuple(
            dict.fromkeys(
                (*(e.problem for e in executed.values() if e.unread and e.problem), *unread)
            )
        ),
    )


def _profiles(text: str | None) -> dict[str, int]:
    """Static profiles above zero, by op; nothing from a text that cannot be read."""
    if text is None:
        return {}
    try:
        ops = hlo.read(text).ops
    except UnrecognisedHloError:
        return {}
    return {c.op.name: c.op.static_profile_cycles for c in ops if c.op.static_profile_cycles}


def _execute(dump: Path | None, op: str, machine: Machine) -> _Executed:
    if dump is None:
        return _Executed(None, None, "no schedule was dumped", unread=True)
    path = bundles.find_dump(dump, op)
    if path is None:
        return _Executed(None, None, f"this libtpu dumped no schedule of {op}", unread=True)
    try:
        program = bundles.parse(bundles.read_text(path), name=op)
        result = schedule.execute(program, machine)
    except UnrecognisedDump as error:
        return _Executed(None, None, f"unknown format of a schedule: {error}", unread=True)
    if isinstance(result, NoEstimate):
        return _Executed(program, None, result.reason, unread=False)
    if not result.latencies:  # these cycles would be a lower bound, which looks like a fast kernel
        reason = f"this libtpu dumped the schedule of {op} without the units' latencies"
        return _Executed(program, None, reason, unread=True)
    return _Executed(program, result, None, unread=False)


def _cycles(counted: hlo.Counted, executed: _Executed, profiled: dict[str, int]) -> OpCycles:
    op = counted.op
    return OpCycles(
        name=op.name,
        pallas=op.is_pallas,
        count=counted.count,
        hbm_output_bytes=op.hbm_output_bytes,
        cost_model=op.cost_model_cycles,
        static_profile=profiled.get(op.name),
        schedule=executed.result.cycles if executed.result else None,
        schedule_problem=executed.problem,
        schedule_unread=executed.unread,
    )


def _loops(
    dump: Path | None, ops: tuple[OpCycles, ...], executed: dict[str, _Executed]
) -> tuple[dict[str, tuple[LoopUse, ...]], list[str]]:
    found: dict[str, tuple[LoopUse, ...]] = {}
    unread: list[str] = []
    longest = sorted(ops, key=lambda op: -(op.schedule or 0) * op.count)[:BOUND_OPS]
    for op in longest:
        run = executed[op.name]
        if run.program is None or run.result is None or dump is None:
            continue
        slots = bundles.find_slots(dump, op.name)
        if slots is None:
            unread.append(f"this libtpu dumped no slot use of {op.name}")
            continue
        try:
            uses = utilization.loop_utilization(
                run.program, run.result, utilization.read_slots(slots)
            )
        except UnrecognisedDump as error:
            unread.append(f"unknown format of a slot-use file: {error}")
            continue
        found[op.name] = tuple(use for use in uses if use.share >= LEAST_SHARE)
    return found, unread
