"""Errors as people read them: what was given, what is allowed, what to do."""

from __future__ import annotations

import difflib
import errno
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from lab.cells.config import LabConfig
from lab.errors import UserError

MANY = 20
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# Options that a package of ours adds to Hydra's.
_EXTRAS = {"hydra/launcher": {"joblib": "parallel"}}


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


def _omegaconf(error: OmegaConfBaseException, context: str) -> str:
    override = re.search(r"override '?([^\s'=]+)(?:=([^\s']*))?", context)
    key = override.group(1) if override else str(error.full_key or "")
    if override and "is not a ListConfig" in str(error.msg):
        given = override.group(2)
        return f"{key}={given}: it takes a list: {key}=[{given}]"
    if isinstance(error, ConfigAttributeError | ConfigKeyError):
        return unknown_key(key)
    reason = str(error.msg or error).splitlines()[0]
    # OmegaConf names the type but not the key, or the key but not what was given.
    return reason if key in reason else f"{key}: {reason}"


def unknown_key(key: str) -> str:
    """That there is no such key, with the nearest one."""
    *parents, last = key.split(".")
    level: object = OmegaConf.structured(LabConfig)
    for parent in parents:
        level = level.get(parent) if isinstance(level, DictConfig) and parent in level else None
    siblings = [str(name) for name in level] if isinstance(level, DictConfig) else []
    hint = suggest(last, siblings) or "; `--cfg job` prints those there are"
    return f"{key}: there is no such key{hint}"


def _unknown_option(group: str, given: str, options: list[str]) -> str:
    if given in _EXTRAS.get(group, {}):
        extra = _EXTRAS[group][given]
        return f"{group}={given} is not installed: pip install 'attention-lab[{extra}]'"
    if len(options) > MANY:
        allowed = f"; `--help` lists the {len(options)} there are"
    else:
        allowed = f"; allowed are {', '.join(options)}"
    return f"{group}={given}: there is no such {group}{suggest(given, options)}{allowed}"


def _hydra(text: str) -> str:
    """Keep what was wrong and what is available; drop search paths and documentation links."""
    text = text.partition("\nConfig search path")[0].partition("\nSee https://")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else "the command line is not understood"
    missing = re.match(r"In '.*': Could not find '(.+)/([^/]+)'", first)
    if missing and "Available options" in text:
        start = next(i for i, line in enumerate(lines) if line.startswith("Available options"))
        group, given = missing.groups()
        return _unknown_option(group, given, lines[start + 1 :])
    if unknown := re.match(r"Could not override '(.+)'\.", first):
        return unknown_key(unknown.group(1))
    if several := re.match(r"Ambiguous value for argument '(.+)'", first):
        return f"{several.group(1)}: several values make a sweep: add -m (or give one value)"
    if first.startswith("Config group override must be a string or a list"):
        # Hydra names neither the group nor the value; `null` is how a command line gives another.
        groups = [word.removesuffix("=null") for word in sys.argv[1:] if word.endswith("=null")]
        return f"{', '.join(groups) or 'a group'} takes the name of an option; `--help` lists them"
    return "; ".join(lines)
