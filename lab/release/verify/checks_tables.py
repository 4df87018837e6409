"""Checks of the tables: schema, keys, and each row against its raw record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from lab.release.build import tables
from lab.release.format import rows
from lab.release.format.rows import CaseRow, RecordRow
from lab.release.verify.folder import Problem
from lab.release.verify.opened import Opened, Raw
from lab.report import comparisons

# Which task a table's rows come from.
_TASKS = {
    "benchmarks": "benchmark",
    "correctness": "correctness",
    "rubric": "rubric",
    "estimates": "compile",
    "bootstrap": "doctor",
}


def row_schema(opened: Opened) -> Iterator[Problem]:
    """Every row fits its table's schema: columns, types, units, ranges."""
    yield from opened.bad_rows


def keys(opened: Opened) -> Iterator[Problem]:
    """Each table is sorted by its key, and no key stands twice."""
    for table in rows.TABLES:
        lines = opened.lines.get(table, [])
        found = [rows.sort_key(table, line.row) for line in lines]
        for key, count in Counter(found).items():
            if count > 1:
                yield Problem(f"{table}.jsonl", f"{count} rows of {'/'.join(map(str, key))}")
        for before, after, line in zip(found, found[1:], lines[1:], strict=False):
            if after < before:
                yield Problem(line.place, "stands out of order")


def records(opened: Opened) -> Iterator[Problem]:
    """Every row has its raw record, unchanged, and every record has its rows."""
    named: Counter[tuple[str, str, str]] = Counter()
    for table in (*_TASKS, "provenance"):
        for place, row in opened.rows(table, RecordRow):
            named[table, row.profile, row.record] += 1
            raw = opened.raws.get((row.profile, row.record))
            if raw is None:
                yield Problem(place, f"has no raw record raw/{row.profile}/{row.record}.json")
                continue
            if row.raw_sha256 != raw.sha256:
                yield Problem(place, f"raw_sha256 is not the hash of {raw.place}")
            if raw.result.task != _TASKS.get(table, raw.result.task):
                yield Problem(place, f"{raw.place} is a record of task {raw.result.task}")
    for (profile, record), raw in opened.raws.items():
        task = raw.result.task
        home = next((name for name, of in _TASKS.items() if of == task), None)
        if home is None:
            yield Problem(raw.place, f"a record of task {task} has no place in a release")
            continue
        section = raw.result.correctness
        wanted = 1 if task != "correctness" else len(section.checks) if section else 0
        for name, count in ((home, wanted), ("provenance", 1)):
            have = named[name, profile, record]
            if have != count:
                yield Problem(raw.place, f"has {have} rows in {name}.jsonl, not {count}")


def cases(opened: Opened) -> Iterator[Problem]:
    """Every row describes the same case as its record: kernel, shape, seed, status and all."""
    for table in ("benchmarks", "correctness", "rubric", "estimates"):
        for place, row in opened.rows(table, CaseRow):
            raw = opened.raws.get((row.profile, row.record))
            if raw is not None:
                yield from differences(place, row, _case(raw))


def _case(raw: Raw) -> dict[str, Any]:
    """The columns of a case read off the plain record, not through the builder's code."""
    plain, cell, config = raw.plain, raw.plain["cell"], raw.plain["config"]
    shape = config["shape"]
    same = ("scope", "seq", "q_len", "dtype", "shape", "direction")
    return {
        "kernel": cell["kernel"] if cell["candidate"] == "reference" else cell["candidate"],
        "kernel_options": comparisons.kernel_options(raw.result),
        **{name: cell[name] for name in same},
        **{k: shape[k] for k in ("batch", "q_heads", "kv_heads", "head_dim", "causal", "padding")},
        **{k: plain[k] for k in ("cell_id", "seed", "regime", "evidence", "interpret", "status")},
        "reason": plain["reason"],
        "system": tables.system_id(raw.result.environment),
    }


def differences(place: str, row: rows.Row, wanted: dict[str, Any]) -> Iterator[Problem]:
    """The columns in which a row is not as wanted."""
    for column, value in wanted.items():
        if getattr(row, column) != value:
            yield Problem(place, f"{column} {getattr(row, column)!r}, its record says {value!r}")


CHECKS = {"row_schema": row_schema, "keys": keys, "records": records, "cases": cases}
