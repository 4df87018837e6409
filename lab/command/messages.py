"""Errors as people read them: what was given, what is allowed, what to do."""

from __future__ import annotations

import difflib
import errno
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    GrammarParseError,
    InterpolationResolutionError,
    OmegaConfBaseException,
)

from lab.cells.config import LabConfig
from lab.command import allowed, overrides
from lab.errors import UserError
from lab.kernels.options import KERNELS

MANY = 20
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# Options that a package of ours adds to Hydra's.
_EXTRAS = {"hydra/launcher": {"joblib": "parallel"}, "hydra/sweeper": {"optuna": "tune"}}


def print_error(text: str) -> None:
    """One message on standard error."""
    print(f"error: {text}", file=sys.stderr)  # noqa: T201


def describe(error: BaseException) -> str:
    """The message of an error that a user can act on, in one line, without inner paths."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        what = error.filename or "the output directory"
        return f"{what}: {error.strerror or error}; choose hydra.run.dir or hydra.sweep.dir"
    cause = error.__cause__
    while isinstance(cause, HydraException):
        error, cause = cause, cause.__cause__
    if isinstance(cause, OmegaConfBaseException):
        return _omegaconf(cause, str(error))
    if isinstance(error, OmegaConfBaseException):
        return _omegaconf(error, "")
    return _hydra(str(error))


def say(errors: Sequence[Exception], *, begun: bool) -> int:
    """Print errors, each text once; the exit code that they ask for.

    It is 2 for what was wrong before the first cell (`begun` is false), 1 for a full disk and for
    whatever happens later.
    """
    for text in dict.fromkeys(map(describe, errors)):
        print_error(text)
    full = any(isinstance(error, OSError) and error.errno in _FULL_DISK for error in errors)
    return (1 if begun or full else 2) if errors else 0


def is_mistake(error: Exception) -> bool:
    """Whether a user can act on it; anything else is a bug, and keeps its traceback."""
    if isinstance(error, UserError | OSError | HydraException | OmegaConfBaseException):
        return True
    # Hydra raises a plain ValueError when its own flags do not go together.
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    return isinstance(error, ValueError) and "hydra" in Path(raised_in).parts


def suggest(given: str, allowed: Iterable[str]) -> str:
    """A hint at the nearest allowed name, or nothing."""
    near = difflib.get_close_matches(given, list(allowed), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def typed() -> list[str]:
    """The words of the command line."""
    return sys.argv[1:]


def _omegaconf(error: OmegaConfBaseException, context: str) -> str:
    override = re.search(r"override '?([^\s'=]+)(=[^\s']*)?", context)
    key = (override.group(1) if override else str(error.full_key or "")).lstrip("+~")
    if isinstance(error, ConfigAttributeError | ConfigKeyError):
        return unknown_key(key)
    reason = _reason(str(error.msg or error).splitlines()[0])
    key = re.sub(r"\[\d+\]$", "", key)  # an element's: what is allowed is said of the list
    if not key and (optional := re.match(r"null is not allowed for (.+)", reason)):
        key = optional.group(1)
    if not key and (word := next((word for word in typed() if "${" in word), None)):
        return f"{overrides.cut(word)}: {reason}; give the value itself"
    word = overrides.given(key, typed())
    if isinstance(error, InterpolationResolutionError) or error.__class__ is GrammarParseError:
        return f"{word}: {reason}; give the value itself"
    if found := allowed.words(key):
        return f"{word}: allowed is {found}"
    parent = key.rpartition(".")[0]
    if found := allowed.words(parent) if parent else "":
        return f"{word}: {parent} has no keys of its own; allowed is {found}"
    return f"{word}: {reason}"


def _reason(text: str) -> str:
    """What OmegaConf says, without the names of its classes."""
    for pattern, words in _REASONS.items():
        if re.match(pattern, text):
            return re.sub(pattern, words, text)
    return text


_REASONS = {
    r"KeyError raised while resolving interpolation: \W*(.*?)\W*$": r"\1",
    r"\w+ raised while resolving interpolation: .*": "this cannot be resolved",
    r"field '(.+)' is not Optional$": r"null is not allowed for \1",
    r"Value .* could not be converted to Integer$": "allowed is a whole number",
    r"Value .* could not be converted to Float$": "allowed is a number",
    r"Value .* is not a valid bool.*": "allowed is true or false",
    r"Invalid value .*, expected one of \[(.*)\]$": r"allowed are \1",
}


def matches_nothing(override: str) -> str:
    """That a sweep's axis holds no value, as glob(nosuch*) and range(3,1)."""
    key, _, value = override.partition("=")
    if value.startswith("glob(") and allowed.is_group(key):
        return f"{override}: no option of {key} matches; `--help` lists them"
    found = f"; allowed is {words}" if (words := allowed.words(key)) else ""
    why = "glob is for groups alone" if value.startswith("glob(") else "this holds no value"
    return f"{override}: {why}{found}; type the values: {key}=A,B"


