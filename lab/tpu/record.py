"""The `compile` section of a record, put together from what the compiler's files say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod

from lab.cells.config import Chip
from lab.records import (
    CompileFiles,
    CompileLoop,
    CompileMemory,
    CompileOp,
    CompileProof,
    CompileSection,
    CompileVmem,
    CompileWork,
    PallasCall,
)
from lab.tpu import chips, estimate
from lab.tpu.analysis import Program
from lab.tpu.compile.answers import Answer
from lab.tpu.estimate import Estimate, OpCycles
from lab.tpu.roofline import Floor, Work
from lab.tpu.schedule.utilization import LoopUse

TINY_STEP_CYCLES = 1000
MANY_BUNDLES = 16_384
"""Of one op. No public source states the instruction memory of a v5e; a schedule beyond this is
said to be long, for fetching its instructions takes no time in an estimate."""

_VMEM_LIMIT = re.compile(
    r'scoped_memory_configs(?:\\22|"): \[\{(?:\\22|")memory_space(?:\\22|"): ?1,'
    r'[^}]*?size(?:\\22|"): ?(\d+)'
)


def build(
    answer: Answer,
    program: Program,
    chip: Chip,
    work: Work,
    floor: Floor,
    *,
    proof: CompileProof,
    scalars: dict[str, list[int]],
    files: CompileFiles,
    stablehlo: str,
    warnings: Sequence[str],
) -> CompileSection:
    """The section.

    Args:
        answer: of lab.tpu.compile.child.compile_cell.
        program: what the compiled program's files say.
        chip: that it was compiled for.
        work: the least that the cell must do.
        floor: the time the chip needs for that.
        proof: whether the program's values were proved.
        scalars: what arguments in scalar memory were declared to hold.
        files: names of the saved texts.
        stablehlo: the text, which holds a kernel's own VMEM limit.
        warnings: of the steps before.
    """
    versions = answer.versions
    label = "; ".join(_labels(chip, versions["libtpu"], scalars)) or None
    expected = estimate.estimate(program.ops, program.problems, chip, floor, program.most_flops)
    return CompileSection(
        target=chip.name,
        device_kind=answer.device_kind,
        attached=answer.attached,
        validated=label is None,
        label=label,
        jax=versions["jax"],
        jaxlib=versions["jaxlib"],
        libtpu=versions["libtpu"],
        seconds=answer.seconds,
        files=files,
        boundary=answer.boundary,
        memory=CompileMemory(**answer.memory, hbm_limit_bytes=chip.hbm_bytes),
        vmem=_vmem(program, chip, stablehlo),
        work=CompileWork(
            flops=work.flops,
            hbm_bytes=work.hbm_bytes,
            intensity_flops_per_byte=work.intensity_flops_per_byte,
            peak_tflops=chip.bf16_tflops,
            peak_hbm_gb_s=chip.hbm_gb_s,
            peak_source=chip.source,
            most_flops=program.most_flops,
        ),
        floor_ms=floor.ms,
        floor_bound_by=floor.bound_by,
        rule=estimate.RULE,
        cost_model_ms=expected.cost_model_ms,
        static_profile_ms=expected.static_profile_ms,
        schedule_ms=expected.schedule_ms,
        estimated_ms=expected.ms,
        estimated_cycles=expected.cycles,
        no_estimate=expected.no_estimate,
        implementation=answer.implementation,
        values_proved=proof.proved,
        proof=proof,
        scalars=scalars,
        floor_share=floor.ms / expected.ms if expected.ms else None,
        achieved_tflops=work.flops / expected.ms * 1e-9 if expected.ms else None,
        ops=[_op(op, program, chip) for op in program.ops],
        loops=[_loop(op, use) for op, uses in program.loops.items() for use in uses],
        warnings=[
            *warnings,
            *program.unread,
            *_warnings(program, chip, expected, answer, floor, proof),
        ],
    )


def _labels(chip: Chip, libtpu: str, scalars: dict[str, list[int]]) -> Iterator[str]:
    if label := chips.label(chip, libtpu):
        yield label
    if scalars:
        yield f"for the declared scalars of {', '.join(sorted(scalars))}"


def _op(op: OpCycles, program: Program, chip: Chip) -> CompileOp:
    chosen = estimate.choose(op, chip)
    return CompileOp(
        name=op.name,
        kind=op.kind,
        count=op.count,
        contains=list(program.contains[op.name]),
        estimated_cycles=chosen[1] if chosen else None,
        source=chosen[0] if chosen else None,
        cost_model_cycles=op.cost_model,
        static_profile_cycles=op.static_profile,
        schedule_cycles=op.schedule,
        channel_cycles=op.channel,
        hbm_bytes=op.hbm_bytes,
        schedule_problem=op.schedule_problem,
        scoped_vmem_bytes=program.scoped_vmem_bytes[op.name],
    )


def _loop(op: str, use: LoopUse) -> CompileLoop:
    return CompileLoop(
        op=op,
        loop=f"{use.first:#x}-{use.last:#x}" if use.first else "outside loops",
        trips=use.trips,
        cycles=use.cycles,
        share=round(use.share, 4),
        bound_by=use.bound_by,
        dma_bytes=use.dma_bytes,
        copy_waits=round(use.stall_cycles / use.cycles, 4) if use.cycles else 0.0,
        latency=round(use.latency, 4),
        use={unit: round(busy, 4) for unit, busy in use.use.items()},
    )


def _vmem(program: Program, chip: Chip, stablehlo: str) -> CompileVmem:
    used = program.scoped_vmem_bytes
    pallas = {op.name: used[op.name] for op in program.ops if op.kind == "pallas"} or used
    largest = max(pallas, key=pallas.__getitem__, default=None)
    asked = [int(size) for size in _VMEM_LIMIT.findall(stablehlo)]
    return CompileVmem(
        op=largest,
        used_bytes=pallas[largest] if largest else 0,
        limit_bytes=max(asked, default=chip.scoped_vmem_bytes),
        capacity_bytes=chip.vmem_bytes,
    )


def _warnings(
    program: Program,
    chip: Chip,
    expected: Estimate,
    answer: Answer,
    floor: Floor,
    proof: CompileProof,
) -> Iterator[str]:
    if not proof.proved:
        what = "wrong values" if proof.proved is False else "values not proved"
        yield f"{what}, so no table takes this estimate: {proof.reason}"
    for source, total_ms in (
        ("cost model", expected.cost_model_ms),
        ("static profile", expected.static_profile_ms),
        ("schedule", expected.schedule_ms),
    ):
        if total_ms is not None and total_ms < floor.ms:
            yield (
                f"the {source}'s {total_ms:.4g} ms lie below the floor of {floor.ms:.4g} ms: it "
                "leaves out part of the work and says nothing here"
            )
    libtpu = answer.versions["libtpu"]
    label = chips.label(chip, libtpu)
    if label and expected.ms is not None:
        yield f"{label} on {chip.name} with libtpu {libtpu}: compare kernels, do not quote the time"
    steps = dict(_grid_steps(program, answer.boundary.pallas_calls))
    for op in (op for op in program.ops if op.kind == "pallas" and op.schedule):
        trips, cycles = program.copy_trips.get(op.name, (0, 0))
        grid = steps.get(op.name, 0)
        if grid > trips and op.schedule:
            trips, cycles = grid, op.schedule
        if trips > 1 and cycles / trips < TINY_STEP_CYCLES:
            yield (
                f"{op.name}: {trips} grid steps or trips around copies, of {cycles / trips:.0f} "
                "cycles each; estimates of steps so short have been up to a fifth off"
            )
        if program.bundles.get(op.name, 0) > MANY_BUNDLES:
            yield (
                f"{op.name}: {program.bundles[op.name]:,} bundles of instructions (the program's "
                f"code is {answer.memory['code_bytes']:,} bytes); fetching "
                "them takes time on the chip and none in this estimate"
            )


def _grid_steps(program: Program, calls: Sequence[PallasCall]) -> list[tuple[str, int]]:
    """Pallas ops with the steps of their grids, where it can be told which call is which."""
    ops = [op.name for op in program.ops if op.kind == "pallas"]
    if len(ops) == len(calls) == 1:
        return [(ops[0], prod(calls[0].grid))]
    # XLA names a call after its kernel, with a number behind.
    steps = {call.name: prod(call.grid) for call in calls}
    return [(name, steps.get(re.sub(r"\.\d+$", "", name), 0)) for name in ops]
