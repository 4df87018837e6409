"""What a key of the command line takes, in words, read from the schema."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections import defaultdict
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

from lab.candidates import catalogue
from lab.cells.config import LabConfig, config_directory
from lab.kernels.options import KERNELS

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def kind(key: str) -> Any:  # noqa: ANN401 - any annotation
    """The annotation of a key of the schema, as `int | None`; None for a key that it lacks."""
    found: Any = LabConfig
    for name in key.split("."):
        if not dataclasses.is_dataclass(found):
            return None
        found = get_type_hints(found).get(name)
    return found


def words(key: str) -> str:
    """What may be given: `a whole number, as in seq=256`; empty where the schema does not know."""
    annotation = kind(key)
    if annotation is None or annotation is Any:
        return ""
    return f"{_describe(annotation, key)}{_example(key, annotation)}"


def is_group(key: str) -> bool:
    """Whether the key takes the name of an option; kernels are declared in Python, not in conf/."""
    return key == "kernel" or key in {p.name for p in config_directory().iterdir() if p.is_dir()}


def options(group: str) -> list[str]:
    """The names of a group's options, in order."""
    return groups()[group]


@functools.cache
def groups() -> dict[str, list[str]]:
    """The names of the options of every group, in order."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in config_directory().glob("*/*.yaml"):
        found[path.parent.name].add(path.stem)
    for group, names in (("kernel", KERNELS), ("candidate", catalogue.entries())):
        found[group].update(names)
    return {group: sorted(names) for group, names in sorted(found.items())}


def takes_text(key: str) -> bool:
    """Whether any text may be given, so that quoting makes a value of it."""
    annotation = kind(key)
    return annotation is None or annotation is Any or str in _alternatives(annotation)


def takes_list(key: str) -> bool:
    """Whether the key takes a list."""
    return any(get_origin(part) is list for part in _alternatives(kind(key)))


def _alternatives(annotation: Any) -> tuple[Any, ...]:  # noqa: ANN401
    union = isinstance(annotation, types.UnionType) or get_origin(annotation) is typing.Union
    return get_args(annotation) if union else (annotation,)


def _describe(annotation: Any, key: str) -> str:  # noqa: ANN401
    described = []
    for part in _alternatives(annotation):
        if part is types.NoneType:
            described.append("null")
        elif get_origin(part) is list:
            described.append("a list")
        elif dataclasses.is_dataclass(part):
            names = [f"{key}.{field.name}" for field in dataclasses.fields(part)]
            described.append(f"a value for one of its keys: {', '.join(names[:6])}")
        elif isinstance(part, type) and issubclass(part, Enum):
            described.append(" or ".join(str(member.value) for member in part))
        else:
            described.append(_WORDS.get(part, "a value"))
    return " or ".join(described)


def _example(key: str, annotation: Any) -> str:  # noqa: ANN401
    """`, as in seq=256`: the default, where it shows what a value looks like."""
    *parents, name = key.split(".")
    owner: Any = LabConfig
    for parent in parents:
        owner = get_type_hints(owner)[parent]
    field = next(f for f in dataclasses.fields(owner) if f.name == name)
    if any(get_origin(part) is list for part in _alternatives(annotation)):
        inner = next(get_args(part)[0] for part in _alternatives(annotation) if get_args(part))
        return f", as in {key}=[{'64,128' if inner is int else 'A,B'}]"
    default = field.default
    if isinstance(default, bool):
        return f", as in {key}={str(default).lower()}"
    if isinstance(default, int | float) and not isinstance(default, Enum):
        return f", as in {key}={default:g}"
    return ""
