"""Whether a cell's compiled program gives the right values; runs in a process of its own."""

from __future__ import annotations

import math
import resource
import secrets
import time

import numpy as np

from lab import programs
from lab.cells.cell import Cell
from lab.records import CompileProof
from lab.tpu.compile import child
from lab.tpu.proof.interpret import CannotInterpret, evaluate
from lab.tpu.proof.sample import judge
from lab.truth.problems import attention_problem, softmax_problem

SOFT_MARGIN_S = 5  # between SIGXCPU and SIGKILL


def prove_cell(cell: Cell, cpu_limit_s: int) -> CompileProof:
    """Trace a cell's program for the TPU once, evaluate what was traced, judge it; worker entry.

    The inputs and the rows that are judged are drawn after the program was traced.

    Args:
        cell: whose program.
        cpu_limit_s: seconds of CPU time after which this process ends itself.

    Returns:
        with the `fingerprint` of what was traced, which the compiled program's must equal.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit_s, cpu_limit_s + SOFT_MARGIN_S))
    start = time.perf_counter()
    device, _ = child.described_device(cell)
    with child.as_on(device):
        traced = child.trace(cell, device)
        fingerprint = child.fingerprint(traced.lower().as_text())
    seed = secrets.randbits(31)
    draw = softmax_problem if cell.config.scope.name == "softmax" else attention_problem
    problem = draw(cell.problem_shape(), cell.policy(), regime=cell.config.regime, seed=seed)
    backward = cell.config.direction == "backward"
    inputs, names = programs.inputs_and_results(problem, backward=backward)
    try:
        results = evaluate(traced.jaxpr, list(inputs.values()))
    except CannotInterpret as error:
        return CompileProof(proved=None, reason=str(error), fingerprint=fingerprint)
    outputs = dict(zip(names, map(np.asarray, results), strict=True))
    judged = judge(problem, outputs, np.random.default_rng(secrets.randbits(128)))
    worst = judged.worst
    return CompileProof(
        proved=worst.passed,
        reason=None if worst.passed else worst.describe(),
        fingerprint=fingerprint,
        seed=seed,
        rows=judged.rows,
        of_rows=judged.of,
        error=worst.units if math.isfinite(worst.units) else None,
        seconds=round(time.perf_counter() - start, 3),
    )
