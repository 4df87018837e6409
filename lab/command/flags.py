"""Hydra's flags, and the words of a command line that are none."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser

from lab.errors import UserError

_HELP = "`--help` shows what a command line looks like"


def read(arguments: Sequence[str]) -> list[str]:
    """The overrides, in order.

    Raises:
        UserError: a flag that there is not, that lacks its value, or that the lab cannot obey.
    """
    parser = get_args_parser()
    # Else argparse prints its usage and exits.
    parser.error = _refuse  # type: ignore[method-assign]
    flags = parser.parse_args(list(arguments))
    _refuse_foreign(flags)
    return list(flags.overrides)


def _refuse(message: str) -> NoReturn:
    text = re.sub(r"^argument (\S+?)(/\S+)*: ", r"\1: ", message)
    unknown = text.removeprefix("unrecognized arguments: ")
    if unknown == text:
        raise UserError(f"{text}; {_HELP}")
    first = unknown.split()[0]
    if not first.startswith("-"):
        raise UserError(f"{first}: a flag stands between the overrides; put -m and the like first")
    raise UserError(f"there is no such flag: {unknown}; {_HELP}")


def _refuse_foreign(flags: argparse.Namespace) -> None:
    for name in ("config_name", "config_path", "experimental_rerun"):
        if (given := getattr(flags, name)) is not None:
            flag = f"--{name.replace('_', '-')}={given}"
            raise UserError(f"{flag}: the lab has one configuration; leave this flag out")
    if flags.config_dir is not None and not Path(flags.config_dir).is_dir():
        raise UserError(f"--config-dir={flags.config_dir}: no such directory; give one, or none")
    if flags.package is not None and flags.cfg is None:
        raise UserError(
            f"--package={flags.package}: it is for --cfg job; add that, or leave it out"
        )
