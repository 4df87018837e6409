"""Grade the implementation of a cell, in a worker process.

Two entries: one for implementations the lab ships (they run in the worker), one for a stranger's
file (the worker judges, the file runs in sandboxed processes of its own).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lab.cells.cell import Cell, Outcome
from lab.cells.config import Supports
from lab.errors import UnsupportedCell
from lab.grading.cases import SUITE
from lab.grading.engine import grade
from lab.grading.reproduce import command
from lab.grading.sandbox.executor import Sandbox
from lab.grading.sandbox.process import Limits
from lab.grading.sandbox.seeds import SeedPlan
from lab.grading.supports import KERNELS, TIER_OF_KERNEL, fit
from lab.records import Device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.grading.cases import Case
    from lab.records import RubricSection

REGIME = "rubric suite"


def grade_shipped(cell: Cell) -> Outcome:
    """Worker entry for kernels and library candidates.

    The lab's kernels refuse what is beyond their limits, which they declare by that; what they
    cannot earn points for counts for nothing.

    Raises:
        UnsupportedCell: the kernel refuses even the first case of the minimum core.
    """
    from lab import devices, programs
    from lab.grading.executor import InProcess, call_of

    device = devices.attached()
    interpret = device.platform == "cpu"
    attention = programs.implementation(cell, interpret=interpret).attention
    candidate = cell.config.candidate
    own = candidate.name == "reference"
    kernel = str(cell.config.kernel["name"]) if own else ""
    cases = fit(SUITE, KERNELS.get(kernel, Supports()))
    executor = InProcess(attention, declares=own)
    first = call_of(cases[0].problem(cell.policy(), cell.config.seed), backward=False)
    if own and (answer := executor.run([first])[0]).kind == "unsupported":
        raise UnsupportedCell(answer.detail)
    section = grade(
        executor,
        policy=cell.config.dtype.name,
        tier=candidate.tier or TIER_OF_KERNEL.get(kernel),
        expected=candidate.expected,  # type: ignore[arg-type]
        seed=cell.config.seed,
        cases=cases,
    )
    target = candidate.name if candidate.module else None
    details = {
        **_reproduced(section, target, cases, cell.config.dtype.name, "required"),
        "fitted_cases": [case.name for case in cases if case not in SUITE],
    }
    return Outcome.computed(
        section.model_copy(update={"details": details}),
        device,
        interpreted=interpret and executor.contains_pallas(first),
        regime=REGIME,
    )


def grade_stranger(cell: Cell) -> Outcome:
    """Worker entry for `candidate=custom`: seeds it cannot know, processes it cannot leave."""
    candidate = cell.config.candidate
    assert candidate.path is not None
    assert candidate.function is not None
    plan = SeedPlan.draw()
    commitment = plan.commitment
    print(f"seed plan {commitment}", flush=True)  # noqa: T201 - in the log before the file is read
    cases = fit(SUITE, candidate.supports)
    sandbox = Sandbox(
        candidate.path,
        candidate.function,
        supports=candidate.supports,
        backward=candidate.backward.value,
        claims=candidate.claims,
        limits=Limits(
            call_s=candidate.call_limit_s,
            total_s=max(1.0, cell.config.deadline_s - 30.0),
            memory_bytes=candidate.memory_limit_mib << 20,
            output_bytes=candidate.output_limit_mib << 20,
        ),
    )
    with sandbox:
        section = grade(
            sandbox,
            policy=cell.config.dtype.name,
            tier=candidate.tier,
            expected=candidate.expected,  # type: ignore[arg-type]
            backward=candidate.backward.value,
            seed=plan.seed,
            cases=cases,
            rejection=lambda: sandbox.rejection,
        )
    report = sandbox.report
    inside = any(dot["inside"] for dot in report.forward_dots + report.backward_dots)
    details = {
        **_reproduced(
            section,
            f"{candidate.path}:{candidate.function}",
            cases,
            cell.config.dtype.name,
            candidate.backward.value,
        ),
        "fitted_cases": [c.name for c in cases if c not in SUITE],
        "seed_plan": {"commitment": commitment, "secret": plan.secret},
        "sandbox": _finite(report.to_json()),
    }
    return Outcome.computed(
        section.model_copy(update={"details": details}),
        Device(platform="cpu", device_kind="cpu", device_count=1),
        interpreted=inside,
        regime=REGIME,
    )


def _reproduced(
    section: RubricSection, target: str | None, cases: Sequence[Case], policy: str, backward: str
) -> dict[str, Any]:
    """The details, with the command that runs the worst failed case alone."""
    details = dict(section.details)
    failed, by_name = details.get("failed"), {case.name: case for case in cases}
    if target and failed:
        case = by_name[failed[0]["case"]]
        asked = backward != "none"
        details["reproduce"] = command(target, case, failed[0], policy, backward=asked)
    return details


def _finite(value: Any) -> Any:  # noqa: ANN401 - JSON
    """JSON without NaN or infinity, which records refuse."""
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value
