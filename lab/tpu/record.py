"""The `compile` section of a record, put together from what the compiler's files say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from lab.tpu import estimate
from lab.tpu.analysis import Program
from lab.tpu.chips import Chip
from lab.tpu.estimate import Estimate, OpCycles
from lab.tpu.roofline import Floor, Work
from lab.tpu.schedule.utilization import LoopUse

TINY_STEP_CYCLES = 1000
_VMEM_LIMIT = re.compile(
    r'scoped_memory_configs(?:\\22|"): \[\{(?:\\22|")memory_space(?:\\22|"): ?1,'
    r'[^}]*?size(?:\\22|"): ?(\d+)'
)


def build(
    answer: dict[str, Any],
    program: Program,
    chip: Chip,
    work: Work,
    floor: Floor,
    *,
    files: dict[str, str],
    stablehlo: str,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The section as plain values.

    Args:
        answer: of lab.tpu.compile.child.compile_cell.
        program: what the compiled program's files say.
        chip: that it was compiled for.
        work: the least that the cell must do.
        floor: the time the chip needs for that.
        files: names of the saved texts.
        stablehlo: the text, which holds a kernel's own VMEM limit.
        warnings: of the steps before.
    """
    label = chip.label(answer["versions"]["libtpu"])
    expected = estimate.estimate(program.ops, program.problems, chip, floor.ms)
    return {
        "target": chip.name,
        "device_kind": answer["device"]["device_kind"],
        "attached": answer["attached"],
        "validated": label is None,
        "label": label,
        **answer["versions"],
        "seconds": answer["seconds"],
        "files": files,
        "boundary": answer["boundary"],
        "memory": {**answer["memory"], "hbm_limit_bytes": chip.hbm_bytes},
        "vmem": _vmem(program, chip, stablehlo),
        "work": {
            "flops": work.flops,
            "hbm_bytes": work.hbm_bytes,
            "intensity_flops_per_byte": work.intensity_flops_per_byte,
            "peak_tflops": chip.bf16_tflops,
            "peak_hbm_gb_s": chip.hbm_gb_s,
            "peak_source": chip.source,
        },
        "floor_ms": floor.ms,
        "floor_bound_by": floor.bound_by,
        "rule": estimate.RULE,
        "cost_model_ms": expected.cost_model_ms,
        "static_profile_ms": expected.static_profile_ms,
        "schedule_ms": expected.schedule_ms,
        "estimated_ms": expected.ms,
        "no_estimate": expected.no_estimate,
        "floor_share": floor.ms / expected.ms if expected.ms else None,
        "achieved_tflops": work.flops / expected.ms * 1e-9 if expected.ms else None,
        "ops": [_op(op, program, chip) for op in program.ops],
        "loops": [_loop(op, use) for op, uses in program.loops.items() for use in uses],
        "warnings": [
            *warnings,
            *program.unread,
            *_warnings(program, chip, expected, answer, floor),
        ],
    }


def _op(op: OpCycles, program: Program, chip: Chip) -> dict[str, Any]:
    chosen = estimate.choose(op, chip)
    return {
        "name": op.name,
        "kind": "pallas" if op.pallas else "xla",
        "count": op.count,
        "contains": list(program.contains[op.name]),
        "estimated_cycles": chosen[1] if chosen else None,
        "source": chosen[0] if chosen else None,
        "cost_model_cycles": op.cost_model,
        "static_profile_cycles": op.static_profile,
        "schedule_cycles": op.schedule,
        "schedule_problem": op.schedule_problem,
        "scoped_vmem_bytes": program.scoped_vmem_bytes[op.name],
    }


def _loop(op: str, use: LoopUse) -> dict[str, Any]:
    return {
        "op": op,
        "loop": f"{use.first:#x}-{use.last:#x}" if use.first else "outside loops",
        "trips": use.trips,
        "cycles": use.cycles,
        "share": round(use.share, 4),
        "bound_by": use.bound_by,
        "dma_bytes": use.dma_bytes,
        "copy_waits": round(use.stall_cycles / use.cycles, 4) if use.cycles else 0.0,
        "latency": round(use.latency, 4),
        "use": {unit: round(busy, 4) for unit, busy in use.use.items()},
    }


def _vmem(program: Program, chip: Chip, stablehlo: str) -> dict[str, Any]:
    used = program.scoped_vmem_bytes
    pallas = {op.name: used[op.name] for op in program.ops if op.pallas} or used
    largest = max(pallas, key=pallas.__getitem__, default=None)
    asked = [int(size) for size in _VMEM_LIMIT.findall(stablehlo)]
    return {
        "op": largest,
        "used_bytes": pallas[largest] if largest else 0,
        "limit_bytes": max(asked, default=chip.scoped_vmem_bytes),
        "capacity_bytes": chip.vmem_bytes,
    }


def _warnings(
    program: Program, chip: Chip, expected: Estimate, answer: dict[str, Any], floor: Floor
) -> list[str]:
    found = []
    for source, total_ms in (
        ("cost model", expected.cost_model_ms),
        ("static profile", expected.static_profile_ms),
        ("schedule", expected.schedule_ms),
    ):
        if total_ms is not None and total_ms < floor.ms:
            found.append(
                f"the {source}'s {total_ms:.4g} ms lie below the floor of {floor.ms:.4g} ms: it "
                "leaves out part of the work and says nothing here"
            )
    libtpu = answer["versions"]["libtpu"]
    label = chip.label(libtpu)
    if label and expected.ms is not None:
        found.append(
            f"{label} on {chip.name} with libtpu {libtpu}: compare kernels, do not quote the time"
        )
    for op, count in _grid_steps(program, answer["boundary"]["pallas_calls"]):
        if count > 1 and op.schedule and op.schedule / count < TINY_STEP_CYCLES:
            found.append(
                f"{op.name}: {count} grid steps of {op.schedule / count:.0f} cycles; for steps so "
                "short v5e has needed about 0.8 us more than the schedule shows (jax issue 24633)"
            )
    return found


def _grid_steps(program: Program, calls: Sequence[dict[str, Any]]) -> list[tuple[OpCycles, int]]:
    """Pallas ops with the steps of their grids, where it can be told which call is which."""
    ops = [op for op in program.ops if op.pallas]
    if len(ops) == len(calls) == 1:
        return [(ops[0], prod(calls[0]["grid"]))]
    # XLA names a call after its kernel, with a number behind.
    steps = {call["name"]: prod(call["grid"]) for call in calls}
    return [(op, steps.get(re.sub(r"\.\d+$", "", op.name), 0)) for op in ops]
