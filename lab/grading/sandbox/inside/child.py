"""The program of a sandboxed process: `python -I -B child.py COMMANDS RESULTS ALARMS`.

Two kinds of child run it. The *tracer* imports the stranger's file and turns its function into
programs (StableHLO); it is told shapes, never values. The *runner* has none of the stranger's
Python: it loads the programs and runs them on the values. Both answer over a pipe with raw arrays.

It runs outside of the lab's package, which is not importable here, and loads the few files that
it needs by path.
"""

from __future__ import annotations

import hashlib
import os
import sys
import traceback
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
LAB = HERE.parents[2]
COMMANDS, RESULTS, ALARMS = (int(fd) for fd in sys.argv[1:4])
VIOLATION_EXIT = 77
UNSTABLE = "is another program each time it is traced"


def _execute(path: Path, code: CodeType) -> ModuleType:
    module = ModuleType(f"sandbox_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(code, vars(module))  # noqa: S102 - the lab's own files, read a moment ago
    return module


# Read all that is needed of the lab before it is out of sight; enter the namespaces before NumPy
# and jax start threads.
_PATHS = [
    HERE / "isolation.py",
    HERE / "aside.py",
    HERE / "guard.py",
    HERE / "wire.py",
    HERE / "claims.py",
    LAB / "candidates" / "custom.py",
]
_CODES = [compile(path.read_text(), str(path), "exec") for path in _PATHS]
isolation = _execute(_PATHS[0], _CODES[0])
ISOLATED = isolation.isolate(hidden=LAB, scratch=Path.cwd())
aside, guard, wire, claims, custom = map(_execute, _PATHS[1:], _CODES[1:])

import jax  # noqa: E402 - see above
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import export  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun  # noqa: E402
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh  # noqa: E402

# Export once, so that all it needs is imported before a stranger's folder is searched first.
export.export(jax.jit(lambda x: x))(jax.ShapeDtypeStruct((), jnp.float32)).serialize()

# What a kernel that asks for the chip it runs on is told here.
V5E = AbstractMesh((), (), abstract_device=AbstractDevice("TPU v5 lite", 1, "tpu"))

Arrays = list[np.ndarray[Any, np.dtype[Any]]]
Reply = tuple[dict[str, Any], Arrays]


class Unrunnable(Exception):  # noqa: N818 - what the kernel is here
    """No interpreter runs the kernel."""


class Undifferentiable(Exception):  # noqa: N818 - what the function is
    """What jax raised while it differentiated the function; the cause says what.

    jax leaves its own frames out of a traceback, and the last one is then this file's, as it would
    be if this file were wrong.
    """


class Contract(Exception):  # noqa: N818 - what was broken
    """The function returned something else than one array of the right kind."""


def _make_deny(token: str) -> Callable[[str], NoReturn]:
    """What reports a violation and ends the process; nothing can catch it."""
    # Bound now, lest they be replaced.
    write, leave, alarms, code = os.write, os._exit, ALARMS, VIOLATION_EXIT

    def deny(reason: str) -> NoReturn:
        try:
            write(alarms, f"{token} {reason}".encode(errors="replace")[:900])
        finally:
            leave(code)

    return deny


class Tracer:
    """Answers for a stranger's file. What may call its code runs aside, and knows no Tracer."""

    def __init__(self, deny: Callable[[str], NoReturn]) -> None:
        self.deny = deny
        self.file = Path()
        self.function: Callable[..., Any] | None = None
        self.originals = guard.snapshot()
        self.walked: dict[str, str] = {}  # fingerprints of the programs that were described
        self.local: dict[str, Any] = {}  # programs that could not be exported

    def aside(self, work: Callable[..., Any], *arguments: Any) -> tuple[Any, dict[str, Any] | None]:  # noqa: ANN401
        """The result of work(*arguments) and None, or None and the failure as an answer."""
        found = aside.aside(partial(_attempt, work, arguments), partial(_failed, self.file))
        names = guard.replaced(self.originals)
        if names:
            self.deny(
                f"replaces functions of the libraries it is judged with: {', '.join(names[:3])}"
            )
        if type(found) is not tuple:
            return None, {"kind": "error", "detail": "meddles with how it is called"}
        return found

    def load(self, header: dict[str, Any], _: Arrays) -> Reply:
        """Import the file and find the function."""
        self.file = Path(header["path"])
        folder = self.file.parent
        harness = [*_PATHS, Path(__file__)]
        guard.Guard(
            self.deny, lab=LAB, harness=harness, folder=folder, scratch=Path.cwd()
        ).install()
        self.function, failed = self.aside(custom.load_file, self.file, header["function"])
        if failed is not None:
            return {"ok": False, "detail": failed["detail"]}, []
        return {"ok": True, "isolated": ISOLATED}, []

    def trace(self, header: dict[str, Any], _: Arrays) -> Reply:
        """Turn the function into a program for one signature, without and with gradients."""
        answer: dict[str, Any] = {"kind": "ok", "detail": "", "backward_error": None}
        found, failed = self.described(header, backward=False)
        if failed is not None:
            return {**answer, "forward": None, **failed}, []
        chosen, answer["forward"], fingerprint = found
        backward = header["backward"]
        if backward:
            found, failed = self.described(header, backward=True)
            backward = failed is None
            if failed is None:
                chosen, answer["with_gradients"], fingerprint = found
            elif failed["kind"] == "bug":
                return {**answer, "forward": None, **failed}, []
            else:
                answer["backward_error"] = failed["detail"]
        again = self.aside(_fingerprint, self.function, header, backward)[0]
        if again != fingerprint:
            self.deny(UNSTABLE)
        self.walked[header["id"]] = fingerprint
        data, failed = self.aside(_exported, chosen, header, backward)
        if failed is not None:  # e.g. what this interpreter cannot do
            return {**answer, "exported": False, "detail": failed["detail"]}, []
        answer["exported"] = True
        return answer, [np.frombuffer(bytes(data), np.uint8)]

    def described(self, header: dict[str, Any], *, backward: bool) -> tuple[Any, Any]:
        """(A program, what it is made of, as JSON, its fingerprint) and None; or None and why."""
        program, failed = self.aside(_jaxpr, self.function, header, backward)
        if failed is not None:
            return None, failed
        found, failed = self.aside(_describe, program)
        return (program, *found) if failed is None else None, failed

    def call(self, header: dict[str, Any], arrays: Arrays) -> Reply:
        """Call the function itself on arrays, in TPU interpret mode; kernels run as on a chip."""
        program, failed = self.program(header) if header["compiled"] else (None, None)
        if failed is not None:
            return {**failed, "kind": "unrunnable"}, []
        found, failed = self.aside(_called, self.function, program, header, arrays, self.file)
        if failed is not None:
            return failed, []
        outputs, problem = found
        if problem:
            self.deny(problem)
        return {"kind": "ok"}, outputs

    def program(self, header: dict[str, Any]) -> tuple[Any, dict[str, Any] | None]:
        """The program, compiled once, of a signature not exported; or None and why."""
        if header["id"] not in self.local:
            program, failed = self.aside(_jaxpr, self.function, header, header["backward"], False)
            if failed is not None:
                return None, failed
            if self.aside(claims.fingerprint, program)[0] != self.walked[header["id"]]:
                self.deny(UNSTABLE)
            self.local[header["id"]] = jax.jit(jaxpr_as_fun(program))
        return self.local[header["id"]], None


# What may run a stranger's code: functions of this file alone, with no Tracer in reach.


def _attempt(work: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, None]:
    return work(*arguments), None


def _failed(file: Path, error: BaseException) -> tuple[None, dict[str, Any]]:
    """An exception as an answer."""
    error, differentiated = _cause(error), isinstance(error, Undifferentiable)
    if isinstance(error, Contract | custom.CandidateFileError):
        return None, {"kind": "error", "detail": str(error)}
    if isinstance(error, Unrunnable):
        return None, {"kind": "unrunnable", "detail": str(error)}
    frames = _files_of(error)
    own = str(file) not in frames and frames[-1:] and Path(frames[-1]).parent == HERE
    if own and not differentiated:
        where = f"{Path(frames[-1]).name}"
        return None, {"kind": "bug", "detail": f"{custom.describe(error)} ({where})"}
    name, detail = type(error).__name__, custom.describe(error, file)
    own_refusal = isinstance(error, NotImplementedError) and _raised_in(error, file)
    if name == "UnsupportedCell" or own_refusal:
        return None, {"kind": "unsupported", "detail": str(error) or name}
    needs_values = (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError)
    if isinstance(error, needs_values):
        detail = f"cannot be traced by jax.jit (it needs concrete values): {detail}"
    else:
        detail = f"raises {detail}"
    return None, {"kind": "error", "detail": detail}


def _jaxpr(
    function: Callable[..., Any], header: dict[str, Any], backward: bool, as_hlo: bool = True
) -> Any:  # noqa: ANN401
    """The closed jaxpr of one signature. Kernels are interpreted, whatever they ask for."""
    how: Any = True if as_hlo else pltpu.InterpretParams()
    with use_abstract_mesh(V5E), pltpu.force_tpu_interpret_mode(how):
        program = jax.jit(_flat(function, header, backward=backward)).trace(
            *_abstract(header, backward=backward)
        )
        return program.jaxpr


def _fingerprint(function: Callable[..., Any], header: dict[str, Any], backward: bool) -> str:
    """Of another trace of the function."""
    fingerprint: str = claims.fingerprint(_jaxpr(function, header, backward))
    return fingerprint


def _describe(closed: Any) -> tuple[dict[str, Any], str]:  # noqa: ANN401
    """What a program is made of, as JSON, and its fingerprint."""
    if type(closed) is not ClosedJaxpr:
        raise Contract("is traced to something else than a program")
    return claims.walk(closed, lab=str(LAB)).to_json(), claims.fingerprint(closed)


def _exported(closed: Any, header: dict[str, Any], backward: bool) -> bytes:  # noqa: ANN401
    program = export.export(jax.jit(jaxpr_as_fun(closed)), platforms=["cpu"])
    return bytes(program(*_abstract(header, backward=backward)).serialize())


def _called(
    function: Callable[..., Any],
    program: Any,  # noqa: ANN401
    header: dict[str, Any],
    arrays: Arrays,
    file: Path,
) -> tuple[Arrays, str | None]:
    """Call in TPU interpret mode; what that cannot run, by the plain interpreter."""
    modes: tuple[Any, ...] = (pltpu.InterpretParams(), True)
    for how in modes[:1] if program else modes:
        try:
            with use_abstract_mesh(V5E), pltpu.force_tpu_interpret_mode(how):
                called = program or _flat(function, header, backward=header["backward"])
                return _evaluate(called, arrays)
        except Exception as error:
            if not _by_interpreter(_cause(error), file):
                raise
            reason = custom.describe(_cause(error), file)
    raise Unrunnable(reason)


def _flat(
    function: Callable[..., Any], header: dict[str, Any], *, backward: bool
) -> Callable[..., Any]:
    """The function as one of arrays only: (q, k, v[, key_mask][, cotangent]) -> arrays."""

    def call(*arrays: Any) -> tuple[Any, ...]:  # noqa: ANN401
        q, k, v, *rest = arrays
        key_mask = rest.pop(0) if header["key_mask"] else None

        def forward(q: Any, k: Any, v: Any) -> Any:  # noqa: ANN401
            out = function(
                q, k, v, causal=header["causal"], key_mask=key_mask, scale=header["scale"]
            )
            _check_result(out, q, header["output_dtype"])
            return out

        if not backward:
            return (forward(q, k, v),)
        cotangent = rest.pop(0)
        try:
            out, pullback = jax.vjp(forward, q, k, v)
            return (out, *pullback(cotangent))
        except Exception as error:
            raise Undifferentiable from error

    return call


class Runner:
    """Answers for compiled programs, without any of the stranger's Python."""

    def __init__(self, deny: Callable[[str], NoReturn]) -> None:
        self.deny = deny
        self.programs: dict[str, Callable[..., Any]] = {}

    def load(self, header: dict[str, Any], arrays: Arrays) -> Reply:
        """Take a program in and compile it."""
        try:
            program = export.deserialize(bytearray(arrays[0].tobytes()))
            names = ", ".join(_custom_calls(program))
            if names:
                return {"ok": False, "detail": f"calls native or host functions: {names}"}, []
            arguments = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in program.in_avals]
            compiled = _compiled(jax.jit(program.call).lower(*arguments))
        except Exception as error:  # noqa: BLE001 - the bytes come from a stranger
            return {"ok": False, "detail": f"cannot be compiled: {custom.describe(error)}"}, []
        self.programs[header["id"]] = compiled
        return {"ok": True}, []

    def call(self, header: dict[str, Any], arrays: Arrays) -> Reply:
        """Run a program."""
        try:
            outputs, problem = _evaluate(self.programs[header["id"]], arrays)
        except Exception as error:  # noqa: BLE001 - what the compiler or runtime says is an answer
            return {"kind": "error", "detail": f"fails: {custom.describe(error)}"}, []
        if problem:
            self.deny(problem)
        return {"kind": "ok"}, outputs


