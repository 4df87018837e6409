"""The program of a cell: the function that is timed or compiled, and the arrays it takes.

scope      direction   arrays                            results
softmax    forward     logits, mask                      p
softmax    backward    logits, mask, cotangent           p, dlogits
attention  forward     q, k, v[, key_mask]               out
attention  backward    q, k, v[, key_mask], cotangent    out, dq, dk, dv
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import jax
from jax.experimental.pallas import tpu as pltpu

from lab import candidates, kernels
from lab.cells.cell import Cell
from lab.errors import UnsupportedCell, UserError
from lab.kernels import Attention, Kernel
from lab.truth.problems import (
    Array,
    AttentionProblem,
    SoftmaxProblem,
    attention_problem,
    softmax_problem,
)

if TYPE_CHECKING:
    pass


ArrayType: TypeAlias = tuple[tuple[int, ...], str]  # shape and dtype name


@dataclass(frozen=True)
class Program:
    """A function of positional arrays, and its inputs by name, in that order."""

    function: Callable[..., tuple[jax.Array, ...]]
    inputs: dict[str, Array]
    results: tuple[str, ...]
    problem: AttentionProblem | SoftmaxProblem


def uses_pallas(program: Program) -> bool:
    """Whether any Pallas kernel is in the program, as opposed to XLA alone."""
    traced = jax.make_jaxpr(program.function)(*program.inputs.values())
    return "pallas_call[" in str(traced)


def refuse_foreign_device(cell: Cell, platform: str, *, pallas: bool) -> None:
    """Refuse the lab's own Pallas kernels where they are neither compiled nor interpreted.

    Raises:
        UnsupportedCell: they are TPU kernels; a stranger's Pallas kernel may be a GPU's.
    """
    if pallas and platform not in ("cpu", "tpu") and cell.config.candidate.kind != "custom":
        raise UnsupportedCell(
            f"kernel {cell.config.kernel['name']} is a TPU kernel: it runs on a TPU, and on a CPU "
            f"interpreted, not on {platform}"
        )


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
        from lab.candidates.custom import CandidateFileError, load_file

        if candidate.path is None or candidate.function is None:
            raise UserError(
                "candidate=custom needs candidate.path=FILE and candidate.function=NAME"
            )
        try:
            found = cast("Attention", load_file(candidate.path, candidate.function))
            return _interpreted(found) if interpret else found
        except CandidateFileError as error:
            raise UserError(f"candidate.path={candidate.path}: {error}") from None
    loaded = candidates.load(asdict(candidate), policy=cell.policy(), interpret=bool(interpret))
    return cast("Attention", loaded)


def _interpreted(attention: Attention) -> Attention:
    """The same function, its Pallas TPU kernels interpreted whatever they ask for."""

    @functools.wraps(attention)
    def called(*args: Any, **kwargs: Any) -> jax.Array:  # noqa: ANN401 - passed on as they come
        with pltpu.force_tpu_interpret_mode():
            return attention(*args, **kwargs)

    return called


def build(cell: Cell, *, interpret: kernels.Interpret) -> Program:
    """The program of a cell on its own inputs."""
    kernel = implementation(cell, interpret=interpret)
    config = cell.config
    draw = softmax_problem if config.scope.name == "softmax" else attention_problem
    problem = draw(cell.problem_shape(), cell.policy(), regime=config.regime, seed=config.seed)
    return of_problem(kernel, problem, backward=config.direction == "backward")


def of_problem(
    kernel: Kernel, problem: AttentionProblem | SoftmaxProblem, *, backward: bool
) -> Program:
    """The program that runs `kernel` on `problem`."""
    if isinstance(problem, SoftmaxProblem):
        called = _softmax(kernel, backward=backward)
    else:
        called = _attention(
            kernel.attention,
            causal=problem.causal,
            has_key_mask=problem.key_mask is not None,
            backward=backward,
        )
    return Program(called, *inputs_and_results(problem, backward=backward), problem)


def inputs_and_results(
    problem: AttentionProblem | SoftmaxProblem, *, backward: bool
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The arrays that a problem's program takes, by name, and the names of its results."""
    if isinstance(problem, SoftmaxProblem):
        arrays = {"logits": problem.logits, "mask": problem.mask}
        results: tuple[str, ...] = ("p", "dlogits")
    else:
        arrays = {"q": problem.q, "k": problem.k, "v": problem.v}
        if problem.key_mask is not None:
            arrays["key_mask"] = problem.key_mask
        results = ("out", "dq", "dk", "dv")
    if backward:
        arrays["cotangent"] = problem.cotangent
    return arrays, results if backward else results[:1]


