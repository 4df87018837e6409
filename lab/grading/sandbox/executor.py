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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from lab.cells.config import Supports
from lab.errors import UnsupportedCell
from lab.grading.executor import Answer, GraderBug
from lab.grading.sandbox.inside.claims import pallas_problem, program_problem
from lab.grading.sandbox.process import Child, Limits, Stopped
from lab.grading.sandbox.replies import Called, Done, Traced, parse
from lab.grading.sandbox.report import Report
from lab.grading.sandbox.signature import Signature, arrays_of
from lab.grading.supports import unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.grading.executor import Call
    from lab.grading.sandbox.inside.wire import Array

LAB = Path(__file__).resolve().parents[2]
IN_PLACE_CALLS = 2
# Two compilations of one function differ by roundings: a bfloat16 result by 2^-8 of its size or
# two. Another function differs by the size of the values.
IN_PLACE_TOLERANCE = 2.0**-5


@dataclass
class _Traced:
    """What the tracer said about one signature."""

    failure: Answer | None = None
    backward_error: str | None = None
    exported: bool = False  # False: only the tracer itself can run it


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
        self._spent_s = 0.0  # in earlier runs
        self._resumed_at = 0.0

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
        """Answer each call. A rejected candidate answers `error` with the reason to all.

        Raises:
            GraderBug: the sandbox itself failed.
            UnsupportedCell: no interpreter here runs the kernel.
        """
        self._resumed_at = time.monotonic()
        answers: list[Answer] = []
        try:
            if self.rejection is None:
                answers = self._run(calls)
        except Stopped as stop:
            self.report.rejection = str(stop)
        finally:
            self._spent_s += time.monotonic() - self._resumed_at
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
            {Signature.of(call) for call in covered} - set(self._traced),
            key=lambda s: (s.products, s.id),
        )
        if new:
            self._start()
            for signature in new:
                self._traced[signature] = self._trace(signature)
            self._compare_in_place(new)
            self._collect_runner()
        if all(t.exported or t.failure for t in self._traced.values()):
            self._end_tracer()  # before any value that is graded is near a process of its own
        answers = [
            Answer("unsupported", detail=reason, declared=True) if reason else self._answer(call)
            for call, reason in zip(wanted, refused, strict=True)
        ]
        kinds = {answer.kind for answer in answers}
        if "error" in kinds and "ok" not in kinds:  # it never worked: say why in the verdict
            raise Stopped(next(a.detail for a in answers if a.kind == "error"))
        return answers

    def _start(self) -> None:
        if self.path.is_relative_to(LAB):
            raise Stopped(f"{self.path} lies in the lab's own package: move it elsewhere")
        self._tracer = Child("", self.limits)
        if self._runner is None:
            self._runner = Child("its compiled program ", self.limits)
            self._post_runner({"op": "start", "role": "runner"}, "starting")
        header, _ = self._ask(self._tracer, {"op": "start", "role": "tracer"}, "starting")
        self.report.namespaces = parse(Done, header).isolated
        self._tracer.processes = 2 if self.report.namespaces else 1
        request = {"op": "load", "path": str(self.path), "function": self.function}
        header, _ = self._ask(self._tracer, request, "importing the file")
        reply = parse(Done, header)
        if not reply.ok:
            raise Stopped(reply.detail)

    def _seconds(self, doing: str) -> float:
        left = self.limits.total_s - self._spent_s - (time.monotonic() - self._resumed_at)
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
            reply = parse(Done, self._runner.collect()[0])
            if not reply.ok:
                raise Stopped(f"its program {reply.detail}")

    def _end_tracer(self) -> None:
        if self._tracer is not None:
            self._tracer.close()
            self.report.peak_bytes = max(self.report.peak_bytes, self._tracer.peak_bytes)
            self.report.log_tail = self._tracer.log_tail() or self.report.log_tail
            self._tracer = None

    def _trace(self, signature: Signature) -> _Traced:
        request = {"op": "trace", "id": signature.id, **signature.header()}
        header, arrays = self._ask(
            self._tracer, request, "being traced", max_bytes=self.limits.output_bytes
        )
        reply = parse(Traced, header)
        _see_it_ran(reply)
        if reply.kind in ("unsupported", "error"):
            return _Traced(failure=Answer(reply.kind, detail=reply.detail))
        self._inspect(signature, reply)
        if reply.backward_error and self.backward == "required":
            raise Stopped(f"has no backward (candidate.backward=required): {reply.backward_error}")
        if reply.exported:
            self._post_runner({"op": "load", "id": signature.id}, "being compiled", arrays)
            program = b"".join(a.tobytes() for a in arrays)
            self.report.programs[signature.id] = hashlib.sha256(program).hexdigest()
        else:
            self.report.notes.append(f"runs in its own process: {reply.detail}")
        self.report.execution[signature.id] = "isolated" if reply.exported else "in place"
        return _Traced(backward_error=reply.backward_error, exported=reply.exported)

    def _inspect(self, signature: Signature, reply: Traced) -> None:
        """Keep what its programs are made of; Stopped if there is something wrong with them."""
        if reply.forward is None:
            raise Stopped("answered with a malformed message")
        self.report.add(reply.forward, reply.with_gradients)
        problem = program_problem(reply.forward)
        if problem is None and reply.with_gradients is not None:
            problem = program_problem(reply.with_gradients)
        if problem is None and self.claims == "pallas":
            problem = pallas_problem(reply.forward, products=signature.products)
        if problem is not None:
            raise Stopped(problem)

    def _compare_in_place(self, signatures: list[Signature]) -> None:
        """Call the function itself, on values nobody grades: it must do what its program does."""
        exported = [s for s in signatures if self._traced[s].exported]
        if self.report.in_place_calls or not exported:
            return
        # The smallest twice, and the smallest that is causal and that has a mask.
        for signature in dict.fromkeys(
            [
                *exported[:1],
                *[s for s in exported if s.causal][:1],
                *[s for s in exported if s.key_mask][:1],
            ]
        ):
            self._compare_one_in_place(signature, IN_PLACE_CALLS if signature is exported[0] else 1)

    def _compare_one_in_place(self, signature: Signature, times: int) -> None:
        inputs = [signature.fresh_values() for _ in range(times)]
        request = {"op": "call", "compiled": False, **signature.header(), "backward": False}
        doing = "being called outside of a trace"
        for arrays in inputs:
            forward = arrays[: signature.forward_only]
            expected = self._execute(signature, arrays)
            header, got = self._ask(
                self._tracer, request, doing, forward, max_bytes=self.limits.output_bytes
            )
            self.report.in_place_calls += 1
            reply = parse(Called, header)
            _see_it_ran(reply)
            if reply.kind != "ok":
                raise Stopped(f"was traced, but {reply.detail} when called on arrays")
            if len(got) != 1 or not _agree(got[0], expected[0]):
                raise Stopped(
                    "gives another result when it is called on arrays than its traced program"
                )

    def _answer(self, call: Call) -> Answer:
        traced = self._traced[Signature.of(call)]
        if traced.failure is not None:
            return traced.failure
        arrays = arrays_of(call)
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
        if not gradients:
            arrays = arrays[: signature.forward_only]
        expected = signature.results(gradients=gradients)
        size = sum(math.prod(s) * np.dtype(d).itemsize for s, d in expected)
        if size > self.limits.output_bytes:
            raise Stopped(f"its answer of {size} bytes is over candidate.output_limit_mib")
        request = {"op": "call", "id": signature.id, "compiled": True}
        child = self._runner
        if not traced.exported:
            child, request = self._tracer, request | signature.header() | {"backward": gradients}
        self._collect_runner()
        header, outputs = self._ask(child, request, "running one call", arrays, max_bytes=size)
        reply = parse(Called, header)
        _see_it_ran(reply)
        if reply.kind != "ok":
            raise Stopped(f"its program {reply.detail}")
        if [(a.shape, a.dtype.name) for a in outputs] != expected:
            raise Stopped("its program answered with arrays of other shapes than it was traced to")
        return outputs


def _see_it_ran(reply: Traced | Called) -> None:
    """What is no doing of the candidate's is no verdict on it.

    Raises:
        GraderBug: the harness itself failed.
        UnsupportedCell: no interpreter here runs the kernel.
    """
    if reply.kind == "bug":
        raise GraderBug(f"the sandbox itself failed, which says nothing about it: {reply.detail}")
    if reply.kind == "unrunnable":
        raise UnsupportedCell(f"could not be run here: {reply.detail}")


def _agree(one: Array, other: Array) -> bool:
    a, b = one.astype(np.float64), other.astype(np.float64)
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return False
    finite = np.isfinite(a)
    size = np.abs(b[finite]).max(initial=0.0)
    return bool(np.all(np.abs(a - b)[finite] <= IN_PLACE_TOLERANCE * size))
