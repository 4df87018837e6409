"""Known-bad: a result is right but for a constant factor near 1, or a small constant added.

Each error is far below what a coarser precision tier would allow an element, and none of it is
rounding: it points one way. The forward pass is right where a gradient is wrong.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from lab.candidates.assembly import Build, Parts, assemble, with_backward
from lab.candidates.gradients import Terms, key_gradient, query_gradient, value_gradient, wrong_in

Change = Callable[[Array], Array]


def _times(factor: float) -> Change:
    return lambda x: x * factor


def _last_head_times(factor: float) -> Change:
    """`[B, H, rows, D]`, the last head of it."""
    return lambda x: (
        x
        * jnp.where(jnp.arange(x.shape[1]) == x.shape[1] - 1, factor, 1.0)
        .reshape(1, -1, 1, 1)
        .astype(x.dtype)
    )


def _plus(constant: float) -> Change:
    return lambda x: x + constant


def _output(change: Change) -> Build:
    """The output changed, and gradients that are right."""

    def forward(
        q: Array, k: Array, v: Array, causal: bool, key_mask: Array | None, scale: float | None
    ) -> Array:
        out = Parts()(q, k, v, causal, key_mask, scale)
        seen = Parts().mask(q.shape[2], k.shape[2], causal, key_mask).any(-1, keepdims=True)
        return jnp.where(seen, change(out), 0)

    return assemble(with_backward(forward, Terms()))


def _dq(change: Change) -> Build:
    return wrong_in(Terms(dq=lambda ds, k, f: change(query_gradient(ds, k, f))))


def _dk(change: Change) -> Build:
    return wrong_in(Terms(dk=lambda ds, q, f: change(key_gradient(ds, q, f))))


def _dv(change: Change) -> Build:
    return wrong_in(Terms(dv=lambda p, do: change(value_gradient(p, do))))


output_gain_101 = _output(_times(1.01))
output_gain_097 = _output(_times(0.97))
output_gain_of_one_head = _output(_last_head_times(1.03))
output_offset = _output(_plus(2.0**-7))
query_gradient_gain_101 = _dq(_times(1.01))
query_gradient_gain_103 = _dq(_times(1.03))
key_gradient_gain_101 = _dk(_times(1.01))
key_gradient_gain_103 = _dk(_times(1.03))
key_gradient_gain_of_one_head = _dk(_last_head_times(0.97))
value_gradient_gain_101 = _dv(_times(1.01))
value_gradient_gain_097 = _dv(_times(0.97))
