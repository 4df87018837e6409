"""What a cell must compute and move at the least, and how long a chip needs for that.

The counts are analytic, because a compiler's are what a kernel's author declared. Causal attention
counts the visible pairs alone; keys hidden by a key mask count as visible, since a mask is data.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from lab.cells.config import Chip
from lab.truth.problems import DtypePolicy, Shape

_BYTES = {"bfloat16": 2, "float32": 4}
# Per visible score: compare, subtract, exp, add, multiply; backward p * (dp - sum(p * dp)) adds
# multiply, add, subtract, multiply.
_SOFTMAX_FLOPS = {"forward": 5, "backward": 9}
# Matrix products over the visible pairs: S and O; a program that gives O, dQ, dK and dV adds dP,
# dV, dQ and dK. A kernel that computes S or P again does more than it must.
_PRODUCTS = {"forward": 2, "backward": 6}


@dataclass(frozen=True)
class Work:
    """The least that a program must do.

    Attributes:
        flops: floating-point operations; in the attention scope those of the matrix products.
        hbm_bytes: its arguments read once and its results written once.
    """

    flops: int
    hbm_bytes: int

    @property
    def intensity_flops_per_byte(self) -> float:
        """Arithmetic intensity."""
        return self.flops / self.hbm_bytes


@dataclass(frozen=True)
class Floor:
    """max(flops / peak, bytes / bandwidth), which of the two it is, and the flops."""

    ms: float
    bound_by: Literal["compute", "memory"]
    flops: int


def visible_pairs(q_len: int, kv_len: int, *, causal: bool) -> int:
    """Query-key pairs of one head, with causality aligned bottom-right."""
    if not causal:
        return q_len * kv_len
    # Row i sees the keys j <= i + kv_len - q_len; the first q_len - kv_len rows may see none.
    rows = min(q_len, kv_len)
    first = kv_len - rows + 1
    return rows * (first + kv_len) // 2


def work(shape: Shape, policy: DtypePolicy, scope: str, direction: str) -> Work:
    """Count a cell's program, as lab/programs.py defines its arguments and results.

    Args:
        shape: sizes and masks.
        policy: gives the dtypes of inputs and outputs.
        scope: `softmax` or `attention`.
        direction: `forward` or `backward`, which gives results and gradients.
    """
    B, H, T, S, D = shape.batch, shape.q_heads, shape.q_len, shape.kv_len, shape.head_dim
    pairs = B * H * visible_pairs(T, S, causal=shape.causal)
    taken, given = _BYTES[policy.input], _BYTES[policy.output]
    padded, backward = shape.padding != "none", direction == "backward"
    if scope == "softmax":
        scores = B * H * T * S
        mask = (B if padded else 1) * T * S
        moved = scores * (taken + 4) + mask  # probabilities leave in float32
        if backward:
            moved += scores * (4 + taken)  # cotangent in, gradient out
        return Work(_SOFTMAX_FLOPS[direction] * pairs, moved)
    q, kv = prod((B, H, T, D)), 2 * prod((B, shape.kv_heads, S, D))
    moved = (q + kv) * taken + q * given + (B * S if padded else 0)
    if backward:
        moved += q * given + (q + kv) * taken
    return Work(_PRODUCTS[direction] * 2 * pairs * D, moved)


def floor(work: Work, chip: Chip) -> Floor:
    """The time below which no program can do the work on this chip.

    The peak is that of bfloat16 products; products of float32 take several of them, so their floor
    lies lower than they can reach.
    """
    compute_ms = work.flops / chip.bf16_tflops * 1e-9
    memory_ms = work.hbm_bytes / chip.hbm_gb_s * 1e-6
    bound_by: Literal["compute", "memory"] = "compute" if compute_ms > memory_ms else "memory"
    return Floor(max(compute_ms, memory_ms), bound_by, work.flops)
