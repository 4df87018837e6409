"""Errors as people read them: what was given, what is allowed, what to do."""

from __future__ import annotations

import re
import sys

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException


def print_error(text: str) -> None:
    """One message on standard error."""
    print(f"error: {text}", file=sys.stderr)  # noqa: T201


def describe(error: BaseException) -> str:
    """The message of an error that a user can act on, without Hydra's inner paths."""
    cause = error.__cause__
    if isinstance(error, HydraException) and isinstance(cause, OmegaConfBaseException):
        return _omegaconf(cause, str(error))
    if isinstance(error, OmegaConfBaseException):
        return _omegaconf(error, "")
    return _hydra(str(error))


def _omegaconf(error: OmegaConfBaseException, context: str) -> str:
    first = str(error.msg or error).splitlines()[0]
    key = error.full_key or ""
    override = re.search(r"override '?([^\s']+)", context)
    given = f" (given: {override.group(1)})" if override else ""
    return f"{key}: {first}{given}" if key and key not in first else f"{first}{given}"


def _hydra(text: str) -> str:
    """Keep what was wrong and what is available; drop search paths and the hint about `+`."""
    text = text.partition("\nConfig search path")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    missing = re.match(r"In '.*': Could not find '([^/]+)/(.+)'", lines[0]) if lines else None
    if missing and "Available options" in text:
        start = next(i for i, line in enumerate(lines) if line.startswith("Available options"))
        group, given = missing.groups()
        allowed = ", ".join(lines[start + 1 :])
        return f"{group}={given}: there is no such {group}; allowed are {allowed}"
    unknown = re.match(r"Could not override '(.+)'\.", lines[0]) if lines else None
    if unknown:
        return f"{unknown.group(1)}: there is no such key; `--cfg job` prints the keys there are"
    return "; ".join(lines)