def _compiled(lowered: Any) -> Callable[..., Any]:  # noqa: ANN401
    """Compiled in a third of the time, where the compiler still knows how."""
    try:
        return lowered.compile(compiler_options={"xla_cpu_use_fusion_emitters": False})
    except Exception:  # noqa: BLE001 - another compiler; what is wrong with the program comes again
        return lowered.compile()


def _abstract(header: dict[str, Any], *, backward: bool) -> list[Any]:
    taken = header["arguments"][: 3 + header["key_mask"] + backward]  # the cotangent comes last
    return [jax.ShapeDtypeStruct(tuple(shape), np.dtype(dtype)) for shape, dtype in taken]


def _check_result(out: Any, q: Any, dtype: str) -> None:  # noqa: ANN401
    """The result must be exactly one jax.Array of q's shape; lazy stand-ins are none."""
    kind = type(out)
    if out is None:
        raise Contract("returns None, not an array")
    exact = isinstance(out, jax.core.Tracer) or kind is type(jnp.zeros(()))
    if not exact:
        prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        raise Contract(f"returns a {prefix}{kind.__qualname__}, not one jax.Array")
    if out.shape != q.shape:
        raise Contract(f"returns shape {list(out.shape)}, expected {list(q.shape)}")
    if out.dtype != np.dtype(dtype):
        raise Contract(f"returns dtype {out.dtype}, expected {dtype}")


