"""From cycles to a device time, by one rule, or to the reason why there is none.

The rule, the same for every cell (RULE):

* an XLA op that computes something counts by XLA's cost model, and by the executed schedule where
  the model states nothing;
* an XLA op that only moves values (a copy, cast, broadcast or transpose) counts by its executed
  schedule or by the time that its bytes need on the channel to HBM, whichever is longer: the cost
  model states many times what either takes;
* XLA's asynchronous copies count by what the program waits for them;
* a Pallas call counts by the executed schedule. libtpu's static profile takes its place only where
  this libtpu's schedule cannot be read; it must then stand at or above the call's own floor. It
  never stands in for a schedule that was read but hangs on data;
* the sum, over the clock, must lie between the cell's floor and CEILING, and the instructions that
  ran must be able to do the work's arithmetic.

It is a time of the device. The host's dispatch comes on top and is never added here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lab.cells.config import Chip
from lab.tpu.roofline import Floor

RULE = (
    "xla: cost_model, else schedule; xla that only moves values: schedule or channel; "
    "xla's copies: channel; pallas: schedule, else static_profile above its floor"
)
CEILING_FACTOR = 1000.0
CEILING_MS = 10.0
_ANY_CLOCK_GHZ = 2.0  # where the clock is not public: no TPU's cycles are off by more than twice

Source = Literal["cost_model", "static_profile", "schedule", "channel"]


@dataclass(frozen=True)
class OpCycles:
    """A timed op of the program: cycles of one execution by each source, None where it has none.

    Attributes:
        kind: `copy` for the end of an asynchronous copy.
        count: how often the program runs it.
        moves: whether it only moves values.
        hbm_output_bytes: what one execution must write to HBM at the least.
        channel: of a copy, what the program waits for it; of an op that only moves values, what
            its bytes need on the channel to HBM.
        schedule_problem: why `schedule` is None.
        schedule_unread: whether that is because the dump is missing or of an unknown format.
    """

    name: str
    kind: Literal["xla", "pallas", "copy"]
    count: int
    hbm_output_bytes: int
    cost_model: int | None
    static_profile: int | None
    schedule: int | None
    schedule_problem: str | None = None
    schedule_unread: bool = False
    moves: bool = False
    channel: int | None = None
    hbm_bytes: int | None = None


@dataclass(frozen=True)
class Estimate:
    """Totals by source, and the estimate by RULE.

    Every total is None unless its source has a figure for every op. Exactly one of `ms` and
    `no_estimate` is None. `cycles` are those of `ms`; a chip whose clock is not public has them
    alone.
    """

    cost_model_ms: float | None
    static_profile_ms: float | None
    schedule_ms: float | None
    ms: float | None
    no_estimate: str | None
    cycles: int | None = None


def choose(op: OpCycles, chip: Chip) -> tuple[Source, int] | None:
    """The source that RULE takes for an op, and its cycles for one execution; None for none."""
    if op.kind == "copy":
        return "channel", op.channel or 0
    by_schedule: tuple[Source, int] | None = ("schedule", op.schedule) if op.schedule else None
    if op.moves and op.channel is not None and (op.schedule or not op.cost_model):
        return max(by_schedule or ("channel", 0), ("channel", op.channel), key=lambda c: c[1])
    if op.kind == "xla" and op.cost_model:
        return "cost_model", op.cost_model
    if by_schedule or op.kind != "pallas":
        return by_schedule
    return _profile(op, chip)


def _profile(op: OpCycles, chip: Chip) -> tuple[Source, int] | None:
    """The static profile of a Pallas call whose schedule cannot be read, above the call's floor."""
    if op.schedule_unread and op.static_profile and chip.clock_ghz:
        least = op.hbm_output_bytes / chip.hbm_gb_s * chip.clock_ghz
        if op.static_profile >= least:
            return "static_profile", op.static_profile
    return None


def estimate(
    ops: Sequence[OpCycles],
    problems: Sequence[str],
    chip: Chip,
    floor: Floor,
    most_flops: int | None = None,
) -> Estimate:
    """Sum the ops by each source and by RULE.

    Args:
        ops: every op of the program that takes time.
        problems: why that list is incomplete, if it is.
        chip: gives the clock.
        floor: of the whole cell.
        most_flops: that the program's instructions can have done as they ran; None: not known.
    """

    def total(source: Source) -> float | None:
        cycles = [
            (op.channel or 0 if op.kind == "copy" else getattr(op, source) or None, op.count)
            for op in ops
        ]
        return _total(cycles, chip.clock_ghz, problems)

    totals = (total("cost_model"), total("static_profile"), total("schedule"))
    reason = _refuse(ops, problems, chip)
    if reason is not None:
        return Estimate(*totals, None, reason)
    chosen = [(choose(op, chip), op.count) for op in ops]
    cycles = sum(c[1] * count for c, count in chosen if c is not None)
    ms = cycles / (chip.clock_ghz or _ANY_CLOCK_GHZ) * 1e-6
    reason = _too_little_work(most_flops, floor) or _out_of_bounds(ms, floor.ms, cycles)
    usable = cycles if reason is None else None
    if reason is None and chip.clock_ghz is None:
        reason = f"the clock of {chip.name} is not public, so its {cycles:,} cycles are no time"
    return Estimate(*totals, ms if reason is None else None, reason, usable)


def _too_little_work(most_flops: int | None, floor: Floor) -> str | None:
    if most_flops is None or most_flops >= floor.flops:
        return None
    return (
        f"the matrix and vector instructions that ran can have done {most_flops:.4g} FLOP at the "
        f"most, and the visible work is {floor.flops:.4g} FLOP: the program leaves out part of it"
    )


def ceiling_ms(floor_ms: float) -> float:
    """Above this, figures are taken for garbage and not for a slow kernel."""
    return CEILING_MS + CEILING_FACTOR * floor_ms


def _total(
    cycles: Sequence[tuple[int | None, int]], clock: float | None, problems: Sequence[str]
) -> float | None:
    if clock is None or problems or not cycles or any(c is None for c, _ in cycles):
        return None
    return sum(c * count for c, count in cycles if c) / clock * 1e-6


def _refuse(ops: Sequence[OpCycles], problems: Sequence[str], chip: Chip) -> str | None:
    if problems:
        return problems[0]
    if not ops:
        return "the program has no op that takes time"
    for op in ops:
        if choose(op, chip) is None:
            kind = "Pallas call" if op.kind == "pallas" else "op"
            return f"{kind} {op.name}: {op.schedule_problem or 'no source has cycles for it'}"
    return None


def _out_of_bounds(ms: float, floor_ms: float, cycles: int) -> str | None:
    if ms < floor_ms:
        return (
            f"{cycles:,} cycles come to {ms:.4g} ms, below the floor of {floor_ms:.4g} ms: "
            "they leave out part of the work"
        )
    if ms > ceiling_ms(floor_ms):
        return (
            f"{cycles:.3g} cycles come to {ms:.3g} ms, absurdly far above the floor of "
            f"{floor_ms:.3g} ms: the compiler's figures for this program are not usable"
        )
    return None