def unknown_key(key: str) -> str:
    """That there is no such key, with the nearest one."""
    if allowed.is_group(key) and "+" not in key:
        return f"{overrides.given(key, typed())}: {key} is added with a +; type +{key}=NAME"
    *parents, last = key.split(".")
    level: object = OmegaConf.structured(LabConfig)
    for parent in parents:
        level = level.get(parent) if isinstance(level, DictConfig) and parent in level else None
    siblings = [str(name) for name in level] if isinstance(level, DictConfig) else []
    if parents == ["kernel"]:
        siblings = _kernel_options()
    listed = f"; allowed are {', '.join(siblings)}" if 0 < len(siblings) <= MANY else ""
    where = "`--cfg hydra`" if key.startswith("hydra") else "`--cfg job`"
    hint = suggest(last.lower(), siblings) or listed or f"; {where} prints those there are"
    return f"{key}: there is no such key{hint}"


def _kernel_options() -> list[str]:
    """The options of the kernel that the command line names."""
    name = next((w.removeprefix("kernel=") for w in typed() if w.startswith("kernel=")), "pallas")
    declared = KERNELS.get(name)
    return [f"kernel.{option}" for option in declared.options.model_fields] if declared else []


def _unknown_option(group: str, given: str, options: list[str]) -> str:
    if given in _EXTRAS.get(group, {}):
        extra = _EXTRAS[group][given]
        return f"{group}={given} is not installed: pip install 'attention-lab[{extra}]'"
    if len(options) > MANY:
        allowed = f"; `--help` lists the {len(options)} there are"
    else:
        allowed = f"; allowed are {', '.join(options)}"
    return f"{group}={given}: there is no such {group}{suggest(given.lower(), options)}{allowed}"


def _hydra(text: str) -> str:
    """Keep what was wrong and what is available; drop search paths and documentation links."""
    text = text.partition("\nConfig search path")[0].partition("\nSee https://")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else "the command line is not understood"
    for pattern, answer in _ANSWERS.items():
        if found := re.match(pattern, first):
            return answer(found.group(1), lines)
    return "; ".join(lines)


def _null_group(_: str, __: list[str]) -> str:
    # Hydra names neither the group nor the value; `null` is how a command line gives another.
    groups = [word for word in typed() if word.endswith("=null") or word.startswith("hydra=")]
    return f"{', '.join(groups) or 'a group'} takes the name of an option; `--help` lists them"


def _interval(_: str, __: list[str]) -> str:
    word = next((word for word in typed() if "interval(" in word), "interval(...)")
    return f"{word}: a sweep takes values, not intervals; type them, or range(START,STOP,STEP)"


def _no_step(_: str, __: list[str]) -> str:
    word = next((word for word in typed() if "range(" in word), "range(...)")
    return f"{word}: a range has a step that is not 0; type range(START,STOP,STEP)"


def _no_option(missing: str, lines: list[str]) -> str:
    """A group's option that is not there, from `GROUP/OPTION` as Hydra joins them."""
    pairs = [word.lstrip("+").split("=", 1) for word in typed() if "=" in word]
    joined = {f"{key.partition('@')[0]}/{value}": (key, value) for key, value in pairs}
    group, _, given = missing.rpartition("/")
    group, given = joined.get(missing, (group, given))
    heads = [n for n, line in enumerate(lines) if line.startswith("Available options")]
    if heads:
        return _unknown_option(group, given, lines[heads[0] + 1 :])
    word = overrides.given(group, typed())
    return f"{word}: there is no {group}={given}; {group} takes the name of one option"


def _several(word: str, _: list[str]) -> str:
    key, value = word.split("=", 1)
    if allowed.takes_list(key):
        return f"{word}: {key} takes a list; type {key}=[{value}]"
    alone = ""
    if allowed.takes_text(key) and "." in key:
        alone = f"; one value with a comma is typed {overrides.quoted(key, value)}"
    return f"{word}: several values make a sweep: add -m (or give one value){alone}"


# What Hydra says first, and the answer from its group and all the lines.
_ANSWERS: Mapping[str, Callable[[str, list[str]], str]] = {
    r"In '.*': Could not (?:find|load) '(.+)'": _no_option,
    r"Could not override '(.+)'\.": lambda key, _: unknown_key(key),
    r"Ambiguous value for argument '(.+)'": _several,
    r"Sweep parameters '(.+)' requires --multirun": _several,
    r"(range\(\) arg 3 must not be zero)": _no_step,
    r"(BasicSweeper does not support sweep type)": _interval,
    r"(Config group override must be a string or a list)": _null_group,
}