def function(cell: Cell, *, interpret: kernels.Interpret) -> Callable[..., tuple[jax.Array, ...]]:
    """The function of a cell, of positional arrays in the order of `input_types`."""
    kernel = implementation(cell, interpret=interpret)
    backward = cell.config.direction == "backward"
    if cell.config.scope.name == "softmax":
        return _softmax(kernel, backward=backward)
    shape = cell.problem_shape()
    return _attention(
        kernel.attention,
        causal=shape.causal,
        has_key_mask=shape.padding != "none",
        backward=backward,
    )


def compiled_function(cell: Cell) -> tuple[dict[str, ArrayType], Callable[..., Any]]:
    """What task=compile compiles: its arrays by name, and the function of them in that order."""
    candidate = cell.config.candidate
    if candidate.contract == "attention":
        return input_types(cell), function(cell, interpret=False)
    arrays = {n: (tuple(map(int, sizes)), str(d)) for n, (d, *sizes) in candidate.arguments.items()}
    from lab.candidates.custom import CandidateFileError, load_file

    assert candidate.path is not None
    assert candidate.function is not None
    try:
        found = load_file(candidate.path, candidate.function, called_as=None)
    except CandidateFileError as error:
        raise UserError(f"candidate.path={candidate.path}: {error}") from None
    return arrays, functools.partial(found, **(candidate.options or {}))


def input_types(cell: Cell) -> dict[str, ArrayType]:
    """Shape and dtype of each array of a cell's program, by name, without drawing any values."""
    shape, policy = cell.problem_shape(), cell.policy()
    B, T, S, D = shape.batch, shape.q_len, shape.kv_len, shape.head_dim
    backward = cell.config.direction == "backward"
    padded = shape.padding != "none"
    if cell.config.scope.name == "softmax":
        scores = (B, shape.q_heads, T, S)
        arrays: dict[str, ArrayType] = {
            "logits": (scores, policy.input),
            "mask": ((B, 1, T, S) if padded else (T, S), "bool"),
        }
        return {**arrays, "cotangent": (scores, "float32")} if backward else arrays
    keys = ((B, shape.kv_heads, S, D), policy.input)
    arrays = {"q": ((B, shape.q_heads, T, D), policy.input), "k": keys, "v": keys}
    if padded:
        arrays["key_mask"] = ((B, S), "bool")
    if backward:
        arrays["cotangent"] = ((B, shape.q_heads, T, D), policy.output)
    return arrays


def _softmax(kernel: Kernel, *, backward: bool) -> Callable[..., tuple[jax.Array, ...]]:
    def forward(logits: jax.Array, mask: jax.Array) -> tuple[jax.Array, ...]:
        return (kernel.masked_softmax(logits, mask),)

    def both(logits: jax.Array, mask: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, ...]:
        p, pullback = _vjp(lambda x: kernel.masked_softmax(x, mask), logits)
        return (p, *pullback(cotangent))

    return both if backward else forward


def _vjp(forward: Callable[..., jax.Array], *arrays: jax.Array) -> tuple[Any, Callable[..., Any]]:
    """The result and its pullback.

    Raises:
        UnsupportedCell: jax knows no gradient of what the kernel does.
    """
    try:
        return jax.vjp(forward, *arrays)
    except (AssertionError, NotImplementedError, ValueError) as error:
        # jax says so in these ways: a bare assertion among them.
        said = str(error).partition(".")[0]
        origin = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        bare = not isinstance(error, ValueError) and Path(jax.__file__).parent in origin.parents
        if not bare and not said.startswith("Linearization failed"):
            raise
        raise UnsupportedCell(
            "it has no gradients: jax cannot differentiate a pallas_call by itself "
            f"({type(error).__name__}{': ' if said else ''}{said}); give the kernel a "
            "jax.custom_vjp, or use direction=forward"
        ) from error


def _require_contract(out: object, q: jax.Array) -> None:
    """One array like q: something else would be timed or compiled as what it is not."""
    if not isinstance(out, jax.Array):
        raise TypeError(f"attention returned {type(out).__name__}; it must return one array like q")
    if out.shape != q.shape:
        raise TypeError(
            f"attention returned the shape {list(out.shape)}; it must return q's, {list(q.shape)}"
        )
    if out.dtype != q.dtype:
        raise UnsupportedCell(
            f"attention returned {out.dtype}; this dtype policy asks for {q.dtype}, as q has"
        )


def _attention(
    attention: Attention, *, causal: bool, has_key_mask: bool, backward: bool
) -> Callable[..., tuple[jax.Array, ...]]:
    def function(q: jax.Array, k: jax.Array, v: jax.Array, *rest: jax.Array) -> tuple[Any, ...]:
        key_mask = rest[0] if has_key_mask else None

        def forward(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            out = attention(q, k, v, causal=causal, key_mask=key_mask, scale=None)
            _require_contract(out, q)
            return out

        if not backward:
            return (forward(q, k, v),)
        out, pullback = _vjp(forward, q, k, v)
        return (out, *pullback(rest[-1]))

    return function
