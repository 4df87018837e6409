"""One file a task. Each has `run(cell, directory) -> Outcome`, and may have `preflight(cell)`.

`preflight` raises UserError for what is missing or wrong before the first cell runs. Task modules
import no jax; what needs it runs in a worker process.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Protocol, cast

from lab.cells.cell import Cell, Outcome
from lab.errors import UserError


class Task(Protocol):
    """The interface of a task module."""

    def run(self, cell: Cell, directory: Path) -> Outcome:
        """Do the task for one cell; files go into `directory`."""


def load(name: str) -> Task:
    """The module of a task, named as an option of the configuration group.

    Raises:
        UserError: there is no such task.
    """
    known = [module.name for module in pkgutil.iter_modules(__path__)]
    if name not in known:
        raise UserError(f"task.name={name}: there is no such task; allowed are {', '.join(known)}")
    return cast("Task", importlib.import_module(f"lab.tasks.{name}"))


def preflight(cell: Cell) -> None:
    """Refuse, before the first cell runs, what this task cannot do; UserError says why."""
    check = getattr(load(cell.task), "preflight", None)
    if check is not None:
        check(cell)
