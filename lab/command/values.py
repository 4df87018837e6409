"""Words that can be read but say what nobody means: refused by name, before Hydra takes them.

Hydra and OmegaConf take `resume=3` for true, `shape=tiny.yaml` for shape=tiny, an empty directory
for the current one; and a name that comes with an option would make a record say what did not run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from lab.command import allowed

_NAMED = ("task", "scope", "dtype", "shape", "candidate", "target", "campaign", "tune", "release")
# What a candidate is, beside its name; `expected` and all that a stranger's file needs may be set.
_DESCRIBED = (
    "kind", "module", "description", "fault_class", "caught_by", "inspired_by", "equivalent_when",
)  # fmt: skip
_COMES_WITH = {
    **{f"{group}.name": group for group in _NAMED},
    **{f"candidate.{key}": "candidate" for key in _DESCRIBED},
    "tune.cases": "tune",
    "release.profile": "release",
}
FEW = 12  # options that are listed


def problem(word: str, key: str, value: str) -> str | None:
    """Why an override is refused, in one line; None if it is not.

    Args:
        word: as typed.
        key: without `+` and `~`.
        value: what stands behind the `=`.
    """
    return (
        _comes_with_an_option(word, key)
        or _file_for_an_option(word, key, value)
        or _number_for_a_truth(word, key, value)
        or _of_hydra(word, key, value)
    )


def _values(value: str) -> list[str]:
    """The values of an axis, or the one value."""
    return [one.strip(" '\"") for one in value.split(",")]


def _comes_with_an_option(word: str, key: str) -> str | None:
    group = _COMES_WITH.get(key)
    if group is None:
        return None
    names = allowed.options(group)
    few = len(names) <= FEW
    listed = f"allowed are {', '.join(names)}" if few else f"`--help {group}` lists them"
    return f"{word}: it comes with the {group}; choose by {group}=NAME; {listed}"


def _file_for_an_option(word: str, key: str, value: str) -> str | None:
    if not allowed.is_group(key):
        return None
    for one in _values(value):
        if re.search(r"/|\.ya?ml$", one.rstrip("/")):
            return f"{word}: {key} takes the name of an option; type {key}={Path(one).stem}"
    return None


def _number_for_a_truth(word: str, key: str, value: str) -> str | None:
    if allowed.kind(key) is not bool:
        return None
    if any(re.fullmatch(r"[-+]?\d+", one) and int(one) not in (0, 1) for one in _values(value)):
        return f"{word}: allowed is {allowed.words(key)}"
    return None


def _of_hydra(word: str, key: str, value: str) -> str | None:
    if key not in _HYDRA:
        return None
    holds, wanted = _HYDRA[key]
    return None if holds(value.strip(" '\"")) else f"{word}: allowed is {wanted}"


def _directories(value: str) -> bool:
    paths = [path.removeprefix("file://") for path in _values(value.strip("[]")) if path]
    return value.startswith("[") and all("://" in p or Path(p).is_dir() for p in paths)


_HYDRA: dict[str, tuple[Callable[[str], bool], str]] = {
    "hydra.run.dir": (bool, "a directory, as in hydra.run.dir=runs/mine"),
    "hydra.sweep.dir": (bool, "a directory, as in hydra.sweep.dir=runs/mine"),
    "hydra.searchpath": (_directories, "a list of directories that exist"),
    "hydra.sweeper.max_batch_size": (
        lambda value: value == "null" or (value.isdecimal() and int(value) > 0),
        "a whole number of at least 1, or null",
    ),
    "hydra.sweeper.params": (
        lambda value: value in ("null", "") or value.startswith("{"),
        "a value for one of its keys, as in '+hydra.sweeper.params.seq=\"128,256\"'",
    ),
}
