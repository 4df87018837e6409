"""What a Python that lacks the lab's packages is told. Imports nothing that it might lack."""

from __future__ import annotations

import sys
from typing import NoReturn


def refuse(missing: ModuleNotFoundError) -> NoReturn:
    """Say in one line which environment to use, and leave with exit code 2.

    Raises:
        ModuleNotFoundError: again, if the missing module is the lab's own: a bug.
        SystemExit: otherwise.
    """
    name = str(missing.name).split(".")[0]
    if name == "lab":
        raise missing
    print(  # noqa: T201
        f"error: {sys.executable} has no {name}: activate the environment that `make` builds "
        "(source .venv/bin/activate), or install the lab into this one (pip install .)",
        file=sys.stderr,
    )
    sys.exit(2)
