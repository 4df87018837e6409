"""What a traced program is made of: its matrix products, its kernels, its calls to the host.

`walk` reads a jaxpr and says which dots lie inside a `pallas_call`, with which operand dtypes;
`program_problem` says what no attention function needs; `pallas_problem` says why a program is not
the Pallas kernel it claims to be. A claim is checked, never believed.

Loaded by path in the sandbox's child, so it imports nothing of the lab.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxprs_in_params

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

DOTS = ("dot_general", "scaled_dot", "conv_general_dilated", "ragged_dot", "ragged_dot_general")
KERNELS = ("pallas_call", "core_map", "mpmd_map")
# What moves, selects or converts values, and cannot multiply them. Anything else of the size of
# attention's products, outside of a kernel, computes them.
LAYOUT = (
    "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p", "device_put",
    "dynamic_slice", "dynamic_update_slice", "expand_dims", "gather", "iota", "pad", "reshape",
    "rev", "select_n", "slice", "squeeze", "stop_gradient", "transpose",
)  # fmt: skip
# The result does not follow from the arguments; or the program is another one on another machine.
FICKLE = ("rng_uniform", "platform_index")
HOST_WORDS = ("callback", "debug_print", "infeed", "outfeed", "outside_call")
CALLS = ("jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_jvp_call",
         "custom_vjp_call")  # fmt: skip
MAX_CONSTANT_BYTES = 64 << 20
NATIVE = ("ffi_call", "custom_call")


@dataclass(frozen=True)
class Dot:
    """Matrix products of one kind: where they are, in which dtypes, how many equations."""

    inside: str | None  # the pallas_call's name; None outside of every kernel
    operands: tuple[str, str]
    result: str
    count: int


@dataclass(frozen=True)
class Program:
    """What `walk` found.

    Attributes:
        dots: the matrix products that the result depends on.
        kernels: the `pallas_call`s that the result depends on, by name, and their number.
        largest_outside: elements of the largest operand or result of an operation outside of
            kernels that computes (not of one that moves or converts).
        host_calls: primitives that call Python on the host, e.g. `pure_callback`.
        native_calls: primitives that call native functions, e.g. `ffi_call`.
        fickle: primitives that make it another function at another time or on another machine.
        lab_files: files of the lab that contributed equations.
        constant_bytes: bytes of arrays baked into the program.
        reads_inputs: whether the results depend on any of q, k, v.
    """

    dots: tuple[Dot, ...]
    kernels: dict[str, int]
    largest_outside: int
    host_calls: tuple[str, ...]
    native_calls: tuple[str, ...]
    fickle: tuple[str, ...]
    lab_files: tuple[str, ...]
    constant_bytes: int
    reads_inputs: bool

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self)


def walk(closed: Any, *, lab: str = "") -> Program:  # noqa: ANN401 - a ClosedJaxpr
    """Describe a closed jaxpr whose first three inputs are q, k, v.

    Args:
        closed: what `jax.jit(f).trace(...).jaxpr` or `jax.make_jaxpr` returns.
        lab: the lab's package directory, to recognise its files among the equations' origins.
    """
    equations = list(_equations(closed.jaxpr))
    names = [equation.primitive.name for equation, _ in equations]
    live, read = _live(closed.jaxpr, _variables(closed.jaxpr.outvars))
    dots, kernels, largest = _products(live)
    return Program(
        dots=dots,
        kernels=kernels,
        largest_outside=largest,
        host_calls=tuple(sorted({n for n in names if any(word in n for word in HOST_WORDS)})),
        native_calls=tuple(sorted({n for n in names if n in NATIVE})),
        fickle=tuple(sorted({n for n in names if n in FICKLE})),
        lab_files=tuple(sorted(_files(equations, lab))) if lab else (),
        constant_bytes=sum(getattr(c, "nbytes", 0) for c in _constants(closed)),
        reads_inputs=any(v in read for v in closed.jaxpr.invars[:3]),
    )


def fingerprint(closed: Any) -> str:  # noqa: ANN401 - a ClosedJaxpr
    """sha256 over a closed jaxpr's equations and constants: equal for two traces of one program."""
    digest = hashlib.sha256()
    for equation, inside in _equations(closed.jaxpr):
        literals = [str(v.val) for v in equation.invars if isinstance(v, Literal)]
        outs = [str(v.aval) for v in equation.outvars]
        params = equation.params.items()  # how a kernel is interpreted is the harness's choice
        settings = sorted((k, repr(v)) for k, v in params if _is_plain(v) and k != "interpret")
        digest.update(repr((equation.primitive.name, inside, literals, outs, settings)).encode())
    for constant in _constants(closed):
        digest.update(np.asarray(constant).tobytes())
    return digest.hexdigest()


