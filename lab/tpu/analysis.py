"""What the compiler's files say about a program: its ops with their cycles, and what bounds them.

A pure function of files, so that a dump made anywhere can be read again without a compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from lab.cells.config import Chip
from lab.tpu import chips
from lab.tpu.estimate import OpCycles, choose
from lab.tpu.hlo import ops as hlo
from lab.tpu.hlo import overlap
from lab.tpu.hlo.text import UnrecognisedHloError
from lab.tpu.schedule import bundles, utilization
from lab.tpu.schedule import execute as schedule
from lab.tpu.schedule.bundles import UnrecognisedDump
from lab.tpu.schedule.execute import NoEstimate, ScheduleEstimate
from lab.tpu.schedule.issued import most_flops
from lab.tpu.schedule.timeline import Machine
from lab.tpu.schedule.utilization import LoopUse

LEAST_SHARE = 0.03  # loops that take less of an op are not worth a row
BOUND_OPS = 3  # how many ops, the longest ones, are looked at


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
        most_flops: that the instructions can have done as they ran; None where one did not run.
        bundles: op -> length of its schedule.
        copy_trips: op -> how often its busiest loop with copies ran, and the cycles it took.
    """

    ops: tuple[OpCycles, ...]
    contains: dict[str, tuple[str, ...]]
    scoped_vmem_bytes: dict[str, int]
    problems: tuple[str, ...]
    loops: dict[str, tuple[LoopUse, ...]]
    unread: tuple[str, ...]
    most_flops: int | None = None
    bundles: Mapping[str, int] = field(default_factory=dict)
    copy_trips: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Executed:
    program: bundles.Schedule | None
    result: ScheduleEstimate | None
    problem: str | None
    unread: bool


def analyse(
    hlo_text: str,
    profile_text: str | None,
    dump: Path | None,
    chip: Chip,
    scalars: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> Program:
    """Read a compiled program.

    Args:
        hlo_text: its optimised HLO.
        profile_text: the HLO of the same program as compiled with static profiles, or None.
        dump: the directory of schedules, or None.
        chip: that it was compiled for.
        scalars: argument -> the integers that it is declared to hold.

    Raises:
        UnrecognisedHloError: the HLO text is of another format.
    """
    module = hlo.read(hlo_text, scalars)
    profiled = _profiles(profile_text)
    machine = chips.machine(chip)
    timed = [c for c in module.ops if not (c.op.starts_copy or c.op.ends_copy)]
    executed = {counted.op.name: _execute(dump, counted, machine) for counted in timed}
    cycles = {c.op.name: _cycles(c, executed[c.op.name], profiled, machine) for c in timed}
    spent = {name: found[1] for name, op in cycles.items() if (found := choose(op, chip))}
    waits = overlap.waits(module.ops, spent, machine)
    ops = tuple(
        cycles[c.op.name] if c.op.name in cycles else _copy(c, waits[c.op.name])
        for c in module.ops
        if not c.op.starts_copy
    )
    loops, unread = _loops(dump, ops, executed)
    problems = (e.problem for e in executed.values() if e.unread and e.problem)
    flops = [
        most_flops(e.program, e.result.runs, chips.mxu_width(chip)) * c.count
        for c in timed
        if (e := executed[c.op.name]).program and e.result
    ]
    return Program(
        ops=ops,
        contains={counted.op.name: counted.contains for counted in module.ops},
        scoped_vmem_bytes={c.op.name: c.op.scoped_vmem_bytes for c in module.ops},
        problems=module.problems,
        loops=loops,
        unread=tuple(dict.fromkeys((*problems, *unread))),
        most_flops=sum(flops) if len(flops) == len(timed) and not module.problems else None,
        bundles={name: len(e.program.bundles) for name, e in executed.items() if e.program},
        copy_trips={
            name: utilization.copy_trips(e.program, e.result)
            for name, e in executed.items()
            if e.program and e.result
        },
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


def _execute(dump: Path | None, counted: hlo.Counted, machine: Machine) -> _Executed:
    op = counted.op.name
    if dump is None:
        return _Executed(None, None, "no schedule was dumped", unread=True)
    path = bundles.find_dump(dump, op)
    if path is None:
        return _Executed(None, None, f"this libtpu dumped no schedule of {op}", unread=True)
    try:
        program = bundles.parse(bundles.read_text(path), name=op)
        result = schedule.execute(program, machine, counted.words)
    except UnrecognisedDump as error:
        return _Executed(None, None, f"unknown format of a schedule: {error}", unread=True)
    if isinstance(result, NoEstimate):
        return _Executed(program, None, result.reason, unread=False)
    if not result.latencies:  # these cycles would be a lower bound, which looks like a fast kernel
        reason = f"this libtpu dumped the schedule of {op} without the units' latencies"
        return _Executed(program, None, reason, unread=True)
    return _Executed(program, result, None, unread=False)


def _cycles(
    counted: hlo.Counted, executed: _Executed, profiled: dict[str, int], machine: Machine
) -> OpCycles:
    op = counted.op
    moves = counted.moves and not op.is_pallas
    needed = machine.channel_cycles(counted.hbm_bytes)
    if not executed.result:  # the compiler leaves it to a single copy
        needed += machine.latency_cycles
    return OpCycles(
        name=op.name,
        kind="pallas" if op.is_pallas else "xla",
        count=counted.count,
        hbm_output_bytes=op.hbm_output_bytes,
        cost_model=op.cost_model_cycles,
        static_profile=profiled.get(op.name),
        schedule=executed.result.cycles if executed.result else None,
        schedule_problem=executed.problem,
        schedule_unread=executed.unread,
        moves=moves,
        channel=round(needed) if moves else None,
        hbm_bytes=counted.hbm_bytes,
    )


def _copy(counted: hlo.Counted, waited: int) -> OpCycles:
    return OpCycles(
        name=counted.op.name,
        kind="copy",
        count=counted.count,
        hbm_output_bytes=counted.op.hbm_output_bytes,
        cost_model=None,
        static_profile=None,
        schedule=None,
        channel=waited,
        hbm_bytes=counted.hbm_bytes,
    )


def _loops(
    dump: Path | None, ops: tuple[OpCycles, ...], executed: dict[str, _Executed]
) -> tuple[dict[str, tuple[LoopUse, ...]], list[str]]:
    found: dict[str, tuple[LoopUse, ...]] = {}
    unread: list[str] = []
    longest = sorted(ops, key=lambda op: -(op.schedule or 0) * op.count)[:BOUND_OPS]
    for op in longest:
        run = executed.get(op.name, _Executed(None, None, None, unread=False))
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
