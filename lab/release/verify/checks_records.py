"""Checks of the raw records: their schema, their inner agreement, their systems and origins."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

from lab.cells import cell as cells
from lab.release.build import tables
from lab.release.format import canonical, privacy, rows
from lab.release.verify.checks_tables import differences
from lab.release.verify.folder import Problem
from lab.release.verify.opened import Opened


def record_schema(opened: Opened) -> Iterator[Problem]:
    """Every raw record fits the schema of records and stands under its own name."""
    yield from opened.bad_records
    for raw in opened.raws.values():
        cell_id = raw.result.cell_id
        number = raw.record.removeprefix(f"{cell_id}.")
        if raw.record != cell_id and not (raw.result.task == "doctor" and number.isdigit()):
            yield Problem(raw.place, f"holds the record of {cell_id}")
        if raw.result.status == "done" and getattr(raw.result, raw.result.task) is None:
            yield Problem(raw.place, "is done, but has no section of its task")


def coherent_records(opened: Opened) -> Iterator[Problem]:
    """A record's names, lengths and seed are those of its resolved configuration."""
    for raw in opened.raws.values():
        cell, config = raw.plain["cell"], raw.plain["config"]
        pairs = {
            "task": config["task"]["name"],
            "kernel": config["kernel"]["name"],
            "candidate": config["candidate"]["name"],
            "scope": config["scope"]["name"],
            "dtype": config["dtype"]["name"],
            "shape": config["shape"]["name"],
            **{k: config[k] for k in ("seq", "q_len", "direction")},
        }
        for name, value in pairs.items():
            if cell[name] != value:
                yield Problem(raw.place, f"cell.{name} {cell[name]!r}, config says {value!r}")
        if raw.result.seed != config["seed"]:
            yield Problem(raw.place, f"seed {raw.result.seed}, config says {config['seed']}")
        if raw.result.task != cell["task"]:
            yield Problem(raw.place, f"task {raw.result.task}, cell says {cell['task']}")
        if not raw.result.cell_id.endswith(_identity(config)):
            yield Problem(raw.place, "its configuration is not the one that its cell's id names")
        if raw.result.started_at > raw.result.finished_at:
            yield Problem(raw.place, "finished before it started")


def _identity(config: dict[str, Any]) -> str:
    """The end of the cell's id that this configuration makes, or "" where it cannot be known.

    An id holds the hash of a candidate's file, and paths were scrubbed from the configuration.
    """
    if config["candidate"].get("path") or privacy.SCRUBBED_DIRECTORY in canonical.line(config):
        return ""
    return cells.digest(cells.without_outputs(config))


def systems(opened: Opened) -> Iterator[Problem]:
    """The systems are those of the records: no more, no fewer, nothing else about them."""
    counts: Counter[tuple[str, str]] = Counter()
    facts: dict[tuple[str, str], dict[str, Any]] = {}
    for raw in opened.raws.values():
        environment = raw.plain["environment"]
        key = (raw.profile, tables.system_id(raw.result.environment))
        counts[key] += 1
        facts[key] = {name: environment[name] for name in tables.SYSTEM_COLUMNS}
    seen = set()
    for place, row in opened.rows("systems", rows.System):
        key = (row.profile, row.system)
        seen.add(key)
        if key not in facts:
            yield Problem(place, "no record ran on this system")
        else:
            yield from differences(place, row, {**facts[key], "records": counts[key]})
    for profile, system in sorted(facts.keys() - seen):
        yield Problem("systems.jsonl", f"system {system} of {profile} is missing")


def bootstrap(opened: Opened) -> Iterator[Problem]:
    """Each look at the machine is told as its record has it."""
    for place, row in opened.rows("bootstrap", rows.Bootstrap):
        raw = opened.raws.get((row.profile, row.record))
        if raw is None:
            continue
        look: dict[str, Any] = raw.plain.get("doctor") or {}
        wanted = {
            "started_at": raw.plain["started_at"],
            "system": tables.system_id(raw.result.environment),
            "ready": look.get("ready", False),
            **{name: look.get(name) for name in ("pairing_fits", "canary_passed")},
            "advice": look.get("advice") if look else raw.plain["reason"],
        }
        yield from differences(place, row, wanted)


def provenance(opened: Opened) -> Iterator[Problem]:
    """Every record's origin is what its record says: command, configuration, code, times."""
    for place, row in opened.rows("provenance", rows.Provenance):
        raw = opened.raws.get((row.profile, row.record))
        if raw is None:
            continue
        plain = raw.plain
        wanted = {
            **{k: plain[k] for k in ("task", "cell_id", "status", "code_sha256")},
            **{k: plain[k] for k in ("started_at", "finished_at")},
            **{k: plain["environment"][k] for k in ("commit", "dirty")},
            "overrides": shlex.join(plain["overrides"]),
            "config_sha256": canonical.sha256(canonical.line(plain["config"]).encode()),
            "system": tables.system_id(raw.result.environment),
        }
        yield from differences(place, row, wanted)


CHECKS = {
    "record_schema": record_schema,
    "coherent_records": coherent_records,
    "systems": systems,
    "bootstrap": bootstrap,
    "provenance": provenance,
}
