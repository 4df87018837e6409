"""The named checks of task=correctness: a kernel in one scope, each check on inputs meant for it.

The first seven attention checks are those of the published v5e benchmark. Every check compares
with the float64 oracle; its error is the worst one in units of what rounding may do there
(`budgets`), so its bound is 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from lab import devices, programs
from lab.cells.cell import Cell, Outcome
from lab.errors import UnsupportedCell
from lab.grading import gate
from lab.kernels import Kernel
from lab.records import CorrectnessCheck, CorrectnessSection
from lab.truth.problems import (
    Array,
    AttentionProblem,
    Shape,
    SoftmaxProblem,
    attention_problem,
    softmax_problem,
)

Problem = AttentionProblem | SoftmaxProblem


@dataclass(frozen=True)
class Case:
    """Inputs of a check: how they differ from the cell's own shape, and their regime."""

    changes: dict[str, Any]
    regime: str = "normal"
    softmax: bool = False


@dataclass(frozen=True)
class Check:
    """A named check: all its cases must hold in the named results."""

    name: str
    cases: Sequence[Case]
    results: Sequence[str]


def checks(shape: Shape, scope: str) -> list[Check]:
    """The checks of a scope, with lengths that follow from the cell's own."""
    T, S = shape.q_len, shape.kv_len
    odd = max(1, S - 27)  # 101 of 128, 229 of 256: no multiple of a lane, a sublane or a block
    plain = {"causal": False, "padding": "none"}
    causal = {"causal": True, "padding": "none"}
    inputs: dict[str, list[Case]] = {
        "causal": [Case(causal)],
        "padding": [Case({**plain, "padding": "tail", "batch": max(2, shape.batch)})],
        "all_masked_row": [Case({**plain, "padding": "empty", "batch": max(2, shape.batch)})],
        "odd_key_width": [Case({**causal, "q_len": odd, "kv_len": odd})],
        "cached_decode": [Case({**causal, "q_len": max(1, S // 8), "kv_len": S})],
        "query_longer": [Case({**causal, "q_len": T, "kv_len": max(1, T // 2)})],
        "poisoned_padding": [
            Case({**plain, "padding": "tail", "batch": max(2, shape.batch)}, "poisoned")
        ],
        "multi_batch": [Case({**causal, "padding": "random", "batch": max(3, shape.batch)})],
        "extreme_logits": [
            Case(causal, regime) for regime in ("peaky", "large_logits", "below_sentinel")
        ],
    }
    if scope == "softmax":
        inputs = {"softmax_parity": [Case(plain)], **inputs, "grad_logits": [Case(causal)]}
        return [Check(name, cases, ("p", "dlogits")) for name, cases in inputs.items()]
    inputs["softmax_parity"] = [Case(causal, softmax=True)]
    # A mapping by tile instead of repeat is right when the group is as large as Hkv: 6 over 2
    # and 6 over 3 can't both be.
    inputs["gqa_mapping"] = [
        Case({**causal, "q_heads": 6, "kv_heads": kv_heads}) for kv_heads in (2, 3)
    ]
    everything = ("out", "dq", "dk", "dv", "p", "dlogits")
    found = [Check(name, cases, everything) for name, cases in inputs.items()]
    gradients = [Check(f"grad_{x}", [Case(causal)], (f"d{x}",)) for x in ("q", "k", "v")]
    return found[:4] + gradients + found[4:]


def run_checks(cell: Cell) -> Outcome:
    """Worker entry: every check that makes sense in the cell's scope, in order."""
    device = devices.attached()
    interpret = device.platform == "cpu"
    kernel = programs.implementation(cell, interpret=interpret)
    runner = _Runner(kernel, cell)
    shape, scope = cell.problem_shape(), cell.config.scope.name
    found = []
    for check in checks(shape, scope):
        if check.name == "softmax_parity" and cell.config.candidate.name != "reference":
            continue  # a candidate gives its attention, not its softmax
        record = runner.run(check, shape, scope)
        if check.name == "softmax_parity" and record.note:
            continue  # so does a fused kernel
        found.append(record)
    refusals = [record.note for record in found if record.note]
    if len(refusals) == len(found):
        raise UnsupportedCell(refusals[0])
    return Outcome.computed(
        CorrectnessSection(checks=found), device, interpreted=interpret and runner.saw_pallas
    )


class _Runner:
    """Runs cases; several checks may read one case, which is then computed once."""

    def __init__(self, kernel: Kernel, cell: Cell) -> None:
        self._kernel, self._cell = kernel, cell
        self._policy, self._seed = cell.policy(), cell.config.seed
        self._outputs: dict[str, tuple[Problem, dict[str, Array]]] = {}
        self.saw_pallas = False

    def run(self, check: Check, shape: Shape, scope: str) -> CorrectnessCheck:
        worst, note = -1.0, None
        for case in check.cases:
            try:
                problem, outputs = self._compute(case, shape, scope)
            except UnsupportedCell as refusal:
                worst, note = math.inf, f"unsupported: {refusal}"
                break
            judged = {name: x for name, x in outputs.items() if name in check.results}
            worst = max(worst, gate.check(problem, judged).units)
        finite = math.isfinite(worst)
        return CorrectnessCheck(
            name=check.name,
            passed=worst <= 1.0,
            error=worst if finite else None,
            bound=1.0,
            margin=1 / worst if finite and worst > 0 else None,
            note=note,
        )

    def _compute(self, case: Case, shape: Shape, scope: str) -> tuple[Problem, dict[str, Array]]:
        key = repr(case)
        if key not in self._outputs:
            softmax = case.softmax or scope == "softmax"
            draw = softmax_problem if softmax else attention_problem
            problem: Problem = draw(
                replace(shape, **case.changes), self._policy, regime=case.regime, seed=self._seed
            )
            program = programs.of_problem(self._kernel, problem, backward=True)
            pallas = programs.uses_pallas(program)
            programs.refuse_foreign_device(self._cell, jax.devices()[0].platform, pallas=pallas)
            self.saw_pallas = self.saw_pallas or pallas
            outputs = jax.jit(program.function)(*program.inputs.values())
            named = zip(program.results, map(np.asarray, outputs), strict=True)
            self._outputs[key] = problem, dict(named)
        return self._outputs[key]
