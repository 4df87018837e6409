"""Where in a kernel's source a refused operation stands: `kernel.py:8, in body: o_ref[...] = ...`.

The compilers say it in one of three ways: in the location of their message, in the frames of what
they raised, or by the operation's name alone, which is then looked for in the traced program.
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from jax.extend import source_info_util
from jax.extend.core import Jaxpr, JaxprEqn, jaxprs_in_params

from lab.worker import PACKAGE_ROOT

SHOWN = 80  # characters of the line of code; a longer one is cut
# What kernels are made of, and what of the lab calls them.
_LIBRARIES = re.compile(r"jax/_src/|jaxlib/|/lib/python[\d.]+/(?!site-packages/)")
_OURS = (PACKAGE_ROOT / "lab" / "kernels", PACKAGE_ROOT / "lab" / "candidates")
_LOCATION = re.compile(r'"([^"]+)"\("([^"]+\.py)":(\d+):')
_OPERATION = (
    re.compile(r'at location: loc\("(\w+):'),
    re.compile(r"Unimplemented primitive in Pallas TPU lowering[^:]*: (\w+)"),
    re.compile(r"Only take_along_axis-like (gather)s"),
)

Place = tuple[str, int, str]
"""File, line and function."""


def of(error: BaseException, program: Jaxpr | None) -> str | None:
    """The place in a kernel that a compiler's error speaks of; None where none is found.

    Args:
        error: what the compiler raised.
        program: the traced program, if it was traced.
    """
    for place in (*_located(error), *_raised(error), *_named(error, program)):
        if _in_a_kernel(_path(place)):
            return _shown(place)
    return None


def _path(place: Place) -> Path:
    """The file, whose directories may have been taken off down to the package."""
    return PACKAGE_ROOT / place[0]  # an absolute path stays as it is


def _in_a_kernel(path: Path) -> bool:
    if path.is_relative_to(PACKAGE_ROOT / "lab"):
        return any(path.is_relative_to(room) for room in _OURS)
    return not _LIBRARIES.search(path.as_posix())


def _shown(place: Place) -> str:
    """No directories of the machine's: a record is published."""
    path, (_, line, function) = _path(place), place
    inside = path.is_relative_to(PACKAGE_ROOT / "lab")
    name = path.relative_to(PACKAGE_ROOT).as_posix() if inside else path.name
    code = linecache.getline(str(path), line).strip()
    cut = code if len(code) <= SHOWN else f"{code[:SHOWN]}..."
    own_name = function.rpartition(".<locals>.")[2]
    return f"{name}:{line}, in {own_name}" + (f": {cut}" if cut else "")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from, the first cause first."""
    if error.__cause__ is not None:
        yield from _chain(error.__cause__)
    yield error


def _located(error: BaseException) -> Iterator[Place]:
    """The call sites that the messages name, the innermost first."""
    for one in _chain(error):
        for function, file, line in _LOCATION.findall(str(one)):
            yield file, int(line), function


def _raised(error: BaseException) -> Iterator[Place]:
    """The frames of the exceptions, the innermost first."""
    for one in _chain(error):
        for frame in reversed(traceback.extract_tb(one.__traceback__)):
            yield frame.filename, frame.lineno or 0, frame.name


def _named(error: BaseException, program: Jaxpr | None) -> Iterator[Place]:
    """Where the program does what the message names, each from the operation outwards."""
    said = "\n".join(str(one) for one in _chain(error))
    names = {match[1] for pattern in _OPERATION if (match := pattern.search(said))}
    if program is not None and names:
        for stack in _standing(program, names):
            for equation in reversed(stack):
                yield from _place(equation)


def _standing(
    jaxpr: Jaxpr, names: set[str], outer: tuple[JaxprEqn, ...] = ()
) -> Iterator[tuple[JaxprEqn, ...]]:
    for equation in jaxpr.eqns:
        stack = (*outer, equation)
        inside_pallas = any(one.primitive.name == "pallas_call" for one in outer)
        if inside_pallas and equation.primitive.name in names:
            yield stack
        for inner in jaxprs_in_params(equation.params):
            yield from _standing(inner, names, stack)


def _place(equation: JaxprEqn) -> Iterator[Place]:
    """`FILE:LINE:COLUMN (FUNCTION)`, as jax sums up where an equation was traced."""
    summary = source_info_util.summarize(equation.source_info)
    if match := re.match(r"(.+?):(\d+)(?::\d+)? \((.+)\)", summary):
        yield match[1], int(match[2]), match[3]
