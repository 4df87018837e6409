"""Judge a program's results on query rows drawn at random, against the float64 oracle.

A drawn row is judged with all the keys that it sees, so what a kernel leaves out of it shows. Rows
are drawn in runs, one from each of equal parts of the length, for every key head in turn. Where a
gradient is judged, which every row adds to, one head is drawn and all its rows are judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lab.grading import gate
from lab.grading.gate import Checked
from lab.truth.problems import Array, AttentionProblem, SoftmaxProblem

RUN = 16  # rows; half of them where they see more than LONG keys
LONG = 4096
PARTS = 16
ALL_ROWS_UP_TO = 2**23  # scores: below, every row is judged


@dataclass(frozen=True)
class Judged:
    """The worst finding, and how many rows of how many were judged."""

    worst: Checked
    rows: int
    of: int


def judge(
    problem: AttentionProblem | SoftmaxProblem,
    outputs: Mapping[str, Array],
    draw: np.random.Generator,
) -> Judged:
    """Judge results by name: `p`, `dlogits`, or `out`, `dq`, `dk`, `dv`, those that are there.

    Args:
        problem: the inputs.
        outputs: of the shapes that lab/programs.py gives.
        draw: chooses the rows; it must not be known to who wrote the program.
    """
    first = problem.logits if isinstance(problem, SoftmaxProblem) else problem.q
    batches, heads, rows = first.shape[:3]
    keys = problem.mask.shape[-1] if isinstance(problem, SoftmaxProblem) else problem.k.shape[2]
    total = batches * heads * rows
    infinite = [name for name, array in outputs.items() if not _finite(array)]
    if infinite:
        return Judged(
            Checked(False, np.inf, infinite[0], "element", None, None, None), total, total
        )
    if total * keys <= ALL_ROWS_UP_TO:
        return Judged(gate.check(problem, outputs), total, total)
    pieces = (
        _softmax(problem, outputs, draw)
        if isinstance(problem, SoftmaxProblem)
        else _attention(problem, outputs, draw)
    )
    worst, judged = None, 0
    for piece, part in pieces:
        found = gate.check(piece, part)
        if worst is None or found.units > worst.units:
            worst = found
        judged += int(np.prod(next(iter(part.values())).shape[:3]))
    assert worst is not None
    return Judged(worst, judged, total)


def _softmax(
    problem: SoftmaxProblem, outputs: Mapping[str, Array], draw: np.random.Generator
) -> Iterator[tuple[SoftmaxProblem, dict[str, Array]]]:
    batches, heads, rows = problem.logits.shape[:3]
    for b, h, start, stop in _runs(batches, heads, rows, draw):
        part = np.s_[b : b + 1, h : h + 1, start:stop]
        shared = problem.mask.ndim == 2
        yield (
            replace(
                problem,
                logits=problem.logits[part],
                cotangent=problem.cotangent[part],
                mask=problem.mask[start:stop] if shared else problem.mask[b : b + 1, :, start:stop],
            ),
            {name: array[part] for name, array in outputs.items()},
        )


def _attention(
    problem: AttentionProblem, outputs: Mapping[str, Array], draw: np.random.Generator
) -> Iterator[tuple[AttentionProblem, dict[str, Array]]]:
    batches, q_heads, T = problem.q.shape[:3]
    kv_heads, S = problem.k.shape[1:3]
    group = q_heads // kv_heads
    if set(outputs) != {"out"}:
        runs = iter([(int(draw.integers(batches)), int(draw.integers(kv_heads)), 0, T)])
    else:
        runs = _runs(batches, kv_heads, T, draw, RUN if S <= LONG else RUN // 2)
    for b, h, start, stop in runs:
        # Bottom-right causality: rows up to `stop` see no key from `seen` on.
        seen = S - (T - stop) if problem.causal and set(outputs) == {"out"} else S
        if seen < stop - start:
            continue  # rows that see no key: exactly 0 anyway, or the gate of the whole fails
        queries = np.s_[b : b + 1, h * group : (h + 1) * group, start:stop]
        keys = np.s_[b : b + 1, h : h + 1, :seen]
        yield (
            replace(
                problem,
                q=problem.q[queries],
                k=problem.k[keys],
                v=problem.v[keys],
                key_mask=None if problem.key_mask is None else problem.key_mask[b : b + 1, :seen],
                cotangent=problem.cotangent[queries],
            ),
            {n: a[queries if n in ("out", "dq") else keys] for n, a in outputs.items()},
        )


def _runs(
    batches: int, heads: int, rows: int, draw: np.random.Generator, run: int = RUN
) -> Iterator[tuple[int, int, int, int]]:
    """(batch, head, first row, row after the last): each part and each head at least once."""
    pairs = [(b, h) for b in range(batches) for h in range(heads)]
    draw.shuffle(pairs)
    run, parts = min(run, rows), min(PARTS, -(-rows // run))
    for index in range(max(parts, len(pairs))):
        b, h = pairs[index % len(pairs)]
        low = index % parts * rows // parts
        high = max(low + 1, (index % parts + 1) * rows // parts - run + 1)
        start = min(int(draw.integers(low, high)), rows - run)
        yield b, h, start, start + run


def _finite(array: Array) -> bool:
    """bfloat16, which NumPy does not know by itself, included."""
    return bool(np.isfinite(array.astype(np.float32)).all())
