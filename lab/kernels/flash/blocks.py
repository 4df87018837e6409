"""Sizes of the forward kernel's blocks, and those a shape gets that was never tuned."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lab.kernels.sizes import LANES, round_up

MAX_HEADS = 8
"""Heads of a group that are packed into one block; a larger group takes several."""

TARGET_SCORES = 1 << 20
"""Scores of a step of the loop over keys: 4,096 cycles of v5e's matrix units at head_dim 128."""


@dataclass(frozen=True)
class Blocks:
    """Sizes of the forward kernel's blocks.

    Attributes:
        block_q: queries of a block, a multiple of 128; each head of the group has as many.
        block_k: keys of a step, a multiple of 128.
        lookahead: query tiles whose scores are computed a step early, so that the matrix units
            work while the vector units take the maximum and the exponential.
    """

    block_q: int
    block_k: int
    lookahead: int = 6


def packed_heads(group: int) -> int:
    """Query heads of a group that share a block."""
    return max(n for n in range(1, MAX_HEADS + 1) if group % n == 0)


def default_blocks(
    q_len: int, kv_len: int, group: int, *, causal: bool, element_bytes: int = 2
) -> Blocks:
    """Blocks by shape class: about TARGET_SCORES a step, and little padding.

    In fp32 a product takes six passes, each of them code: blocks are smaller there.
    """
    target = TARGET_SCORES if element_bytes <= 2 else TARGET_SCORES // 8
    heads = packed_heads(group)
    longest = (512 if heads > 2 else 1024) // (1 if element_bytes <= 2 else 2)
    block_q = min(longest, round_up(q_len, LANES))
    blocks = math.ceil(q_len / block_q)
    block_q = round_up(math.ceil(q_len / blocks), LANES)
    tiles = block_q // LANES
    most = max(1, target // (heads * block_q * LANES))
    if not causal:
        most = min(most, math.ceil(kv_len / LANES))
    block_k = max(n for n in range(1, tiles + 1) if tiles % n == 0 and n <= max(most, 1)) * LANES
    return Blocks(block_q, block_k)
