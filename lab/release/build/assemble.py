"""Build a release: raw records in, a folder out, the same bytes each time.

`render` is a pure function from records to files. `update` takes runs in for one profile, keeps the
raw records of the others, and replaces the folder as a whole.
"""

from __future__ import annotations

import getpass
import re
import shutil
import socket
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lab.errors import UserError
from lab.records import LEVEL_FREE_TASKS, SECTIONS, Result
from lab.release import RELEASE_SCHEMA_VERSION, RELEASE_VERSION
from lab.release.build import evidence, intake, profiles, tables
from lab.release.build.profiles import Profile
from lab.release.build.tables import Entry
from lab.release.format import canonical, card, croissant, privacy, schema
from lab.release.verify.opened import reasons

CHECKSUMS = "SHA256SUMS"
MANIFEST = "release.json"
_GENERIC_NAMES = {"root", "user", "runner", "ubuntu", "localhost", "jupyter", "docker", "debian"}


@dataclass(frozen=True)
class Built:
    """What `update` did: the profile's name in the release, its records, the release's files."""

    profile: str
    records: int
    files: int
    refused: tuple[str, ...] = ()


def update(
    out: Path, profile: Profile, sources: Sequence[Path], *, pages: Path | None = None
) -> Built:
    """Add or replace one profile of the release at `out`; without sources, rebuild it.

    The evidence pages of all profiles go into the folder `pages`, if one is given.

    Returns:
        What was built; with `refused`, nothing was written, and these are all the reasons.

    Raises:
        UserError: `out` is no release, or a source cannot be read at all.
    """
    kept = _kept(out)
    if not sources:
        return _rebuild(out, profile, kept, pages)
    taken, problems = intake.read(list(sources))
    taken = [(origin, plain) for origin, plain in taken if _counts(plain)]
    scrubbed = [(origin, privacy.scrub(plain)) for origin, plain in taken]
    problems += _names_left(taken, scrubbed)
    results = [(origin, Result.model_validate(plain)) for origin, plain in scrubbed]
    problems += _twins(results)
    name = profiles.instance_name(profile, [result for _, result in results])
    problems += profiles.unmet(profile, [result for _, result in results])
    if problems:
        return Built(name, len(results), 0, tuple(problems))
    entries = _entries(name, (result for _, result in results))
    for other in sorted(set(kept) - {name}):
        entries += _raw_entries(out, other)
    try:
        return _finish(out, name, entries, pages)
    except ValidationError as error:  # a record fits its schema, but no row of a table
        return Built(name, len(results), 0, tuple(f"{error.title}: {r}" for r in reasons(error)))


def _rebuild(out: Path, profile: Profile, kept: Sequence[str], pages: Path | None) -> Built:
    """Everything again, from the release's own raw records."""
    shipped = profiles.load_all()
    own = [name for name in kept if profiles.template_of(name, {profile.name: profile})]
    if not own:
        raise UserError(
            f"release={profile.name}: {out} has no raw records of it; give release.runs=[DIR]"
        )
    entries: list[Entry] = []
    problems = []
    for name in kept:
        entries += (found := _raw_entries(out, name))
        if template := profiles.template_of(name, shipped):
            problems += profiles.unmet(template, [entry.result for entry in found])
    if problems:
        return Built(profile.name, len(entries), 0, tuple(problems))
    return _finish(out, own[0], entries, pages)


def _finish(out: Path, name: str, entries: Sequence[Entry], pages: Path | None) -> Built:
    files = render(entries)
    _replace(out, files)
    if pages is not None:
        evidence.write(pages, evidence.pages(entries))
    return Built(name, sum(entry.profile == name for entry in entries), len(files))


def _raw_entries(out: Path, name: str) -> list[Entry]:
    read, broken = intake.read([out / "raw" / name])
    if broken:
        raise UserError(f"{out}: {'; '.join(broken)}; repair it, or build elsewhere")
    return _entries(name, (Result.model_validate(plain) for _, plain in read))


