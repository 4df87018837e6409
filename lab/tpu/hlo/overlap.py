"""What XLA's asynchronous copies cost: the part of each that the ops beside it do not hide.

XLA brings an operand into VMEM by a `copy-start`, runs other ops, and waits at the `copy-done`. The
copy needs the channel to HBM like any other; what the ops in between leave idle of the channel
hides it, and for the rest the program waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.tpu.hlo.ops import Counted
from lab.tpu.schedule.timeline import Machine


def waits(ops: Sequence[Counted], cycles: Mapping[str, int], machine: Machine) -> dict[str, int]:
    """Cycles that each `...-done` of a program waits, by its name.

    Args:
        ops: in the order of the program.
        cycles: of the ops that are no copies, by name; 0 for one that is not known.
        machine: gives the channel. It serves copies in the order of their start, and an op's own
            traffic before any of them.
    """
    ends = {counted.op.operands[0]: counted for counted in ops if counted.op.ends_copy}
    found: dict[str, int] = {}
    queue: dict[str, float] = {}  # start -> cycles of the channel that it still needs
    landing: dict[str, float] = {}  # start -> cycle before which nothing can have landed
    now = 0.0
    for counted in ops:
        name = counted.op.name
        if counted.op.starts_copy:
            end = ends.get(name)
            queue[name] = machine.channel_cycles(end.hbm_bytes) if end else 0.0
            landing[name] = now + machine.latency_cycles if end and end.hbm_bytes else now
        elif counted.op.ends_copy:
            start = counted.op.operands[0]
            before = _until(queue, start)
            wait = max(sum(before.values()), landing.get(start, now) - now)
            _serve(queue, wait)
            now += wait
            found[name] = round(wait)
        else:
            own = machine.channel_cycles(counted.hbm_bytes)
            _serve(queue, max(0.0, cycles.get(name, 0) - own))
            now += cycles.get(name, 0)
    return found


def _until(queue: Mapping[str, float], start: str) -> dict[str, float]:
    """The copies that the channel serves up to and with one."""
    names = list(queue)
    return {n: queue[n] for n in names[: names.index(start) + 1]} if start in queue else {}


def _serve(queue: dict[str, float], cycles: float) -> None:
    for name in list(queue):
        served = min(cycles, queue[name])
        cycles -= served
        queue[name] -= served
        if queue[name] <= 0:
            del queue[name]
