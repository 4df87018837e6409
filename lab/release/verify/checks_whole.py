"""Checks of the release as a whole: its version, its counts, and that it can be built again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from lab.release import RELEASE_SCHEMA_VERSION, RELEASE_VERSION
from lab.release.build import assemble as build
from lab.release.build import tables
from lab.release.build.assemble import MANIFEST
from lab.release.verify.folder import Problem
from lab.release.verify.opened import Opened, Raw


def versions(opened: Opened) -> Iterator[Problem]:
    """The release has the schema version that this lab reads."""
    for key, ours in (("schema_version", RELEASE_SCHEMA_VERSION), ("version", RELEASE_VERSION)):
        theirs = opened.manifest.get(key)
        if theirs != ours or isinstance(theirs, bool):
            yield Problem(MANIFEST, f"{key} {theirs!r}; this lab verifies {ours!r}")


def counts(opened: Opened) -> Iterator[Problem]:
    """The manifest's counts of records and rows are those of the files."""
    listed = opened.manifest.get("tables", {})
    have = {table: len(lines) for table, lines in opened.lines.items()}
    if listed != have:
        yield Problem(MANIFEST, f"tables {listed}, the files hold {have}")
    for name, facts in opened.manifest.get("profiles", {}).items():
        found = sum(profile == name for profile, _ in opened.raws)
        if facts.get("records") != found:
            yield Problem(MANIFEST, f"{facts.get('records')} records of {name}, there are {found}")


def generated(opened: Opened) -> Iterator[Problem]:
    """Card, schema, descriptions and tables are what this lab builds from these raw records."""
    if not opened.raws:
        yield Problem("raw", "holds no readable record")
        return
    entries = [tables.Entry(r.profile, r.record, r.result, _bytes(opened, r)) for r in _all(opened)]
    made = build.render(entries)
    for name in sorted(made.keys() | opened.folder.files.keys()):
        if PurePosixPath(name).parts[0] == "raw":
            again = next((build.raw_bytes(e.result) for e in entries if _name(e) == name), None)
            if again is not None and again != opened.folder.files.get(name):
                yield Problem(name, "is not in the canonical form of a raw record")
        elif name not in opened.folder.files:
            yield Problem(name, "would be built from these records, but is not there")
        elif name in made and made[name] != opened.folder.files[name]:
            yield Problem(name, "differs from what is built from these records")
        elif name not in made:
            yield Problem(name, "is not built from these records")


def _all(opened: Opened) -> list[Raw]:
    return sorted(opened.raws.values(), key=lambda raw: raw.place)


def _bytes(opened: Opened, raw: Raw) -> bytes:
    return opened.folder.files[raw.place]


def _name(entry: tables.Entry) -> str:
    return f"raw/{entry.profile}/{entry.record}.json"


CHECKS = {"versions": versions, "counts": counts, "generated": generated}
