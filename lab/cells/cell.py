"""A cell: one fully resolved configuration, its identity, and the outcome of running it."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from lab.cells import config as lab_config
from lab.cells.config import LabConfig
from lab.records import CellNames, Device, Evidence, Section, StatusName
from lab.truth.problems import POLICIES, DtypePolicy, Shape

# Where results are written, and what is done with those that are there, says nothing about what
# a cell is.
_NOT_IDENTITY = (
    ("resume",),
    ("release", "out"),
    ("release", "evidence"),
    ("campaign", "out"),
    ("tune",),
)
_INPUT_FILES = (("candidate", "path"),)
# The configuration that a task's slug need not name, because the task does not look at it.
_KERNEL_FREE_TASKS = (
    "report",
    "compare",
    "release",
    "verify",
    "doctor",
    "audit",
    "campaign",
    "tune",
)


@dataclass(frozen=True)
class Outcome:
    """What a task returns: its section of the record, and how the cell went.

    `evidence` is the level (None for tasks that say nothing about a kernel); `device` is as the
    worker saw it; `regime` is what the inputs were drawn from, if not the configured one. Whether
    the outcome is the expected one is read from the record itself: see lab/cells/expectations.py.
    """

    section: Section | None
    evidence: Evidence | None
    status: StatusName = "done"
    reason: str | None = None
    interpret: bool | None = None
    cache_state: str | None = None
    device: Device = field(default_factory=Device)
    regime: str | None = None

    @classmethod
    def computed(
        cls,
        section: Section | None,
        device: Device,
        *,
        interpreted: bool,
        cache_state: str = "cold",
        regime: str | None = None,
        failure: str | None = None,
    ) -> Outcome:
        """What a worker computed: interpreted, or measured on its device."""
        evidence: Evidence = "interpreted" if interpreted else "measured"
        status: StatusName = "failed" if failure else "done"
        return cls(section, evidence, status, failure, interpreted, cache_state, device, regime)


def without_outputs(plain: dict[str, Any]) -> dict[str, Any]:
    """A copy of a plain configuration without the keys that say nothing about what a cell is."""
    kept = copy.deepcopy(plain)
    for *parents, key in _NOT_IDENTITY:
        section = kept
        for parent in parents:
            section = section.get(parent, {})
        section.pop(key, None)
    return kept


def digest(canonical: dict[str, Any]) -> str:
    """Eight hex digits of the hash of a canonical configuration: the end of a cell's id."""
    return hashlib.sha256(json.dumps(canonical, sort_keys=True).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Cell:
    """One fully resolved configuration and how it was asked for."""

    config: LabConfig
    overrides: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        """The task's name."""
        return self.config.task.name

    @property
    def q_len(self) -> int:
        """Query length T, defaults applied."""
        return self.config.seq if self.config.q_len is None else self.config.q_len

    def problem_shape(self) -> Shape:
        """The shape of this cell's arrays."""
        return lab_config.problem_shape(self.config)

    def policy(self) -> DtypePolicy:
        """The dtype policy of this cell."""
        return POLICIES[self.config.dtype.name]

    @cached_property
    def id(self) -> str:
        """A readable slug plus 8 hex digits of the hash of the canonical resolved config."""
        return f"{self._slug()}-{digest(self.canonical())}"

    def canonical(self) -> dict[str, Any]:
        """The configuration that identifies this cell: plain values, defaults filled in.

        Output paths are left out; an input path is replaced by the sha256 of its file.
        """
        plain = without_outputs(self.plain())
        for group, key in _INPUT_FILES:
            path = plain[group][key]
            if path is not None and (file := Path(path).expanduser()).is_file():
                plain[group][key] = hashlib.sha256(file.read_bytes()).hexdigest()
        return plain

    def plain(self) -> dict[str, Any]:
        """The whole configuration as JSON values, q_len filled in."""
        return {**lab_config.to_plain(self.config), "q_len": self.q_len}

    def names(self) -> CellNames:
        """The cell in plain names and integers, as records keep it."""
        config = self.config
        return CellNames(
            task=self.task,
            kernel=config.kernel["name"],
            scope=config.scope.name,
            seq=config.seq,
            q_len=self.q_len,
            dtype=config.dtype.name,
            shape=config.shape.name,
            candidate=config.candidate.name,
            direction=str(config.direction),
            target=config.target.name if self.task == "compile" else None,
        )

    def _slug(self) -> str:
        names = self.names()
        parts: list[str] = [self.task]
        if self.task not in _KERNEL_FREE_TASKS:
            parts.append(names.kernel if names.candidate == "reference" else names.candidate)
            parts.append(names.scope)
            parts.append(
                f"s{names.seq}" if names.q_len == names.seq else f"s{names.seq}-t{names.q_len}"
            )
            parts.append(names.dtype)
            parts.append(names.direction)
            if names.target:
                parts.append(names.target)
        return re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(parts))