def _evaluate(function: Callable[..., Any], arrays: Arrays) -> tuple[Arrays, str | None]:
    """Call on fresh copies; every leaf is awaited and copied out. And what befell the inputs."""
    inputs = [jnp.array(a, copy=True) for a in arrays]
    jax.block_until_ready(inputs)
    outputs = jax.block_until_ready(function(*inputs))
    copies = [np.array(leaf) for leaf in outputs]
    problem = None
    for name, before, after in zip(["q", "k", "v", "4th", "5th"], arrays, inputs, strict=False):
        if after.is_deleted():
            problem = f"deletes its input {name} (donation)"
        elif _digest(before) != _digest(np.asarray(after)):
            problem = f"writes into its input {name}"
    return copies, problem


def _digest(array: np.ndarray[Any, np.dtype[Any]]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest()


def _cause(error: BaseException) -> BaseException:
    """What was raised, where it was while differentiating."""
    cause = error.__cause__ if isinstance(error, Undifferentiable) else None
    return cause or error


def _files_of(error: BaseException) -> list[str]:
    """The file of each frame that it passed, the one that raised it last."""
    return [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]


def _raised_in(error: BaseException, file: Path) -> bool:
    return _files_of(error)[-1:] == [str(file)]


def _by_interpreter(error: BaseException, file: Path) -> bool:
    """Whether jax's Pallas code failed below the last line of the stranger's, not that line."""
    frames = _files_of(error)
    while str(file) in frames:
        frames = frames[frames.index(str(file)) + 1 :]
    return any("/jax/_src/pallas/" in name.replace(os.sep, "/") for name in frames)


def _custom_calls(program: Any) -> list[str]:  # noqa: ANN401 - an Exported
    """Custom calls in the program that jax itself does not vouch for."""
    import re

    allowed = {"Sharding", "annotate_device_placement", "AllocateBuffer"}
    text = str(program.mlir_module())
    return sorted(set(re.findall(r"stablehlo\.custom_call @([\w$.]+)", text)) - allowed)


def main() -> None:
    """Answer requests until the channel closes."""
    inbox, outbox = os.fdopen(COMMANDS, "rb"), os.fdopen(RESULTS, "wb")
    roles: dict[str, Tracer | Runner] = {}
    while prefix := inbox.read(wire.PREFIX.size):
        text = inbox.read(wire.header_length(prefix))
        header, size = wire.decode_header(text, max_bytes=sys.maxsize)
        arrays = wire.decode_arrays(header, inbox.read(size))
        nonce = header.pop("nonce")  # for the answer alone: a stranger's frames may see the header
        if header["op"] == "start":
            deny = _make_deny(header["alarm"])
            roles["role"] = Tracer(deny) if header["role"] == "tracer" else Runner(deny)
            reply: Reply = ({"ok": True, "isolated": ISOLATED}, [])
        else:
            reply = getattr(roles["role"], header["op"])(header, arrays)
        answer, results = reply
        outbox.write(wire.encode({**answer, "nonce": nonce}, results))
        outbox.flush()


if __name__ == "__main__":
    main()