def render(entries: Sequence[Entry]) -> dict[str, bytes]:
    """Every file of the release, by path relative to its folder."""
    shipped = profiles.load_all()
    names = sorted({entry.profile for entry in entries})
    used = {name: found for name in names if (found := profiles.template_of(name, shipped))}
    made = tables.make(entries)
    published = max(entry.result.finished_at for entry in entries)[:10]
    data = {
        name: canonical.lines(row.model_dump(mode="json") for row in found)
        for name, found in made.items()
    }
    files = {f"{name}.jsonl": text for name, text in data.items()}
    files |= {f"raw/{e.profile}/{e.record}.json": e.raw for e in entries}
    files |= {f"schema/{name}.json": canonical.page(schema.table_schema(name)) for name in data}
    files["croissant.json"] = canonical.page(croissant.describe(data, published))
    files[MANIFEST] = canonical.page(_manifest(entries, used, made))
    files |= card.texts(made, entries, used, published)
    files[CHECKSUMS] = checksums(files)
    return files


def checksums(files: dict[str, bytes]) -> bytes:
    """SHA256SUMS over the files, as `sha256sum --check` reads it."""
    listed = sorted(name for name in files if name != CHECKSUMS)
    return "".join(f"{canonical.sha256(files[name])}  {name}\n" for name in listed).encode()


def _manifest(
    entries: Sequence[Entry], used: dict[str, Profile], made: dict[str, list[Any]]
) -> dict[str, Any]:
    return {
        "schema_version": RELEASE_SCHEMA_VERSION,
        "version": RELEASE_VERSION,
        "profiles": {
            name: {
                "definition": profile.model_dump(mode="json"),
                "records": sum(entry.profile == name for entry in entries),
            }
            for name, profile in used.items()
        },
        "tables": {name: len(found) for name, found in made.items()},
    }


def _entries(profile: str, results: Iterable[Result]) -> list[Entry]:
    """Entries with a file name each; a second look at the machine gets a number."""
    seen: dict[str, int] = defaultdict(int)
    made = []
    for result in sorted(results, key=lambda r: (r.cell_id, r.started_at)):
        seen[result.cell_id] += 1
        count = seen[result.cell_id]
        record = result.cell_id if count == 1 else f"{result.cell_id}.{count}"
        made.append(Entry(profile, record, result, raw_bytes(result)))
    return made


def raw_bytes(result: Result) -> bytes:
    """The canonical text of a raw record: absent sections left out.

    So is what the record never had, because the lab that wrote it did not know of it.
    """
    return canonical.page(
        result.model_dump(mode="json", exclude_unset=True, exclude=_absent(result))
    )


def _absent(result: Result) -> set[str]:
    return {name for name in SECTIONS if getattr(result, name) is None}


def _counts(plain: dict[str, Any]) -> bool:
    """Records of tasks that only read others (report, verify ...) are no data."""
    return plain["task"] == "doctor" or plain["task"] not in LEVEL_FREE_TASKS


def _names_left(taken: Sequence[tuple[str, Any]], scrubbed: Sequence[tuple[str, Any]]) -> list[str]:
    """What would name a person or a machine although paths are gone."""
    users = set().union(*(privacy.users_in(plain) for _, plain in taken)) if taken else set()
    own = {socket.gethostname(), getpass.getuser()} - _GENERIC_NAMES
    names = {name for name in users | own if len(name) > 4}
    problems = []
    for origin, plain in scrubbed:
        problems += [f"{origin}: {problem}; take it out" for problem in privacy.find_in(plain)]
        text = canonical.line(plain)
        problems += [
            f"{origin}: names {name!r}; take it out"
            for name in sorted(names)
            if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
        ]
    return problems


def _twins(results: Sequence[tuple[str, Result]]) -> list[str]:
    origins: dict[str, list[str]] = defaultdict(list)
    for origin, result in results:
        if result.task != "doctor":
            origins[result.cell_id].append(origin)
    return [
        f"{cell}: {len(found)} records ({', '.join(found)}); give one"
        for cell, found in sorted(origins.items())
        if len(found) > 1
    ]


def _kept(out: Path) -> list[str]:
    """The profiles already in the release at `out`."""
    if not out.exists() or not any(out.iterdir()):
        return []
    if not (out / MANIFEST).is_file():
        raise UserError(
            f"release.out={out}: neither empty nor a release ({MANIFEST} is missing); "
            "name another folder"
        )
    return sorted(folder.name for folder in (out / "raw").iterdir() if folder.is_dir())


def _replace(out: Path, files: dict[str, bytes]) -> None:
    """Write beside, then swap: the folder is the old release or the new one, never a mixture."""
    fresh, old = out.with_name(f".{out.name}.new"), out.with_name(f".{out.name}.old")
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    for name, data in files.items():
        path = fresh / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    if out.exists():
        out.rename(old)
    fresh.rename(out)
    shutil.rmtree(old, ignore_errors=True)
