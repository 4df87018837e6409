"""Evaluate a program that was traced for a TPU on the CPU, its Pallas kernels interpreted.

What is evaluated is the traced program itself and not the function that it was traced from, which
could look at the platform, the lengths or the clock and be another program the second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
from jax.experimental.pallas import tpu as pltpu
from jax.extend import core
from jax.extend.core import primitives

from lab.tpu.proof import hazards
from lab.tpu.proof.rounding import as_on_tpu
from lab.truth.problems import Array

_KNOWN = frozenset(
    value for value in vars(primitives).values() if isinstance(value, core.Primitive)
)
# Those of JAX that its public list leaves out; neither is lowered by the platform.
_ALSO_KNOWN = frozenset(
    {"pallas_call", "jit", "pjit", "reduce", "split", "square", "clamp", "copy"}
)

_REVISITED = (
    "a kernel leaves a block of its output{} and comes back to it, and a TPU does not read such a "
    "block again: put the grid axes that keep the block last"
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


def evaluate(traced: core.ClosedJaxpr, arrays: Sequence[Array]) -> list[jax.Array]:
    """The results of a traced program on a CPU.

    Args:
        traced: the program that is compiled, with its Pallas kernels.
        arrays: its arguments.

    Raises:
        CannotInterpret: a part of it could be another program on a TPU, or has no interpreter.
    """
    kernels = []
    for equation in _outside_kernels(traced.jaxpr):
        name = equation.primitive.name
        if name == "pallas_call":
            kernels.append(equation.params)
            _refuse_revisits(equation.params)
        if getattr(equation.ctx, "compute_type", None):
            raise CannotInterpret("part of the program runs on the host (compute_on)")
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
    inside = sum(_operations(core.jaxprs_in_params(params)) for params in kernels)
    failures = []
    for mode in _modes(kernels):
        try:
            program = jax.jit(core.jaxpr_as_fun(_with_interpreter(traced, mode)))
            compiled = _compiled(program.lower(*arrays), quickly=inside > _LONG)
            return list(jax.block_until_ready(compiled(*arrays)))
        except Exception as error:  # noqa: BLE001 - whatever the interpreter lacks
            if "Revisited block" in str(error):
                raise CannotInterpret(_REVISITED.format("")) from None
            failures.append(f"{type(error).__name__}: {_said(error)[:200]}")
    raise CannotInterpret(f"no interpreter runs it: {failures[0]}")


def _modes(kernels: Sequence[dict[str, Any]]) -> list[object]:
    """Interpreters to try in turn.

    The plain one runs compiled. The other is slow, makes a copy no sooner than it is waited for,
    and sees that a block of an output is left and come back to.
    """
    slow = pltpu.InterpretParams(dma_execution_mode="on_wait")
    if any(map(hazards.copies_itself, kernels)):
        return [slow]
    return [slow, True] if any(map(hazards.steered, kernels)) else [True, slow]


def _refuse_revisits(params: dict[str, Any]) -> None:
    output = hazards.left_and_revisited(params)
    if output is not None:
        raise CannotInterpret(_REVISITED.format(f" {output}"))


def _said(error: Exception) -> str:
    """The line that says what went wrong: of an error inside a callback, its last."""
    lines = str(error).strip().splitlines() or [""]
    return lines[-1] if "callback" in lines[0] else lines[0]


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
        eqns=[as_on_tpu(e.replace(params=_params(e, mode))) for e in jaxpr.eqns],
    )


def _params(equation: core.JaxprEqn, mode: object) -> dict[str, Any]:
    params = {name: _inside(value, mode) for name, value in equation.params.items()}
    return params | ({"interpret": mode} if equation.primitive.name == "pallas_call" else {})


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
