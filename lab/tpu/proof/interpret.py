"""Evaluate a program that was traced for a TPU on the CPU, its Pallas kernels interpreted.

What is evaluated is the traced program itself and not the function that it was traced from, which
could look at the platform, the lengths or the clock and be another program the second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.experimental.pallas import tpu as pltpu
from jax.extend import core
from jax.extend.core import primitives

if TYPE_CHECKING:
    import numpy as np

_KNOWN = frozenset(
    value for value in vars(primitives).values() if isinstance(value, core.Primitive)
)
# Those of JAX that its public list leaves out; neither is lowered by the platform.
_ALSO_KNOWN = frozenset(
    {"pallas_call", "jit", "pjit", "reduce", "split", "square", "clamp", "copy"}
)

# An unrolled kernel is a long program that runs once: to optimise it takes longer than it saves.
_LONG = 200  # operations inside the kernels
_QUICK: dict[str, str | bool] = {
    "xla_backend_optimization_level": "1",
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}


class CannotInterpret(Exception):  # noqa: N818 - it names the finding
    """Why evaluating this program on a CPU would prove nothing: one line."""


def evaluate(traced: core.ClosedJaxpr, arrays: Sequence[np.ndarray[Any, Any]]) -> list[jax.Array]:
    """The results of a traced program on a CPU.

    Args:
        traced: the program that is compiled, with its Pallas kernels.
        arrays: its arguments.

    Raises:
        CannotInterpret: a part of it could be another program on a TPU, or has no interpreter.
    """
    inside = 0
    for equation in _outside_kernels(traced.jaxpr):
        name = equation.primitive.name
        if name == "pallas_call":
            inside += _operations(core.jaxprs_in_params(equation.params))
        if name == "platform_index":
            raise CannotInterpret(
                "the program chooses by the platform (lax.platform_dependent), so what runs on a "
                "TPU cannot be interpreted here"
            )
        if "callback" in name or "ffi" in name:
            raise CannotInterpret(f"the program leaves the device ({name})")
        if equation.primitive not in _KNOWN and name not in _ALSO_KNOWN:
            raise CannotInterpret(
                f"operation {name} is not one of JAX's, and may be lowered by the platform"
            )
    failures = []
    # The plain interpreter first: it runs compiled; the other knows more of a TPU, and is slow.
    for mode in (True, pltpu.InterpretParams()):
        try:
            program = jax.jit(core.jaxpr_as_fun(_with_interpreter(traced, mode)))
            compiled = _compiled(program.lower(*arrays), quickly=inside > _LONG)
            return list(jax.block_until_ready(compiled(*arrays)))
        except Exception as error:  # noqa: BLE001 - whatever the interpreter lacks
            failures.append(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}")
    raise CannotInterpret(f"no interpreter runs it: {failures[0]}")


def _operations(jaxprs: Iterable[core.Jaxpr]) -> int:
    return sum(
        1 + _operations(core.jaxprs_in_params(equation.params))
        for jaxpr in jaxprs
        for equation in jaxpr.eqns
    )


def _compiled(lowered: jax.stages.Lowered, *, quickly: bool) -> jax.stages.Compiled:
    if not quickly:
        return lowered.compile()
    try:
        return lowered.compile(compiler_options=_QUICK)
    except jax.errors.JaxRuntimeError:  # an option that this XLA does not have
        return lowered.compile()


def _outside_kernels(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    """The equations of a program and of what it calls, its Pallas kernels' own left out."""
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name != "pallas_call":
            for inner in core.jaxprs_in_params(equation.params):
                yield from _outside_kernels(inner)


def _with_interpreter(closed: core.ClosedJaxpr, mode: object) -> core.ClosedJaxpr:
    return core.ClosedJaxpr(_rewritten(closed.jaxpr, mode), closed.consts)


def _rewritten(jaxpr: core.Jaxpr, mode: object) -> core.Jaxpr:
    return jaxpr.replace(
        eqns=[
            equation.replace(
                params={**equation.params, "interpret": mode}
                if equation.primitive.name == "pallas_call"
                else {name: _inside(value, mode) for name, value in equation.params.items()}
            )
            for equation in jaxpr.eqns
        ]
    )


def _inside(value: Any, mode: object) -> Any:  # noqa: ANN401 - a parameter may be anything
    if isinstance(value, core.ClosedJaxpr):
        return _with_interpreter(value, mode)
    if isinstance(value, core.Jaxpr):
        return _rewritten(value, mode)
    if isinstance(value, tuple) and any(
        isinstance(v, core.ClosedJaxpr | core.Jaxpr) for v in value
    ):
        return tuple(_inside(v, mode) for v in value)
    return value
