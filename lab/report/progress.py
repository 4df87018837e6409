"""A progress display for sweeps, fed by the status files that runs leave.

It works under every launcher, because it asks nobody but the disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lab import records
from lab.records import STATUS_FILE, Status

POLL_S = 0.25
LONG_S = 60  # from here on it is worth saying how long the rest will take


class Watcher:
    """Shows on standard error which cells of a sweep are done, and which one runs.

    On a terminal it is a live bar; elsewhere it is one line a finished cell. How long the rest will
    take is said from the cells so far.
    """

    def __init__(
        self,
        directory: Path,
        cell_ids: Sequence[str] = (),
        already: Collection[str] = (),
        *,
        most: int | None = None,
    ) -> None:
        """Watch the cells of a sweep; `already` are done and will not be run again.

        A search's cells are found as they appear; `most` is how many there can be.
        """
        self._directory, self._most = directory, most
        if most is not None:
            cell_ids = [path.parent.name for path in directory.glob(f"*/{STATUS_FILE}")]
        self._paths = {cell_id: directory / cell_id / STATUS_FILE for cell_id in cell_ids}
        self._finished, self._already = set(already), len(already)
        self._began = 0.0
        # What an earlier sweep left in cells that are run again says nothing of this one.
        self._stale = {cell_id: _mark(path) for cell_id, path in self._paths.items()}
        self._stop = threading.Event()
        self._console = Console(stderr=True)
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def start(self) -> None:
        """Begin to watch, in a background thread."""
        self._began = time.monotonic()
        if self._finished:
            count = f"{len(self._finished)} of {len(self._paths)} cells were done before"
            self._console.print(count, highlight=False)
        self._thread.start()

    def stop(self) -> None:
        """Take a last look and end the display."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        columns = (
            TextColumn("cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        live = self._console.is_terminal
        with Progress(*columns, console=self._console, disable=not live, transient=True) as bar:
            task = bar.add_task("", total=self._total)
            while True:
                last = self._stop.is_set()
                running = self._look(bar if live else None)
                text = f"{self._left()}  {running}".strip()
                bar.update(task, completed=len(self._finished), description=text)
                if last:
                    return
                self._stop.wait(POLL_S)

    @property
    def _total(self) -> int:
        return len(self._paths) if self._most is None else self._most

    def _left(self) -> str:
        """How long the rest takes if it is like the cells so far; "" for under a minute."""
        done, elapsed_s = len(self._finished) - self._already, time.monotonic() - self._began
        if self._most is not None or not done:
            return ""  # a search may end at any time
        left_s = elapsed_s / done * (self._total - len(self._finished))
        return f"about {left_s / 60:,.0f} min left" if left_s >= LONG_S else ""

    def _look(self, bar: Progress | None) -> str:
        running = ""
        if self._most is not None:
            for path in self._directory.glob(f"*/{STATUS_FILE}"):
                self._paths.setdefault(path.parent.name, path)
        for cell_id, path in self._paths.items():
            if cell_id in self._finished:
                continue
            if _mark(path) == self._stale.get(cell_id):
                continue
            try:
                status = records.read(path, Status)
            except records.InvalidRecord:
                continue
            if status.status == "running":
                running = running or cell_id
                continue
            self._finished.add(cell_id)
            reason = escape(f": {status.reason}") if status.reason else ""
            count = f"{len(self._finished):>4}/{self._total}"
            left = f"  [{said}]" if (said := self._left()) else ""
            line = f"{count}  {status.status:<11} {cell_id}{reason}{escape(left)}"
            (bar.console if bar else self._console).print(line, highlight=False, soft_wrap=True)
        return running


def _mark(path: Path) -> tuple[int, int] | None:
    """What changes when a file is replaced; None where there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns
