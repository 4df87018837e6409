"""Run a stranger's attention function where it can neither peek, nor remember, nor harm.

Two child processes. The *tracer* imports the stranger's file and turns its function into a
program for each signature; it is told shapes and flags, never a value. The *runner*, which has
none of the stranger's Python, runs the programs on the values. So there is nothing to find in
memory, no call to recognise, no clock and no comparison to patch; and the program that is judged
is the one whose jaxpr was read. Afterwards the function is also called in place, on values that
are not graded, to see that it does the same when nobody traces it.

    with Sandbox("mine.py", "attention") as sandbox:
        answers = sandbox.run(calls)
    sandbox.rejection  # None, or why it is rejected whatever its answers are worth

What this stops, and what it cannot stop: docs/untrusted.md.
"""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from lab.grading.claims import Dot, Program, pallas_problem
from lab.grading.executor import Answer
from lab.grading.process import Child, Limits, Stopped
from lab.grading.supports import Supports, unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.grading.executor import Call
    from lab.grading.wire import Array

LAB = Path(__file__).resolve().parent.parent
MAX_CONSTANT_BYTES = 64 << 20
IN_PLACE_CALLS = 2
# Two compilations of one function differ by roundings: a bfloat16 result by 2^-8 of its size or
# two. Another function differs by the size of the values.
IN_PLACE_TOLERANCE = 2.0**-5


@dataclass(frozen=True)
class Signature:
    """What a program is compiled for; calls that differ only in values share one."""

    arguments: tuple[tuple[tuple[int, ...], str], ...]
    causal: bool
    scale: float | None
    key_mask: bool
    backward: bool
    output_dtype: str

    @classmethod
    def of(cls, call: Call) -> Signature:
        """The signature of a call."""
        return cls(
            tuple((a.shape, a.dtype.name) for a in _arrays(call)),
            bool(call.causal),
            None if call.scale is None else float(call.scale),
            call.key_mask is not None,
            call.cotangent is not None,
            (call.q if call.cotangent is None else call.cotangent).dtype.name,
        )

    @property
    def id(self) -> str:
        """A short name."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    @property
    def products(self) -> int:
        """B * Hq * T * S * D: the multiplications of one of attention's two dots."""
        q, k = self.arguments[0][0], self.arguments[1][0]
        return math.prod(q) * k[2]

    def header(self) -> dict[str, Any]:
        """As the tracer is told."""
        return asdict(self)


@dataclass
class _Traced:
    """What the tracer said about one signature."""

    failure: Answer | None = None
    backward_error: str | None = None
    exported: bool = False  # False: only the tracer itself can run it


@dataclass
class Report:
    """What the record keeps of a sandboxed run; `to_json` gives plain values.

    Attributes:
        rejection: why the candidate is rejected whatever its answers are worth, or None.
        namespaces: whether the children had Linux namespaces of their own.
        execution: by signature, `isolated` (the program ran without the stranger's Python) or
            `in place` (only its own process could run it).
        programs: sha256 of each program, by signature.
        forward_dots: the matrix products of the forward, over all signatures: inside of which
            kernel, operand dtypes, result dtype, how many.
        backward_dots: the same for the programs with gradients (the forward's included).
        in_place_calls: calls of the function itself that were compared with its program.
        peak_bytes: the largest resident memory of a child.
        log_tail: the end of what the candidate printed.
        notes: anything else worth a line.
    """

    rejection: str | None = None
    namespaces: bool = False
    execution: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    forward_dots: list[dict[str, Any]] = field(default_factory=list)
    backward_dots: list[dict[str, Any]] = field(default_factory=list)
    in_place_calls: int = 0
    peak_bytes: int = 0
    log_tail: str = ""
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


