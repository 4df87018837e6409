"""Answers that ignore the question: a case that lets one of them pass proves nothing.

Zeros, the mean of V, the first V, V shuffled. Each must fail the gates of every case, else the
case has no points (at that tier: a bound grows with the roundings it allows).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lab.grading.executor import Answer
from lab.grading.judge.numeric import holds

if TYPE_CHECKING:
    from lab.grading.judge.numeric import Reference
    from lab.truth.problems import Array

NAMES = ("zeros", "mean_v", "first_v", "shuffled_v")


def null_answers(reference: Reference) -> dict[str, Answer]:
    """The null answers of a problem, in its dtypes; gradients are zeros in all of them."""
    q, k, v = reference.call.q, reference.call.k, reference.call.v
    inside = reference.inside
    T, S = q.shape[2], k.shape[2]
    values = inside.v  # repeated over the group, hidden rows zeroed
    spread = np.broadcast_to(values.mean(2, keepdims=True), q.shape)
    order = np.random.default_rng(0).permutation(T) % S
    outs = {
        "zeros": np.zeros(q.shape),
        "mean_v": spread,
        "first_v": np.broadcast_to(values[:, :, :1], q.shape),
        "shuffled_v": values[:, :, order],
    }
    return {name: _answer(outs[name], (q, k, v), reference) for name in NAMES}


def passing(reference: Reference, tier: str) -> list[str]:
    """The null answers this problem fails to reject, `name/output`; empty if it can fail."""
    key = ("null answers", tier)
    if key not in reference.memory:
        reference.memory[key] = _passing(reference, tier)
    return list(reference.memory[key])


def _passing(reference: Reference, tier: str) -> list[str]:
    passed: list[str] = []
    for name, answer in null_answers(reference).items():
        for output in ("out", "dq", "dk", "dv") if name == "zeros" else ("out",):
            survives = holds(getattr(answer, output), reference, tier, output)
            passed += [f"{name}/{output}"] * survives
    return passed


def _answer(out: Array, inputs: tuple[Array, Array, Array], reference: Reference) -> Answer:
    dq, dk, dv = (np.zeros_like(x) for x in inputs)
    dtype = reference.problem.policy.output
    return Answer("ok", out.astype(dtype), dq, dk, dv)
