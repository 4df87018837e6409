"""How the judge reaches an implementation: a list of calls goes out, a list of answers returns.

The judge is NumPy only and never sees the implementation itself. Whoever runs it (this process,
or a sandboxed child) implements `Executor`; `InProcess` is the one for implementations we trust.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from lab.errors import UnsupportedCell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lab.truth.problems import Array, AttentionProblem

AnswerKind = Literal["ok", "unsupported", "error"]


@dataclass(frozen=True)
class Call:
    """One evaluation: everything an implementation may see, and nothing else.

    Attributes:
        q: `[B, Hq, T, D]`, in the policy's input dtype.
        k: `[B, Hkv, S, D]`, same dtype.
        v: `[B, Hkv, S, D]`, same dtype.
        key_mask: Bool `[B, S]`, True = may be attended, or None.
        causal: bottom-right aligned causality; static.
        scale: a number, or None for 1/sqrt(D); static.
        cotangent: `[B, Hq, T, D]` in the output dtype: the gradients asked for are those of
            `sum(out * cotangent)`. None asks for the forward only.
    """

    q: Array
    k: Array
    v: Array
    key_mask: Array | None
    causal: bool
    scale: float | None
    cotangent: Array | None


@dataclass(frozen=True)
class Answer:
    """What came back from one call.

    `kind` says how it ended: `ok`; `unsupported` (the implementation refused with a reason: a
    row of coverage, not an error); `error` (it raised, crashed, answered with the wrong type...).
    `detail` is one line for people; nothing is decided by its words. `declared`: the refusal is one
    that a declaration made, not a stranger's code. On `ok`, `out` is there; the gradients are
    None when not asked for or when the backward failed, and then `backward_error` says why.
    """

    kind: AnswerKind
    out: Array | None = None
    dq: Array | None = None
    dk: Array | None = None
    dv: Array | None = None
    detail: str = ""
    declared: bool = False
    backward_error: str | None = None


class GraderBug(Exception):  # noqa: N818 - what it is
    """The grader itself failed: a failed cell, and no verdict on what it was grading."""


class _Undifferentiable(Exception):  # noqa: N818 - what the implementation is
    """What jax raised while it differentiated the implementation; the cause says what.

    jax leaves its own frames out of a traceback, and the last one is then this file's.
    """


class Executor(Protocol):
    """Evaluates calls, in order, one answer a call. Must not raise for the implementation's sins.

    Calls of one `run` may share shapes; an executor compiles once a (shapes, causal, scale,
    has key_mask, has cotangent). Inputs are never modified: an implementation that writes to
    them is reported as `error`.
    """

    def run(self, calls: Sequence[Call]) -> list[Answer]:
        """Return one `Answer` for each call."""
        ...


def call_of(problem: AttentionProblem, *, backward: bool = True) -> Call:
    """The call that evaluates `problem` as it stands."""
    return Call(
        q=problem.q,
        k=problem.k,
        v=problem.v,
        key_mask=problem.key_mask,
        causal=problem.causal,
        scale=problem.scale,
        cotangent=problem.cotangent if backward else None,
    )


def changed(call: Call, **fields: Array | None) -> Call:
    """A copy of `call` with some arrays replaced."""
    return replace(call, **fields)  # type: ignore[arg-type]


def digest(call: Call) -> str:
    """sha256 over the raw bytes of the call's arrays: equal before and after, or it was written."""
    h = hashlib.sha256()
    for array in (call.q, call.k, call.v, call.key_mask, call.cotangent):
        h.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
    return h.hexdigest()


