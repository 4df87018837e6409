"""What a kernel says it can do: cases outside of that are coverage, not faults."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from lab.cells.config import Supports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.grading.cases import Case
    from lab.grading.executor import Call

MAX_FITTED_PRODUCTS = 1 << 28  # B * Hq * T * S * D


_WHOLE_LANES = Supports(head_dims=[128, 256], length_multiple_of=128, key_mask=False)
KERNELS = {"jax_flash": _WHOLE_LANES, "jax_splash": _WHOLE_LANES, "tokamax": _WHOLE_LANES}
"""The lab's kernels with limits that cases can be fitted to; see `lab.kernels.peers.limits`."""

TIER_OF_KERNEL = {"jax_splash": "bf16_scores"}
"""Splash has no scale: queries are scaled, and rounded once more, before they meet the keys."""


def unsupported(call: Call, supports: Supports) -> str | None:
    """Why the declaration leaves this call out, in one line; None if the call is supported."""
    q_len, head_dim = call.q.shape[2:]
    kv_len, masked = call.k.shape[2], call.key_mask is not None
    return _reason(q_len, kv_len, head_dim, supports, causal=call.causal, masked=masked)


def supported(call: Call, supports: Supports) -> bool:
    """Whether the declaration covers this call."""
    return unsupported(call, supports) is None


def fit(cases: Sequence[Case], supports: Supports) -> tuple[Case, ...]:
    """The cases, made to fit a declaration as far as they can be without losing their point.

    Lengths are rounded up to the multiple, a head width becomes the nearest declared one, and for
    a kernel that is always causal a case is made causal: so a kernel with such needs is still asked
    about grouped heads, padding and the rest. What does not fit then (a causal case for a kernel
    that is never causal, a key mask where none is taken) stays, to be listed as coverage, and is
    no part of the minimum core.
    """
    return tuple(_fit(case, supports) for case in cases)


def _fit(case: Case, supports: Supports) -> Case:
    shape, multiple = case.shape, supports.length_multiple_of
    widths = supports.head_dims or (shape.head_dim,)
    shape = replace(
        shape,
        q_len=math.ceil(shape.q_len / multiple) * multiple,
        kv_len=math.ceil(shape.kv_len / multiple) * multiple,
        head_dim=min(widths, key=lambda width: abs(width - shape.head_dim)),
        causal=shape.causal or supports.causal == "causal",
    )
    products = shape.batch * shape.q_heads * shape.q_len * shape.kv_len * shape.head_dim
    # Few queries rounded up are few no more: such a case has lost its point.
    if products > MAX_FITTED_PRODUCTS or (
        case.check == "decode" and shape.q_len != case.shape.q_len
    ):
        shape = case.shape
    masked = shape.padding != "none"
    sizes = (shape.q_len, shape.kv_len, shape.head_dim)
    covered = _reason(*sizes, supports, causal=shape.causal, masked=masked) is None
    return replace(case, shape=shape, core=case.core and covered)


def _reason(
    q_len: int, kv_len: int, head_dim: int, supports: Supports, *, causal: bool, masked: bool
) -> str | None:
    multiple = supports.length_multiple_of
    if supports.head_dims is not None and head_dim not in supports.head_dims:
        allowed = ", ".join(map(str, supports.head_dims))
        return f"head_dim {head_dim} is outside candidate.supports.head_dims ({allowed})"
    if q_len % multiple or kv_len % multiple:
        return f"lengths {q_len} x {kv_len} are no multiples of {multiple} (length_multiple_of)"
    if supports.causal != "both" and causal != (supports.causal == "causal"):
        kind = "causal" if causal else "non-causal"
        return f"a {kind} call is outside candidate.supports.causal ({supports.causal})"
    if masked and not supports.key_mask:
        return "a key mask is outside candidate.supports.key_mask (false)"
    return None
