"""What a traced program computes and moves, where no formula says what it must.

Of a plain function nothing is known but its program. Its products are counted as they run, a Pallas
kernel's once a grid step; where a branch decides, the lesser side. So this is what the program does
at the least, which a better program may undercut; attention has its own formulas (roofline).
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxprs_in_params


class Counted(NamedTuple):
    """Floating-point operations of the products, and bytes of arguments and results."""

    flops: int
    hbm_bytes: int


def of_program(traced: ClosedJaxpr) -> Counted:
    """Count a traced program: its products, and its arguments and results moved once."""
    avals = [*traced.in_avals, *traced.out_avals]
    moved = sum(prod(aval.shape) * aval.dtype.itemsize for aval in avals)
    return Counted(_flops(traced.jaxpr), moved)


def _flops(jaxpr: Jaxpr) -> int:
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: JaxprEqn) -> int:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left, result = (_shape(v) for v in (equation.invars[0], equation.outvars[0]))
        return 2 * prod(result) * prod(left[axis] for axis in contracted)
    inside = [_flops(inner) for inner in jaxprs_in_params(params)]
    if not inside or name == "while":  # as often as its condition says, perhaps never
        return 0
    if name == "cond":
        return min(inside)
    if name == "scan":
        return int(params["length"]) * sum(inside)
    if name == "pallas_call":
        grid = getattr(params.get("grid_mapping"), "grid", ())
        return prod(size for size in grid if isinstance(size, int)) * sum(inside)
    return sum(inside)


def _shape(value: Any) -> tuple[int, ...]:  # noqa: ANN401 - jax's variables and literals
    return tuple(value.aval.shape)
