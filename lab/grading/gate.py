"""The gate before timing: a program's results on its own inputs, against the float64 oracle.

Long problems are judged in slices that fit a laptop's memory. A slice is a problem of its own: one
batch entry and one key/value head with its query heads, and, where no gradient is judged, a run of
query rows with the keys up to the last one that causality lets them see.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lab.grading.executor import Answer
from lab.grading.findings import Finding
from lab.grading.judge import numeric
from lab.grading.judge.tiers import DECLARED
from lab.records.benchmark import Gate
from lab.truth.problems import Array, AttentionProblem, SoftmaxProblem

ROWS_PER_SLICE = 512


@dataclass(frozen=True)
class Checked:
    """The worst finding of a gate; `units` is its error in units of the bound, inf for NaN."""

    passed: bool
    units: float
    output: str
    gate: str
    batch: int | None
    head: int | None
    row: int | None

    def record(self) -> Gate:
        """The `gate` of a benchmark section."""
        return Gate(
            passed=self.passed,
            error=self.units if math.isfinite(self.units) else None,
            bound=1.0,
            measure="worst error in units of the rounding bound (lab/grading/judge/budgets.py)",
        )

    def describe(self) -> str:
        """One line: how wrong, and where."""
        size = f"{self.units:.3g} times its bound" if math.isfinite(self.units) else "not finite"
        return (
            f"{self.output} is {size} (batch {self.batch}, head {self.head}, row {self.row}; "
            f"gate {self.gate})"
        )


def check(problem: AttentionProblem | SoftmaxProblem, outputs: Mapping[str, Array]) -> Checked:
    """Judge results by name: `p`, `dlogits`, or `out`, `dq`, `dk`, `dv`, those that are there.

    Arrays have the shapes that `lab/programs.py` gives; the tier is the dtype policy's own.
    """
    if isinstance(problem, SoftmaxProblem):
        expected = (problem.logits.shape, "p", "float32")
        findings = _softmax(problem, outputs) if _fits(outputs, *expected) else iter(())
    else:
        expected = (problem.q.shape, "out", problem.policy.output)
        findings = _attention(problem, outputs) if _fits(outputs, *expected) else iter(())
    worst = max(findings, key=lambda finding: finding.units, default=None)
    if worst is None:
        what = f"{expected[1]} (wrong shape or dtype)"
        return Checked(False, math.inf, what, "contract", None, None, None)
    return Checked(
        worst.passed, worst.units, worst.output, worst.gate, worst.batch, worst.head, worst.row
    )


def _fits(outputs: Mapping[str, Array], shape: tuple[int, ...], name: str, dtype: str) -> bool:
    """A gradient has its operand's shape by construction (`jax.vjp`); the result may have any."""
    found = outputs.get(name)
    return found is None or (found.shape == shape and str(found.dtype) == dtype)


def _softmax(problem: SoftmaxProblem, outputs: Mapping[str, Array]) -> Iterator[Finding]:
    batches, heads = problem.logits.shape[:2]
    gradient = outputs.get("dlogits")
    for b, h in np.ndindex(batches, heads):
        part = np.s_[b : b + 1, h : h + 1]
        piece = replace(
            problem,
            logits=problem.logits[part],
            cotangent=problem.cotangent[part],
            mask=problem.mask if problem.mask.ndim == 2 else problem.mask[b : b + 1],
        )
        judged = numeric.judge_softmax(
            outputs["p"][part], None if gradient is None else gradient[part], piece
        )
        for finding in judged:
            yield replace(finding, batch=b, head=h)


def _attention(problem: AttentionProblem, outputs: Mapping[str, Array]) -> Iterator[Finding]:
    names = [name for name in ("out", "dq", "dk", "dv") if name in outputs]
    tier = DECLARED[problem.policy.name]
    batches, q_heads, T = problem.q.shape[:3]
    kv_heads, S = problem.k.shape[1:3]
    group = q_heads // kv_heads
    rows = ROWS_PER_SLICE if names == ["out"] else T
    for b, h in np.ndindex(batches, kv_heads):
        for start in range(0, T, rows):
            stop = min(start + rows, T)
            queries = np.s_[b : b + 1, h * group : (h + 1) * group, start:stop]
            # Bottom-right causality: rows up to `stop` see no key from `seen` on.
            seen = S - (T - stop) if problem.causal and names == ["out"] else S
            if seen < 1:
                yield _all_zero(outputs["out"][queries], b, h * group, start)
                continue
            keys = np.s_[b : b + 1, h : h + 1, :seen]
            piece = replace(
                problem,
                q=problem.q[queries],
                k=problem.k[keys],
                v=problem.v[keys],
                key_mask=None if problem.key_mask is None else problem.key_mask[b : b + 1, :seen],
                cotangent=problem.cotangent[queries],
            )
            part = {n: outputs[n][queries if n in ("out", "dq") else keys] for n in names}
            answer = Answer("ok", part.get("out"), part.get("dq"), part.get("dk"), part.get("dv"))
            for finding in numeric.judge_attention(answer, piece, tier, outputs=names):
                first_head = h if finding.output in ("dk", "dv") else h * group
                yield replace(
                    finding,
                    batch=b,
                    head=first_head + (finding.head or 0),
                    row=start + (finding.row or 0),
                )


def _all_zero(out: Array, batch: int, head: int, row: int) -> Finding:
    """Rows that see no key are exactly 0."""
    zero = not np.any(out.astype(np.float64))
    units = 0.0 if zero else math.inf
    return Finding("all_masked_row", "element", "", "out", zero, units, batch, head, row)
