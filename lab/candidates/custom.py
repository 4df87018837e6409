"""Load an attention function from a stranger's Python file.

Standard library only and no other part of the lab, because the sandbox's child process loads this
file by itself, where the lab is out of reach.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

CALLED_AS = "(q, k, v, *, causal, key_mask, scale)"


def name_of(path: str | Path, function: str) -> str:
    """What people call a stranger's function: `mine.py:attention`."""
    return f"{Path(path).name}:{function}"


class CandidateFileError(Exception):
    """The file or its function cannot be used; the message is one line and says why."""


def load_file(
    path: str | Path, function: str, called_as: str | None = CALLED_AS
) -> Callable[..., Any]:
    """Import the file in place, its folder first on `sys.path`, and return its function.

    Args:
        path: a Python file.
        function: the name, in that file, of `attention(q, k, v, *, causal, key_mask, scale)`.
        called_as: the arguments it must take; None for any.

    Raises:
        CandidateFileError: missing, unreadable, a syntax error, raises while it is imported, lacks
            the function, or the function cannot be called with those arguments.
    """
    file = Path(path).expanduser().absolute()
    module = _import(file)
    found = getattr(module, function, None)
    if found is None:
        names = [name for name, value in vars(module).items() if _is_own_function(value, module)]
        offered = f"it defines {', '.join(names)}" if names else "it defines no function"
        raise CandidateFileError(f"{file.name} has no function {function!r}: {offered}")
    if not callable(found):
        kind = type(found).__name__
        raise CandidateFileError(
            f"{function!r} in {file.name} is not a function but of type {kind}"
        )
    if called_as is not None:
        _check_signature(found, function)
    return found


def _import(file: Path) -> ModuleType:
    if not file.exists():
        raise CandidateFileError(f"there is no file {file}")
    if not file.is_file() or file.suffix != ".py":
        raise CandidateFileError(f"{file} is not a Python file (.py)")
    name = file.stem if file.stem not in sys.modules else f"candidate_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and forward references look the module up there
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        where = Path(error.filename or file.name).name
        raise CandidateFileError(
            f"syntax error in {where}, line {error.lineno}: {error.msg}"
        ) from None
    except UnicodeDecodeError:
        raise CandidateFileError(f"{file.name} is not UTF-8 text") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a stranger may raise anything
        raise CandidateFileError(
            f"{file.name} raises while it is imported: {describe(error, file)}"
        ) from None
    return module


def describe(error: BaseException, file: Path | None = None) -> str:
    """An exception in one line: its type, its message's first line, the line of `file` it left."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
    if file is not None:
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            if frame.f_code.co_filename == str(file):
                return f"{text} ({file.name}, line {line})"
    return text


def _is_own_function(value: object, module: ModuleType) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__


def _check_signature(function: Callable[..., Any], name: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin says nothing; calling it will
        return
    try:
        signature.bind(None, None, None, causal=True, key_mask=None, scale=None)
    except TypeError as error:
        raise CandidateFileError(
            f"{name}{signature} has another signature: it is called as {name}{CALLED_AS} ({error})"
        ) from None
