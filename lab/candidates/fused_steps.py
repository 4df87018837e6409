"""The sizes and the replaceable steps of the fused kernels; a fault replaces one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jax import Array

from lab.candidates.fused_layout import Index, div


@dataclass(frozen=True)
class Fused:
    """Sizes and steps of the kernels in `fused`; the defaults are right.

    Forward. offset: of the causal diagonal, from T and S. kv_head: which key/value head a query
    head reads, from its number, the group's size and the number of key/value heads. kv_block: the
    index map of key blocks. live: whether a causal program reads a block, from the block's first
    key and the program's last query. tail_visible: whether keys that fill the last block count.
    cleaned: whether hidden keys and values are zeroed. rescale: what becomes of the output when the
    maximum moves. starts: whether a query block starts afresh.
    finishes_when_live: the output is written in the last block read, if there is one.

    Backward. backward_causal, backward_offset: its causal mask. base: of the exponential that
    recomputes the weights, if not e. score_gradient: from P, dP and the row term. add_dq: dQ over
    key blocks. add_dkv: dK, dV over query blocks. group: how many heads of a group are summed.
    dk_scale: the factor of dK, from the scale.
    """

    block_q: int = 16
    block_k: int = 32
    offset: Callable[[int, int], int] = lambda T, S: S - T
    kv_head: Callable[[Index, int, int], Index] = lambda h, group, _kv_heads: div(h, group)
    kv_block: Callable[[Index], Index] = lambda j: j
    live: Callable[[Index, Index], Index] = lambda first_key, last_query: first_key <= last_query
    tail_visible: bool = False
    cleaned: bool = True
    rescale: Callable[[Array, Array], Array] = lambda out, correction: out * correction
    starts: Callable[[Index], Index] = lambda _i: True
    finishes_when_live: bool = False
    backward_causal: bool = True
    backward_offset: Callable[[int, int], int] = lambda T, S: S - T
    base: float | None = None
    score_gradient: Callable[[Array, Array, Array], Array] = lambda p, dp, delta: p * (dp - delta)
    add_dq: Callable[[Array, Array], Array] = lambda total, term: total + term
    add_dkv: Callable[[Array, Array], Array] = lambda total, term: total + term
    group: Callable[[int], int] = lambda group: group
    dk_scale: Callable[[float], float] = lambda scale: scale
