"""Where records come from: directories of runs, a packed campaign, or a release's own raw files.

A packed campaign is a zip file. It is a stranger's until proven otherwise: members are read in
memory, never extracted, within limits; a link, an absolute name or a `..` refuses the file.
"""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from lab.errors import UserError
from lab.records import RESULT_FILE, STATUS_FILE, Result
from lab.release.format import canonical

MAX_RECORD_BYTES = 8 * 2**20
MAX_MEMBERS = 20_000
MAX_TOTAL_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Found:
    """A file that should be a record: where it was and what it holds."""

    origin: str
    data: bytes


def read(sources: list[Path]) -> tuple[list[tuple[str, dict[str, object]]], list[str]]:
    """Read every record of the sources.

    Returns:
        (origin, plain record) pairs in the order of their origins, and the reasons why files that
        should be records are none.

    Raises:
        UserError: a source does not exist, is unsafe, or holds no run at all.
    """
    taken: list[tuple[str, dict[str, object]]] = []
    problems: list[str] = []
    for source in sources:
        before = len(taken) + len(problems)
        for found in _files(source, problems):
            try:
                plain = canonical.parse(found.data)
                Result.model_validate_json(found.data)
            except canonical.BadJson as error:
                problems.append(f"{found.origin}: {error}")
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                where = ".".join(str(part) for part in first["loc"]) or "the record"
                problems.append(f"{found.origin}: {where}: {first['msg']}")
            else:
                taken.append((found.origin, plain))
        if len(taken) + len(problems) == before:
            raise UserError(f"release.runs={source}: no {RESULT_FILE} in it; give finished runs")
    return taken, problems


def _files(source: Path, problems: list[str]) -> Iterator[Found]:
    if source.is_dir():
        yield from _from_directory(source, problems)
    elif source.is_file() and zipfile.is_zipfile(source):
        yield from _from_zip(source, problems)
    else:
        raise UserError(
            f"release.runs={source}: neither a directory of runs nor a packed campaign (.zip)"
        )


def _from_directory(source: Path, problems: list[str]) -> Iterator[Found]:
    results = sorted(source.rglob(RESULT_FILE))
    for status in sorted(source.rglob(STATUS_FILE)):
        if not (status.parent / RESULT_FILE).exists():
            origin = status.parent.relative_to(source).as_posix()
            problems.append(f"{origin}: a run without a result; resume the sweep, or take it out")
    # A release's raw records are files of any name.
    for path in results or sorted(source.glob("*.json")):
        if path.stat().st_size > MAX_RECORD_BYTES:
            problems.append(f"{path.relative_to(source).as_posix()}: over {MAX_RECORD_BYTES} bytes")
        else:
            yield Found(path.relative_to(source).as_posix(), path.read_bytes())


def _from_zip(source: Path, problems: list[str]) -> Iterator[Found]:
    with zipfile.ZipFile(source) as packed:
        members = packed.infolist()
        _refuse_unsafe(source, members)
        names = {member.filename for member in members}
        for member in sorted(members, key=lambda m: m.filename):
            folder, _, name = member.filename.rpartition("/")
            if name == STATUS_FILE and f"{folder}/{RESULT_FILE}".lstrip("/") not in names:
                problems.append(f"{folder}: a run without a result; resume the campaign")
            if name == RESULT_FILE:
                with packed.open(member) as file:
                    # The header's size may lie: never read past the limit.
                    data = file.read(MAX_RECORD_BYTES + 1)
                if len(data) > MAX_RECORD_BYTES:
                    problems.append(f"{member.filename}: over {MAX_RECORD_BYTES} bytes")
                else:
                    yield Found(member.filename, data)


def _refuse_unsafe(source: Path, members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MAX_MEMBERS or sum(m.file_size for m in members) > MAX_TOTAL_BYTES:
        raise UserError(
            f"{source.name}: over {MAX_MEMBERS} files or {MAX_TOTAL_BYTES} bytes unpacked; refused"
        )
    for member in members:
        path = PurePosixPath(member.filename)
        mode = member.external_attr >> 16
        if path.is_absolute() or ".." in path.parts or "\\" in member.filename:
            raise UserError(f"{source.name}: member {member.filename!r} leaves the folder; refused")
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise UserError(f"{source.name}: member {member.filename!r} is a link; refused")