def _is_plain(value: Any) -> bool:  # noqa: ANN401
    """Numbers, names and tuples of them: what prints alike in two traces of one program."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def program_problem(program: Program) -> str | None:  # noqa: PLR0911 - a list of reasons
    """What no attention function needs, claim or not; None if there is nothing of the kind."""
    if program.host_calls:
        return f"calls back to Python on the host ({', '.join(program.host_calls)})"
    if program.native_calls:
        return f"calls native functions ({', '.join(program.native_calls)})"
    if "platform_index" in program.fickle:
        return "is another program on another platform: only what runs here could be graded"
    if program.fickle:
        return f"draws random numbers ({', '.join(program.fickle)}): a call does not repeat"
    if program.lab_files:
        return f"runs the lab's own code ({', '.join(program.lab_files)}): bring your own kernel"
    if program.constant_bytes > MAX_CONSTANT_BYTES:
        return f"carries a table of {program.constant_bytes >> 20} MiB of constants"
    if not program.reads_inputs:
        return "its result does not depend on q, k or v"
    return None


def pallas_problem(program: Program, *, products: int) -> str | None:
    """Why this forward program is not a Pallas attention kernel, or None if it is one.

    Args:
        program: the forward, as walked.
        products: B * Hq * T * S * D, the products of one of attention's two dots.
    """
    outside = [dot for dot in program.dots if dot.inside is None]
    inside = sum(dot.count for dot in program.dots if dot.inside is not None)
    if not program.kernels:
        return "claims pallas, but no pallas_call contributes to its result"
    if outside:
        listed = ", ".join(f"{d.count} x {' x '.join(d.operands)} -> {d.result}" for d in outside)
        return f"claims pallas, but has dots outside of pallas_call: {listed}"
    if program.largest_outside >= products:
        return (
            "claims pallas, but computes with arrays the size of attention's products "
            f"({program.largest_outside} elements) outside of pallas_call"
        )
    if not inside:
        return "claims pallas, but there is no dot inside its pallas_call"
    return None


def _equations(jaxpr: Any, inside: str | None = None) -> Iterator[tuple[Any, str | None]]:  # noqa: ANN401
    """Every equation, those of nested programs too, with the kernel it is part of."""
    for equation in jaxpr.eqns:
        yield equation, inside
        for nested in _nested(equation):
            yield from _equations(nested, _within(equation, inside))


def _live(
    jaxpr: Any,  # noqa: ANN401
    wanted: set[Any],
    inside: str | None = None,
) -> tuple[list[tuple[Any, str | None]], set[Any]]:
    """The equations that the `wanted` variables depend on, and all variables these read.

    A nested program that gives its equation's results one by one (jit, custom_vjp) is followed
    result by result; any other (a loop, a kernel) counts as a whole.
    """
    found: list[tuple[Any, str | None]] = []
    read = set(wanted)
    for equation in reversed(jaxpr.eqns):
        if not any(v in read for v in equation.outvars):
            continue
        found.append((equation, inside))
        nested = _nested(equation)
        inputs: Sequence[int] = range(len(equation.invars))
        if equation.primitive.name in CALLS and len(nested) == 1:
            pairs = zip(nested[0].outvars, equation.outvars, strict=True)
            results = _variables(v for v, outer in pairs if outer in read)
            equations, used = _live(nested[0], results, inside)
            found += equations
            inputs = [i for i, v in enumerate(nested[0].invars) if v in used]
        else:
            for inner in nested:
                found += _equations(inner, _within(equation, inside))
        read |= _variables(equation.invars[i] for i in inputs)
    return found, read


def _nested(equation: Any) -> list[Any]:  # noqa: ANN401
    return [getattr(program, "jaxpr", program) for program in jaxprs_in_params(equation.params)]


def _within(equation: Any, inside: str | None) -> str | None:  # noqa: ANN401
    return _kernel_name(equation) if equation.primitive.name in KERNELS else inside


def _variables(atoms: Iterable[Any]) -> set[Any]:
    return {atom for atom in atoms if not isinstance(atom, Literal)}


def _kernel_name(equation: Any) -> str:  # noqa: ANN401
    params = equation.params
    info = getattr(params.get("jaxpr"), "debug_info", None)
    return str(params.get("name") or getattr(info, "func_name", None) or "pallas_call")


def _products(
    equations: Sequence[tuple[Any, str | None]],
) -> tuple[tuple[Dot, ...], dict[str, int], int]:
    dots: Counter[tuple[str | None, tuple[str, str], str]] = Counter()
    kernels: Counter[str] = Counter()
    largest = 0
    for equation, inside in equations:
        name = equation.primitive.name
        if name in KERNELS:
            kernels[_kernel_name(equation)] += 1
        elif name in DOTS:
            left, right = (str(var.aval.dtype) for var in equation.invars[:2])
            dots[inside, (left, right), str(equation.outvars[0].aval.dtype)] += 1
        elif inside is None and name not in LAYOUT and not _nested(equation):
            atoms = (*equation.invars, *equation.outvars)
            sizes = [math.prod(getattr(atom.aval, "shape", ())) for atom in atoms]
            largest = max(largest, *sizes)
    listed = tuple(Dot(*key, count) for key, count in sorted(dots.items(), key=str))
    return listed, dict(kernels), largest


def _constants(closed: Any) -> Iterator[Any]:  # noqa: ANN401
    yield from closed.consts
    for equation, _ in _equations(closed.jaxpr):
        for value in equation.params.values():
            for program in value if isinstance(value, tuple) else (value,):
                if isinstance(program, ClosedJaxpr):
                    yield from program.consts
        yield from (v.val for v in equation.invars if isinstance(v, Literal))


def _files(equations: Sequence[tuple[Any, str | None]], lab: str) -> set[str]:
    root = Path(lab).resolve()
    tracebacks = {equation.source_info.traceback for equation, _ in equations} - {None}
    names = {code.co_filename for trace in tracebacks for code in trace.raw_frames()[0]}
    origins = {Path(name).resolve() for name in names}
    return {
        str(origin.relative_to(root.parent))
        for origin in origins
        if origin.is_relative_to(root)
        and not origin.is_relative_to(root / "grading")  # the harness itself
    }