class Sandbox:
    """An `Executor` for a function in a file that nobody vouches for."""

    def __init__(
        self,
        path: str | Path,
        function: str,
        *,
        supports: Supports | None = None,
        backward: Literal["auto", "required", "none"] = "auto",
        claims: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            path: the stranger's Python file; it is imported in place.
            function: the name of `attention(q, k, v, *, causal, key_mask, scale)` in it.
            supports: what it declares; calls outside of it are answered `unsupported`.
            backward: `auto` asks for gradients and notes when there are none, `required` rejects
                a function without, `none` does not ask.
            claims: `pallas` if it says that it is a Pallas kernel.
            limits: time, memory and output.
        """
        self.path, self.function = Path(path).expanduser().absolute(), function
        self.supports, self.backward, self.claims = supports or Supports(), backward, claims
        self.limits = limits or Limits()
        self.report = Report()
        self._traced: dict[Signature, _Traced] = {}
        self._tracer: Child | None = None
        self._runner: Child | None = None
        self._runner_busy = False
        self._spent_s = 0.0

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        self.close()

    @property
    def rejection(self) -> str | None:
        """Why it is rejected whatever its answers are worth; None so far if it is not."""
        return self.report.rejection

    def close(self) -> None:
        """End all processes. Safe to repeat."""
        self._end_tracer()
        if self._runner is not None:
            self._runner.close()
            self.report.peak_bytes = max(self.report.peak_bytes, self._runner.peak_bytes)
            self._runner = None

    def run(self, calls: Sequence[Call]) -> list[Answer]:
        """Answer each call. A rejected candidate answers `error` with the reason to all."""
        started = time.monotonic()
        answers: list[Answer] = []
        try:
            if self.rejection is None:
                answers = self._run(calls)
        except Stopped as stop:
            self.report.rejection = str(stop)
        finally:
            self._spent_s += time.monotonic() - started
            self._end_tracer()
        if self.rejection is not None:
            self.close()
            return [Answer("error", detail=self.rejection) for _ in calls]
        return answers

    def _run(self, calls: Sequence[Call]) -> list[Answer]:
        wanted = [replace(c, cotangent=None) if self.backward == "none" else c for c in calls]
        refused = [unsupported(call, self.supports) for call in wanted]
        covered = [c for c, reason in zip(wanted, refused, strict=True) if reason is None]
        new = sorted(
            {Signature.of(call) for call in covered} - set(self._traced), key=lambda s: s.products
        )
        if new:
            self._start()
            for signature in new:
                self._traced[signature] = self._trace(signature)
            self._compare_in_place(new)
            self._collect_runner()
        if all(t.exported or t.failure for t in self._traced.values()):
            self._end_tracer()  # before any value that is graded is near a process of its own
        return [
            Answer("unsupported", detail=reason) if reason else self._answer(call)
            for call, reason in zip(wanted, refused, strict=True)
        ]

    def _start(self) -> None:
        if self.path.is_relative_to(LAB):
            raise Stopped(f"{self.path} lies in the lab's own package: move it elsewhere")
        self._tracer = Child("", self.limits)
        if self._runner is None:
            self._runner = Child("its compiled program ", self.limits)
            self._post_runner({"op": "start", "role": "runner"}, "starting")
        reply, _ = self._ask(self._tracer, {"op": "start", "role": "tracer"}, "starting")
        self.report.namespaces = bool(reply["isolated"])
        request = {"op": "load", "path": str(self.path), "function": self.function}
        reply, _ = self._ask(self._tracer, request, "importing the file")
        if not reply["ok"]:
            raise Stopped(str(reply["detail"]))

    def _seconds(self, doing: str) -> float:
        left = self.limits.total_s - self._spent_s
        if left <= 0:
            raise Stopped(f"took more than {self.limits.total_s:g} s in all")
        return min(left, self.limits.start_s if doing == "starting" else self.limits.call_s)

    def _ask(
        self,
        child: Child | None,
        header: dict[str, Any],
        doing: str,
        arrays: Sequence[Array] = (),
        max_bytes: int = 0,
    ) -> tuple[dict[str, Any], list[Array]]:
        assert child is not None
        seconds = self._seconds(doing)
        return child.ask(header, arrays, seconds=seconds, doing=doing, max_bytes=max_bytes)

    def _post_runner(
        self, header: dict[str, Any], doing: str, arrays: Sequence[Array] = ()
    ) -> None:
        """Give the runner work to do while the tracer traces."""
        self._collect_runner()
        assert self._runner is not None
        self._runner.post(header, arrays, seconds=self._seconds(doing), doing=doing)
        self._runner_busy = True

    def _collect_runner(self) -> None:
        if self._runner_busy and self._runner is not None:
            self._runner_busy = False
            reply, _ = self._runner.collect()
            if not reply["ok"]:
                raise Stopped(f"its program {reply['detail']}")

    def _end_tracer(self) -> None:
        if self._tracer is not None:
            self._tracer.close()
            self.report.peak_bytes = max(self.report.peak_bytes, self._tracer.peak_bytes)
            self.report.log_tail = self._tracer.log_tail() or self.report.log_tail
            self._tracer = None

    def _trace(self, signature: Signature) -> _Traced:
        request = {"op": "trace", "id": signature.id, **signature.header()}
        reply, arrays = self._ask(
            self._tracer, request, "being traced", max_bytes=self.limits.output_bytes
        )
        if reply["kind"] != "ok":
            return _Traced(failure=Answer(reply["kind"], detail=reply["detail"]))
        forward = _program(reply["forward"])
        programs = [forward]
        _add_dots(self.report.forward_dots, forward)
        if reply.get("with_gradients"):
            programs.append(_program(reply["with_gradients"]))
            _add_dots(self.report.backward_dots, programs[1])
        for program in programs:
            self._inspect(program)
        if self.claims == "pallas" and (no := pallas_problem(forward, products=signature.products)):
            raise Stopped(no)
        if reply["backward_error"] and self.backward == "required":
            raise Stopped(
                f"has no backward (candidate.backward=required): {reply['backward_error']}"
            )
        traced = _Traced(backward_error=reply["backward_error"])
        if reply["exported"]:
            traced.exported = True
            request = {"op": "load", "id": signature.id}
            self._post_runner(request, "being compiled", arrays)
            self.report.programs[signature.id] = hashlib.sha256(arrays[0].tobytes()).hexdigest()
        else:
            self.report.notes.append(f"runs in its own process: {reply['detail']}")
        self.report.execution[signature.id] = "isolated" if reply["exported"] else "in place"
        return traced

    def _inspect(self, program: Program) -> None:
        """Reject what no attention function needs, claim or not."""
        if program.host_calls:
            raise Stopped(f"calls back to Python on the host ({', '.join(program.host_calls)})")
        if program.native_calls:
            raise Stopped(f"calls native functions ({', '.join(program.native_calls)})")
        if program.lab_files:
            files = ", ".join(program.lab_files)
            raise Stopped(f"runs the lab's own code ({files}): bring your own kernel")
        if program.constant_bytes > MAX_CONSTANT_BYTES:
            size = program.constant_bytes >> 20
            raise Stopped(f"carries a table of {size} MiB of constants in its program")
        if not program.reads_inputs:
            raise Stopped("its result does not depend on q, k or v")

    def _compare_in_place(self, signatures: list[Signature]) -> None:
        """Call the function itself, on values nobody grades: it must do what its program does."""
        exported = [s for s in signatures if self._traced[s].exported]
        if self.report.in_place_calls or not exported:
            return
        signature = exported[0]
        inputs = [_fresh(signature) for _ in range(IN_PLACE_CALLS)]
        request = {"op": "call", "compiled": False, **signature.header(), "backward": False}
        doing = "being called outside of a trace"
        for arrays in inputs:
            forward = arrays[:-1] if signature.backward else arrays
            expected = self._execute(signature, arrays)
            reply, got = self._ask(
                self._tracer, request, doing, forward, max_bytes=self.limits.output_bytes
            )
            self.report.in_place_calls += 1
            if reply["kind"] != "ok":
                raise Stopped(f"was traced, but {reply['detail']} when called on arrays")
            if not _agree(got[0], expected[0]):
                raise Stopped(
                    "gives another result when it is called on arrays than its traced program"
                )

    def _answer(self, call: Call) -> Answer:
        traced = self._traced[Signature.of(call)]
        if traced.failure is not None:
            return traced.failure
        arrays = _arrays(call)
        outputs = self._execute(Signature.of(call), arrays)
        out, *gradients = outputs
        backward_error = traced.backward_error
        if self.backward == "none":
            backward_error = "not offered (candidate.backward=none)"
        if not gradients:
            return Answer("ok", out, backward_error=backward_error)
        dq, dk, dv = gradients
        return Answer("ok", out, dq, dk, dv, backward_error=backward_error)

    def _execute(self, signature: Signature, arrays: list[Array]) -> list[Array]:
        """Run a signature's program; Stopped unless the answer is complete and well-formed."""
        traced = self._traced[signature]
        gradients = signature.backward and traced.backward_error is None
        if signature.backward and not gradients:
            arrays = arrays[:-1]
        expected = [(arrays[0].shape, signature.output_dtype)]
        if gradients:
            expected += [(a.shape, a.dtype.name) for a in arrays[:3]]
        size = sum(math.prod(s) * np.dtype(d).itemsize for s, d in expected)
        if size > self.limits.output_bytes:
            raise Stopped(f"its answer of {size} bytes is over candidate.output_limit_mib")
        request = {"op": "call", "id": signature.id, "compiled": True}
        child = self._runner
        if not traced.exported:
            child, request = self._tracer, request | signature.header() | {"backward": gradients}
        self._collect_runner()
        reply, outputs = self._ask(child, request, "running one call", arrays, max_bytes=size)
        if reply["kind"] != "ok":
            raise Stopped(f"its program {reply['detail']}")
        if [(a.shape, a.dtype.name) for a in outputs] != expected:
            raise Stopped("its program answered with arrays of other shapes than it was traced to")
        return outputs


def _add_dots(listed: list[dict[str, Any]], program: Program) -> None:
    new = (asdict(dot) for dot in program.dots)
    listed += [dot for dot in new if dot not in listed]


def _arrays(call: Call) -> list[Array]:
    optional = (call.key_mask, call.cotangent)
    return [call.q, call.k, call.v, *(a for a in optional if a is not None)]


def _program(described: dict[str, Any]) -> Program:
    """A `Program` from what the tracer reported; Stopped if it is not one."""
    try:
        dots = tuple(
            Dot(d["inside"], tuple(d["operands"]), d["result"], d["count"])
            for d in described["dots"]
        )
        return Program(**{**described, "dots": dots})
    except (KeyError, TypeError, ValueError):
        raise Stopped("answered with a malformed description of its program") from None


def _fresh(signature: Signature) -> list[Array]:
    """Normal values, and a mask that shows every key but the last, for one signature."""
    generator = np.random.default_rng()
    arrays: list[Array] = []
    for shape, dtype in signature.arguments:
        if dtype == "bool":
            mask = np.ones(shape, bool)
            mask[:, -1] = shape[1] == 1
            arrays.append(mask)
        else:
            arrays.append(generator.standard_normal(shape).astype(dtype))
    return arrays


def _agree(one: Array, other: Array) -> bool:
    a, b = one.astype(np.float64), other.astype(np.float64)
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return False
    finite = np.isfinite(a)
    size = np.abs(b[finite]).max(initial=0.0)
    return bool(np.all(np.abs(a - b)[finite] <= IN_PLACE_TOLERANCE * size))
