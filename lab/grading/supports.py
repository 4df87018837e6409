"""What a stranger's kernel says it can do: cases outside of that are coverage, not faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from lab.grading.executor import Call


@dataclass(frozen=True)
class Supports:
    """A candidate's declaration, `candidate.supports` in a configuration.

    Attributes:
        head_dims: the head widths it takes; None for all.
        length_multiple_of: both lengths, T and S, are multiples of this.
        causal: `both`, `causal` (only causal calls) or `full` (only non-causal ones).
        key_mask: whether it takes a key mask.
    """

    head_dims: tuple[int, ...] | None = None
    length_multiple_of: int = 1
    causal: Literal["both", "causal", "full"] = "both"
    key_mask: bool = True


def unsupported(call: Call, supports: Supports) -> str | None:
    """Why the declaration leaves this call out, in one line; None if the call is supported."""
    q_len, head_dim = call.q.shape[2:]
    kv_len, multiple = call.k.shape[2], supports.length_multiple_of
    if supports.head_dims is not None and head_dim not in supports.head_dims:
        allowed = ", ".join(map(str, supports.head_dims))
        return f"head_dim {head_dim} is outside candidate.supports.head_dims ({allowed})"
    if q_len % multiple or kv_len % multiple:
        return f"lengths {q_len} x {kv_len} are no multiples of {multiple} (length_multiple_of)"
    if supports.causal != "both" and call.causal != (supports.causal == "causal"):
        kind = "causal" if call.causal else "non-causal"
        return f"a {kind} call is outside candidate.supports.causal ({supports.causal})"
    if call.key_mask is not None and not supports.key_mask:
        return "a key mask is outside candidate.supports.key_mask (false)"
    return None


def supported(call: Call, supports: Supports) -> bool:
    """Whether the declaration covers this call."""
    return unsupported(call, supports) is None
