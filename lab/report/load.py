"""Find and read the records under given directories; what cannot be read is named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from lab import records
from lab.errors import UserError
from lab.records import RESULT_FILE, STATUS_FILE, Result, Status


@dataclass(frozen=True)
class Entry:
    """A record and the directory that it was read from, relative to the directory asked for.

    `path` is the same directory, absolute: a page makes its links from it.
    """

    result: Result
    directory: str
    path: Path

    def link(self, out: Path) -> str:
        """The record as a page in `out` links to it: relative, quoted for a URL."""
        target = os.path.relpath(self.path / "result.json", out.resolve())
        return quote(Path(target).as_posix())


@dataclass(frozen=True)
class Loaded:
    """What was found: records in a stable order, and files or runs passed over, with reasons."""

    entries: tuple[Entry, ...]
    skipped: tuple[str, ...]


def load(directories: Sequence[Path]) -> Loaded:
    """Read every result.json under the directories.

    A cell that one machine ran more than once is kept in its latest run; the others are named as
    skipped. Reports are no cells: what an earlier report left is passed over in silence.

    Raises:
        UserError: a directory does not exist, or none of them holds a run.
    """
    for directory in directories:
        if not directory.is_dir():
            raise UserError(
                f"report.runs: {directory} is no directory; give run or sweep directories"
            )
    newest: dict[tuple[str | None, ...], Entry] = {}
    skipped: list[str] = []
    seen: set[Path] = set()
    for directory in directories:
        root = directory.resolve()
        # With several roots, a path says which one it lies under.
        under = "" if len(directories) == 1 else f"{directory}/"
        for path in sorted(root.rglob(STATUS_FILE)):
            if path in seen:  # the directories overlap
                continue
            seen.add(path)
            relative = under + path.parent.relative_to(root).as_posix()
            try:
                result = _read(path.parent)
            except records.InvalidRecord as problem:
                skipped.append(under + str(problem).replace(f"{root}/", ""))
                continue
            if result is None:
                continue
            entry = Entry(result, relative, path.parent)
            ran = result.environment
            key = (result.cell_id, ran.cpu_model, ran.device_kind)
            other = newest.get(key)
            if other is not None:
                older, entry = sorted((other, entry), key=lambda e: e.result.finished_at)
                skipped.append(f"{older.directory}: an older run of {result.cell_id}")
            newest[key] = entry
    if not newest and not skipped:
        names = ", ".join(map(str, directories)) or "[]"
        raise UserError(f"report.runs={names}: no runs there; give directories that a run has made")
    entries = sorted(newest.values(), key=_order)
    return Loaded(tuple(entries), tuple(skipped))


def _read(directory: Path) -> Result | None:
    """The record of a run; None for a report, finished or in the making."""
    status = records.read(directory / STATUS_FILE, Status)
    if status.cell_id.startswith("report-"):
        return None
    if status.status == "running":
        raise records.InvalidRecord(
            f"{directory}: the run was cut off or still goes on (status running); "
            "to run it again, resume its sweep"
        )
    return records.read(directory / RESULT_FILE, Result)


def _order(entry: Entry) -> tuple[str | int, ...]:
    cell = entry.result.cell
    return (
        cell.task,
        cell.scope,
        cell.kernel,
        cell.candidate,
        cell.seq,
        cell.q_len,
        entry.result.cell_id,
        entry.result.environment.cpu_model,
        entry.result.environment.device_kind or "",
    )
