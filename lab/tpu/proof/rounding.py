"""Products of float32 as a TPU makes them where no precision is asked for: from bfloat16.

A CPU multiplies in float32 whatever the precision, so a program that asks for none would be judged
by values better than a TPU gives it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

_PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})
_ALL_BITS = 23
_MANTISSA_BITS = {
    lax.Precision.DEFAULT: 7,  # one pass of bfloat16
    lax.Precision.HIGH: 15,  # three passes: of the low halves, all but their product
}


def as_on_tpu(equation: core.JaxprEqn) -> core.JaxprEqn:
    """The equation; a product of float32 below the highest precision with its operands rounded."""
    if equation.primitive.name not in _PRODUCTS:
        return equation
    operands: list[Any] = [variable.aval for variable in equation.invars]
    bits = [
        _bits(equation.params["precision"], side) if aval.dtype == jnp.float32 else _ALL_BITS
        for side, aval in enumerate(operands[:2])
    ]
    if min(bits) == _ALL_BITS:
        return equation
    rounded = jax.jit(partial(_rounded, equation, bits))
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in operands]
    (call,) = jax.make_jaxpr(rounded)(*shapes).jaxpr.eqns
    return call.replace(invars=equation.invars, outvars=equation.outvars)


def _bits(given: Any, side: int) -> int:  # noqa: ANN401 - a precision, a pair or an algorithm
    """Bits of the mantissa that the product takes of an operand."""
    one = given[side] if isinstance(given, tuple) else given
    if one is None:
        one = lax.Precision.DEFAULT
    return _MANTISSA_BITS.get(one, _ALL_BITS)


def _rounded(equation: core.JaxprEqn, bits: list[int], *operands: jax.Array) -> Any:  # noqa: ANN401
    # Not a cast there and back, which XLA may leave out.
    exact = [
        lax.reduce_precision(x, 8, b) if b < _ALL_BITS else x
        for x, b in zip(operands, bits, strict=False)
    ]
    return equation.primitive.bind(*exact, *operands[2:], **equation.params)
