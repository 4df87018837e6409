"""Cells composed from the real configuration, and records of them, without running anything."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from pydantic import TypeAdapter

from lab import records
from lab.cells import config
from lab.cells.cell import Cell, Outcome
from lab.command import compose as command
from lab.command import runs
from lab.records import Device, Result, Status

GATE = {"passed": True, "error": 0.25, "bound": 1.0, "measure": "budgets"}
STARTED = "2030-01-01T00:00:00.000+00:00"
CPU = Device(platform="cpu", device_kind="cpu", device_count=1)
TPU = Device(platform="tpu", device_kind="TPU v5 lite", device_count=1)


@functools.cache
def cell(*overrides: str) -> Cell:
    """The cell that `python lab/run.py OVERRIDES` would run."""
    command.register()
    with initialize_config_dir(str(config.config_directory()), version_base="1.3"):
        return command.cell_from(compose("config", list(overrides)), overrides)


def changed(base: Cell, **changes: object) -> Cell:
    """The same cell with root keys of its configuration changed; much cheaper than composing."""
    return Cell(dataclasses.replace(base.config, **changes), base.overrides)


def benchmark(median_ms: float, samples: int = 20) -> dict[str, Any]:
    """A section whose samples lie within 1% of the median."""
    half = samples // 2
    spread = [
        1 + 0.01 * (i - half + 0.5 * (samples % 2 == 0)) / max(half, 1) for i in range(samples)
    ]
    return {
        "transfer_ms": 1.0,
        "lower_ms": 10.0,
        "compile_ms": 100.0,
        "first_call_ms": 5.0,
        "warmups_ms": [1.0],
        "samples_ms": [median_ms * x for x in spread],
        "median_ms": median_ms,
        "gate": GATE,
    }


def result(
    of: Cell,
    section: dict[str, Any] | None = None,
    *,
    status: str = "done",
    reason: str | None = None,
    device: Device = CPU,
) -> Result:
    """A record of a cell as `lab.command.runs` makes it; interpreted where Pallas meets a CPU."""
    interpret = of.config.kernel["name"].startswith("pallas") and device.platform == "cpu"
    kind = Result.model_fields[of.task].annotation
    level = "interpreted" if interpret else "measured"
    outcome = Outcome(
        section=TypeAdapter(kind).validate_python(section),
        evidence=None if of.task in records.LEVEL_FREE_TASKS else level,
        interpret=interpret,
        cache_state="cold",
        device=device,
    )
    return runs._result(of, outcome, status, reason, None, STARTED)  # type: ignore[arg-type]


def timed(*overrides: str, ms: float, device: Device = CPU) -> Result:
    """A done benchmark of the cell that the overrides compose."""
    return result(cell(*overrides), benchmark(ms), device=device)


def keep(made: Result, directory: Path) -> Path:
    """Write a record and its status as a run would; returns the run's directory."""
    directory.mkdir(parents=True, exist_ok=True)
    status = Status(
        schema_version=1,
        cell_id=made.cell_id,
        status=made.status,
        reason=made.reason,
        pid=1,
        started_at=made.started_at,
        finished_at=made.finished_at,
    )
    records.write(directory / records.RESULT_FILE, made)
    records.write(directory / records.STATUS_FILE, status)
    return directory
