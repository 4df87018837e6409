"""A release folder parsed: rows and records as models, and why some of it is neither.

Nothing here judges; the checks do. What cannot be parsed is kept as a problem and left out of the
parsed part, so that each check still works on all that can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeVar

from pydantic import ValidationError

from lab.records import Result
from lab.release.format import canonical, rows
from lab.release.format.rows import Row
from lab.release.verify.folder import Folder, Problem

R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Line:
    """A row and where it stands."""

    place: str
    row: Row


@dataclass(frozen=True)
class Raw:
    """A raw record, where it stands, and its file's hash."""

    place: str
    profile: str
    record: str
    result: Result
    plain: dict[str, Any]
    sha256: str


@dataclass
class Opened:
    """Everything that could be read of a release."""

    folder: Folder
    lines: dict[str, list[Line]] = field(default_factory=dict)
    raws: dict[tuple[str, str], Raw] = field(default_factory=dict)
    manifest: dict[str, Any] = field(default_factory=dict)
    # No strict JSON.
    unreadable: list[Problem] = field(default_factory=list)
    # JSON that does not fit the models.
    bad_rows: list[Problem] = field(default_factory=list)
    bad_records: list[Problem] = field(default_factory=list)

    def rows(self, table: str, model: type[R]) -> list[tuple[str, R]]:
        """(place, row) pairs of a table, in file order."""
        lines = self.lines.get(table, ())
        return [(line.place, line.row) for line in lines if isinstance(line.row, model)]

    def of_task(self, task: str) -> Sequence[Raw]:
        """The raw records of one task, in order of their place."""
        return [raw for raw in self.raws.values() if raw.result.task == task]


def open_folder(folder: Folder) -> Opened:
    """Parse every table, raw record and the manifest."""
    opened = Opened(folder)
    for place, data in folder.files.items():
        path = PurePosixPath(place)
        if path.parts[0] == "raw" and len(path.parts) == 3 and path.suffix == ".json":
            _open_raw(opened, place, path, data)
        elif path.suffix == ".jsonl" and path.stem in rows.TABLES and len(path.parts) == 1:
            opened.lines[path.stem] = list(_open_table(opened, path.stem, place, data))
        elif path.suffix == ".json":
            value = _parse(opened, place, data)
            if place == "release.json" and isinstance(value, dict):
                opened.manifest = value
    return opened


def _parse(opened: Opened, place: str, data: bytes | str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return canonical.parse(data)
    except canonical.BadJson as error:
        opened.unreadable.append(Problem(place, str(error)))
        return None


def _open_raw(opened: Opened, place: str, path: PurePosixPath, data: bytes) -> None:
    plain = _parse(opened, place, data)
    if plain is None:
        return
    try:
        result = Result.model_validate(plain, strict=False)
    except ValidationError as error:
        opened.bad_records += [Problem(place, text) for text in reasons(error)]
        return
    key = (path.parts[1], path.stem)
    opened.raws[key] = Raw(place, *key, result, plain, canonical.sha256(data))


def _open_table(opened: Opened, table: str, place: str, data: bytes) -> list[Line]:
    model = rows.TABLES[table]
    found = []
    texts = data.decode("utf-8", "replace").split("\n")
    if texts[-1]:
        opened.unreadable.append(Problem(place, "the last line does not end: cut short?"))
    for number, text in enumerate(texts[:-1], start=1):
        where = f"{place}:{number}"
        plain = _parse(opened, where, text)
        if plain is None:
            continue
        try:
            found.append(Line(where, model.model_validate(plain)))
        except ValidationError as error:
            opened.bad_rows += [Problem(where, reason) for reason in reasons(error)]
            continue
        if list(plain) != list(model.model_fields):
            opened.bad_rows.append(Problem(where, "columns are not in the schema's order"))
    return found


def reasons(error: ValidationError) -> list[str]:
    """One short reason a wrong field."""
    made = []
    for one in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in one["loc"])
        made.append(f"{where}: {one['msg']}" if where else one["msg"])
    return made
