"""Whether a cell's compiled program gives the right values; runs in a process of its own."""

from __future__ import annotations

import math
import resource
import secrets
import time
from typing import Any

import numpy as np

from lab import programs
from lab.cells.cell import Cell
from lab.cells.config import from_plain
from lab.tpu.compile import child
from lab.tpu.proof.interpret import CannotInterpret, evaluate
from lab.tpu.proof.sample import judge
from lab.truth.problems import attention_problem, softmax_problem

SOFT_MARGIN_S = 5  # between SIGXCPU and SIGKILL


def prove_cell(payload: dict[str, Any]) -> dict[str, Any]:
    """Trace a cell's program for the TPU once, evaluate what was traced, judge it; worker entry.

    The inputs and the rows that are judged are drawn after the program was traced.

    Args:
        payload: `config`, a cell's plain configuration; `cpu_limit_s`, after which this process
            ends itself.

    Returns:
        `proved`: whether, or None with a `reason`; `fingerprint` of what was traced, which the
        compiled program's must equal; `seed`, `rows`, `of_rows`, `error` (in units of the rounding
        bound, None for NaN), `seconds`.
    """
    limit = int(payload["cpu_limit_s"])
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + SOFT_MARGIN_S))
    start = time.perf_counter()
    cell = Cell(from_plain(payload["config"]))
    device, _ = child.described_device(cell)
    with child.as_on(device):
        traced = child.trace(cell, device)
        answer: dict[str, Any] = {"fingerprint": child.fingerprint(traced.lower().as_text())}
    seed = secrets.randbits(31)
    draw = softmax_problem if cell.config.scope.name == "softmax" else attention_problem
    problem = draw(cell.problem_shape(), cell.policy(), regime=cell.config.regime, seed=seed)
    backward = cell.config.direction == "backward"
    inputs, names = programs.inputs_and_results(problem, backward=backward)
    try:
        results = evaluate(traced.jaxpr, list(inputs.values()))
    except CannotInterpret as error:
        return {**answer, "proved": None, "reason": str(error)}
    outputs = dict(zip(names, map(np.asarray, results), strict=True))
    judged = judge(problem, outputs, np.random.default_rng(secrets.randbits(128)))
    worst = judged.worst
    return {
        **answer,
        "proved": worst.passed,
        "reason": None if worst.passed else worst.describe(),
        "seed": seed,
        "rows": judged.rows,
        "of_rows": judged.of,
        "error": worst.units if math.isfinite(worst.units) else None,
        "seconds": round(time.perf_counter() - start, 3),
    }
