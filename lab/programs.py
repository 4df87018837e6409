"""The program of a cell: the function that is timed or compiled, and the arrays it takes.

scope      direction   arrays                            results
softmax    forward     logits, mask                      p
softmax    backward    logits, mask, cotangent           p, dlogits
attention  forward     q, k, v[, key_mask]               out
attention  backward    q, k, v[, key_mask], cotangent    out, dq, dk, dv
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import jax

from lab import candidates, kernels
from lab.cells import Cell
from lab.errors import UnsupportedCell
from lab.kernels import Attention, Kernel
from lab.problems import AttentionProblem, SoftmaxProblem, attention_problem, softmax_problem

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Program:
    """A function of positional arrays, and its inputs by name, in that order."""

    function: Callable[..., tuple[jax.Array, ...]]
    inputs: dict[str, np.ndarray[Any, Any]]
    results: tuple[str, ...]
    problem: AttentionProblem | SoftmaxProblem


def uses_pallas(program: Program) -> bool:
    """Whether any Pallas kernel is in the program, as opposed to XLA alone."""
    traced = jax.make_jaxpr(program.function)(*program.inputs.values())
    return "pallas_call[" in str(traced)


def implementation(cell: Cell, *, interpret: kernels.Interpret) -> Kernel:
    """What is under test: the candidate, or the kernel if the candidate is `reference`.

    Raises:
        UnsupportedCell: a candidate in the softmax scope; candidates implement attention.
    """
    config = cell.config
    if config.candidate.name == "reference":
        return kernels.load(config.kernel, policy=cell.policy(), interpret=interpret)
    attention = load_candidate(cell, interpret=interpret)

    def no_softmax(logits: jax.Array, mask: jax.Array) -> jax.Array:  # noqa: ARG001
        raise UnsupportedCell(
            f"candidate {config.candidate.name} implements attention, not the masked softmax; "
            "use scope=attention"
        )

    return Kernel(config.candidate.name, no_softmax, attention)


def load_candidate(cell: Cell, *, interpret: kernels.Interpret) -> Attention:
    """The attention function of the configured candidate, a stranger's file included."""
    candidate = cell.config.candidate
    if candidate.kind == "custom":
        from lab.candidates.custom import load_file

        return load_file(candidate.path, candidate.function)
    return candidates.load(asdict(candidate), policy=cell.policy(), interpret=bool(interpret))


def build(cell: Cell, *, interpret: kernels.Interpret) -> Program:
    """The program of a cell on its own inputs."""
    kernel = implementation(cell, interpret=interpret)
    config = cell.config
    backward = config.direction == "backward"
    shape, policy = cell.problem_shape(), cell.policy()
    if config.scope.name == "softmax":
        problem = softmax_problem(shape, policy, regime=config.regime, seed=config.seed)
        inputs = {"logits": problem.logits, "mask": problem.mask}
        if backward:
            inputs["cotangent"] = problem.cotangent
        return Program(_softmax(kernel, backward=backward), inputs, ("p", "dlogits"), problem)
    asked = attention_problem(shape, policy, regime=config.regime, seed=config.seed)
    arrays = {"q": asked.q, "k": asked.k, "v": asked.v, "key_mask": asked.key_mask}
    if backward:
        arrays["cotangent"] = asked.cotangent
    return Program(
        _attention(kernel.attention, asked, backward=backward),
        {name: array for name, array in arrays.items() if array is not None},
        ("out", "dq", "dk", "dv"),
        asked,
    )


def _softmax(kernel: Kernel, *, backward: bool) -> Callable[..., tuple[jax.Array, ...]]:
    def forward(logits: jax.Array, mask: jax.Array) -> tuple[jax.Array, ...]:
        return (kernel.masked_softmax(logits, mask),)

    def both(logits: jax.Array, mask: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, ...]:
        p, pullback = jax.vjp(lambda x: kernel.masked_softmax(x, mask), logits)
        return (p, *pullback(cotangent))

    return both if backward else forward


def _attention(
    attention: Attention, problem: AttentionProblem, *, backward: bool
) -> Callable[..., tuple[jax.Array, ...]]:
    has_key_mask = problem.key_mask is not None

    def function(q: jax.Array, k: jax.Array, v: jax.Array, *rest: jax.Array) -> tuple[Any, ...]:
        key_mask = rest[0] if has_key_mask else None

        def forward(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            return attention(q, k, v, causal=problem.causal, key_mask=key_mask, scale=problem.scale)

        if not backward:
            return (forward(q, k, v),)
        out, pullback = jax.vjp(forward, q, k, v)
        return (out, *pullback(rest[-1]))

    return function