class InProcess:
    """Runs a trusted jax function in this process, jitted once a signature.

    `function(q, k, v, *, causal, key_mask, scale) -> out`, differentiable by `jax.vjp`. What it
    refuses by `UnsupportedCell` is a declared limit if `declares`.
    """

    def __init__(self, function: Callable[..., Any], *, declares: bool = False) -> None:
        self._function = function
        self._declares = declares
        self._compiled: dict[tuple[object, ...], Callable[..., Any]] = {}

    def run(self, calls: Sequence[Call]) -> list[Answer]:
        """Evaluate each call; exceptions of the implementation become `error` answers."""
        return [self._one(call) for call in calls]

    def contains_pallas(self, call: Call) -> bool:
        """Whether the program of a call holds a Pallas kernel, as opposed to XLA alone."""
        import jax

        forward = replace(call, cotangent=None)
        program = self._program(call.causal, call.scale, call.key_mask is None, backward=False)
        try:
            return "pallas_call[" in str(jax.make_jaxpr(program)(*_arrays(forward)))
        except Exception:  # noqa: BLE001 - one that cannot be traced has no kernel to find
            return False

    def _one(self, call: Call) -> Answer:
        try:
            outputs = self._evaluate(call, backward=call.cotangent is not None)
        except UnsupportedCell as refusal:
            return Answer("unsupported", detail=str(refusal), declared=self._declares)
        except _Undifferentiable as error:
            return self._forward_alone(call, error.__cause__ or error)
        except Exception as error:
            if _raised_here(error):
                raise GraderBug(_one_line(error)) from error
            if call.cotangent is None:
                return Answer("error", detail=_one_line(error))
            return self._forward_alone(call, error)
        if call.cotangent is None:
            return Answer("ok", outputs[0])
        out, dq, dk, dv = outputs
        return Answer("ok", out, dq, dk, dv)

    def _forward_alone(self, call: Call, error: BaseException) -> Answer:
        forward = self._one(replace(call, cotangent=None))
        return replace(forward, backward_error=_one_line(error))

    def _evaluate(self, call: Call, *, backward: bool) -> tuple[Array, ...]:
        import jax

        key = (call.causal, call.scale, call.key_mask is None, backward)
        if key not in self._compiled:
            options = quick_to_compile() if jax.default_backend() == "cpu" else None
            self._compiled[key] = jax.jit(self._program(*key), compiler_options=options)
        arrays = map(jax.numpy.asarray, _arrays(call))
        outputs = jax.block_until_ready(self._compiled[key](*arrays))
        return tuple(np.asarray(leaf) for leaf in outputs)

    def _program(
        self, causal: bool, scale: float | None, maskless: bool, backward: bool
    ) -> Callable[..., Any]:
        import jax

        def program(*arrays: Any) -> tuple[Any, ...]:  # noqa: ANN401 - traced values
            q, k, v, *rest = arrays
            key_mask = None if maskless else rest.pop(0)

            def forward(q: Any, k: Any, v: Any) -> Any:  # noqa: ANN401
                return self._function(q, k, v, causal=causal, key_mask=key_mask, scale=scale)

            if not backward:
                return (forward(q, k, v),)
            cotangent = rest.pop(0)
            try:
                out, pullback = jax.vjp(forward, q, k, v)
                return (out, *pullback(cotangent.astype(out.dtype)))
            except UnsupportedCell:
                raise
            except Exception as error:
                raise _Undifferentiable from error

        return program


@cache
def quick_to_compile() -> dict[str, Any]:
    """Options for programs that run a few times on a CPU: optimising costs more than it saves.

    Without fusion emitters LLVM has a third of the work; a compiler that no longer knows that
    option does without.
    """
    import jax

    options: dict[str, Any] = {"xla_backend_optimization_level": 0}
    more = {**options, "xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda x: x + 1, compiler_options=more)(0.0)
    except Exception:  # noqa: BLE001 - the type of this refusal has changed between versions
        return options
    return more


def _arrays(call: Call) -> list[Array]:
    optional = (call.key_mask, call.cotangent)
    return [call.q, call.k, call.v, *(array for array in optional if array is not None)]


def _raised_here(error: BaseException) -> bool:
    """Whether this file raised it, and nothing that it called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename == __file__


def _one_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else 'no message'}"
