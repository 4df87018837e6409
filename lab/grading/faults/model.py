"""A fault as a float64 model, and the parts such models share.

A model is a function of a call and its intermediates. Forward models (`forward_faults`) return the
wrong `out`; backward models (`backward_faults`) the wrong gradients beside a right `out`. They
model the fault, not any kernel: where a fault depends on a block size, it is tried at the sizes
kernels use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lab.grading.judge.intermediates import masked_weights

if TYPE_CHECKING:
    from lab.grading.executor import Call
    from lab.grading.judge.intermediates import Bool, Float, Intermediates

BLOCKS = (8, 16, 32, 64, 128)
Outputs = dict[str, "Float"]
Index = np.ndarray[Any, np.dtype[np.int_]]
Rule = Callable[[Index, Index, int], "Bool"]  # rows [T, 1], keys [1, S], S - T -> [T, S]
Compute = Callable[["Call", "Intermediates"], "Outputs | None"]


@dataclass(frozen=True)
class Model:
    """One way to be wrong: its fault class, a name, and what it gives (None: not applicable)."""

    fault_class: str
    name: str
    compute: Compute


def attend(
    x: Intermediates,
    *,
    mask: Bool | None = None,
    s: Float | None = None,
    k: Float | None = None,
    v: Float | None = None,
) -> Outputs:
    """Attention with some parts replaced; `k` gives new logits, `s` gives them outright."""
    v = x.v if v is None else v
    if s is None:
        s = x.scale * (x.q @ (x.k if k is None else k).swapaxes(-1, -2))
    mask = x.mask if mask is None else mask
    return {"out": masked_weights(np.where(mask, s, 0.0), mask) @ v}


def raw(call: Call, x: Intermediates) -> tuple[Float, Float]:
    """K and V as given, hidden rows too (non-finite values as 0), repeated over the group."""
    k, v = (np.nan_to_num(a.astype(np.float64), posinf=0, neginf=0) for a in (call.k, call.v))
    return np.repeat(k, x.group, 1), np.repeat(v, x.group, 1)


def lengths(x: Intermediates) -> tuple[int, int]:
    """T and S."""
    return x.q.shape[2], x.k.shape[2]


def keys(call: Call, x: Intermediates) -> Bool:
    """The key mask as `[B or 1, 1, 1, S]`."""
    if call.key_mask is None:
        return np.ones((1, 1, 1, x.k.shape[2]), bool)
    return call.key_mask[:, None, None, :]


def grid(x: Intermediates) -> tuple[Index, Index, int]:
    """Row and key indices, and the offset S - T."""
    T, S = lengths(x)
    return np.arange(T)[:, None], np.arange(S)[None, :], S - T


def seen(call: Call, x: Intermediates) -> Bool:
    """What causality alone lets each row see, `[1, 1, T, S]`."""
    i, j, o = grid(x)
    seen = (j <= i + o) if call.causal else np.ones((len(i), j.shape[1]), bool)
    return seen[None, None]


def shifted(d: int) -> Rule:
    """Causality with the diagonal moved by d keys."""
    return lambda i, j, o: j <= i + o + d


def window(width: int) -> Rule:
    """Causality, and of the keys before only the last `width`."""
    return lambda i, j, o: (j <= i + o) & (j > i + o - width)


def everything(i: Index, j: Index, o: int) -> Bool:  # noqa: ARG001 - a rule
    """No causality: every row sees every key."""
    return np.ones((len(i), j.shape[1]), bool)
