"""What a sweep adds to runs: refuse bad cells up front, watch progress, aggregate at the end.

Every launcher runs jobs its own way (joblib in other processes, whose results never come back),
so the sweep relies on nothing but the files that each run leaves.
"""

from __future__ import annotations

import math
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from lab import records, report, tasks
from lab.cells import environment, expectations
from lab.cells.cell import Cell
from lab.command import axes, lock, messages, runs, searches
from lab.command.compose import cell_from
from lab.errors import UserError
from lab.records import RESULT_FILE, Result
from lab.report import host, terminal
from lab.report.progress import Watcher


@dataclass(frozen=True)
class Sweep:
    """A sweep that passed its preflight; a search's cells are not known before they run: None."""

    directory: Path
    cells: tuple[Cell, ...] | None
    watcher: Watcher

    @property
    def resumption(self) -> str:
        """How to run what is left, in words."""
        return f"the same command and hydra.sweep.dir={terminal.shorter(self.directory)}"


CELL_SUBDIRECTORY = "${cell_id:}"
current: Sweep | None = None


class Preflight(Callback):
    """Before the first job: compose every cell, refuse bad ones and duplicates.

    Hydra swallows any exception of a callback, but lets SystemExit through: its code is 2.
    """

    def on_run_start(self, config: DictConfig, **_: Any) -> None:  # noqa: ANN401
        """Refuse a bad run before its directory is made."""
        with _refusing():
            cell = cell_from(config)
            refuse_unread_path([cell])
            tasks.preflight(cell)

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:  # noqa: ANN401
        """Refuse a bad sweep before its directory is made; else begin to watch it."""
        global current  # noqa: PLW0603 - Hydra builds this object itself and keeps it to itself
        with _refusing():
            _refuse_other_subdirectories(config)
            search = searches.is_search(config)
            cells = searches.cells(config) if search else _expand(config)
            if not search:
                _refuse_duplicates(cells)
            refuse_unread_path(cells)
            for cell in cells:
                tasks.preflight(cell)
            directory = Path(config.hydra.sweep.dir).resolve()
            directory.mkdir(parents=True, exist_ok=True)
            lock.hold(directory)
        if search:
            watcher = Watcher(directory, most=searches.trials(config))
            current = Sweep(directory, None, watcher)
            watcher.start()
            return
        already = {cell.id for cell in cells if runs.skips(cell, directory / cell.id)}
        for cell in cells:
            if cell.id in already:
                runs.settle(cell, directory / cell.id)
        watcher = Watcher(directory, [cell.id for cell in cells], already)
        current = Sweep(directory, cells, watcher)
        watcher.start()


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - Hydra would make a bug of ours a warning
        if messages.is_mistake(error):
            messages.print_error(messages.describe(error))
            raise SystemExit(2) from None
        traceback.print_exc()
        raise SystemExit(1) from None


def _refuse_other_subdirectories(config: DictConfig) -> None:
    sweep = cast("dict[str, str]", OmegaConf.to_container(config.hydra.sweep, resolve=False))
    pattern = sweep["subdir"]
    if pattern != CELL_SUBDIRECTORY:
        raise UserError(
            f"hydra.sweep.subdir={pattern}: a cell's directory is named by its id; "
            "leave this key alone and choose hydra.sweep.dir"
        )


def _expand(config: DictConfig) -> tuple[Cell, ...]:
    """Every cell of the sweep, composed as the launcher will compose it."""
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    loader = hydra.config_loader
    params = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(
        [*params, *config.hydra.overrides.task]
    )
    for override in parsed:
        if override.is_discrete_sweep() and not list(override.sweep_iterator()):
            raise UserError(messages.matches_nothing(str(override.input_line)))
    (jobs,) = BasicSweeper.split_arguments(parsed, max_batch_size=None)
    fitted = axes.fitted(jobs)
    for note in fitted.notes:
        print(note, file=sys.stderr)  # noqa: T201
    return tuple(cell_from(loader.load_sweep_config(config, job), job) for job in fitted.jobs)


def refuse_unread_path(cells: Sequence[Cell]) -> None:
    """Refuse a candidate's file or function that no cell of a run or sweep would read."""
    candidates = [cell.config.candidate for cell in cells]
    if any(c.kind == "custom" for c in candidates):
        return
    unread = {
        "candidate.path": any(c.path is not None for c in candidates),
        "candidate.function": any(c.function and c.kind == "reference" for c in candidates),
    }
    for key, given in unread.items():
        if given:
            raise UserError(f"{key} is read for candidate=custom alone; add candidate=custom")


def _refuse_duplicates(cells: Sequence[Cell]) -> None:
    counts = Counter(cell.id for cell in cells)
    repeated = [cell_id for cell_id, count in counts.items() if count > 1]
    if repeated:
        raise UserError(
            f"the sweep holds a cell more than once: {repeated[0]} ({counts[repeated[0]]} times); "
            "drop the repeated value"
        )


def say_interrupted(what: str) -> None:
    """Say so, and how a sweep goes on."""
    again = f"; resume with {current.resumption}" if current else ""
    messages.print_error(f"{what}{again}")


def finish(sweep: Sweep) -> int:
    """Aggregate what the sweep's directory holds and show it; the exit code of its cells."""
    sweep.watcher.stop()
    found = _results(sweep)
    here = environment.cpu_model()
    if any(
        r.benchmark and (r.environment.platform, r.environment.cpu_model) == ("cpu", here)
        for r in found
    ):
        host.measure_once(sweep.directory, here)
    # A sweep of reports has nothing to aggregate.
    worth_it = any(result.task != "report" for result in found)
    built = (
        (
            # A sweep that was resumed on another machine was asked to be one; its rows are marked.
            report.build([sweep.directory], sweep.directory / "report", merge_machines=True)
        )
        if worth_it
        else None
    )
    terminal.show_sweep(found, sweep.directory, built)
    if sweep.cells is None:
        return _finish_search(found, sweep)
    stopped = sum(result.status == "interrupted" for result in found)
    if missing := len(sweep.cells) - len(found) + stopped:
        of = f"{missing} of {len(sweep.cells)} cells"
        messages.print_error(f"{of} did not finish; run what is left with {sweep.resumption}")
    return 1 if missing else expectations.exit_code(found)


def _results(sweep: Sweep) -> list[Result]:
    if sweep.cells is None:
        return searches.found(sweep.directory)
    found = []
    for cell in sweep.cells:
        with suppress(records.InvalidRecord):
            found.append(records.read(sweep.directory / cell.id / RESULT_FILE, Result))
    return found


def _finish_search(found: Sequence[Result], sweep: Sweep) -> int:
    """Say who won; 1 where nobody may, or where a cell did not come to an end."""
    for line in searches.said(found):
        print(line)  # noqa: T201
    stopped = [result for result in found if result.status == "interrupted"]
    if stopped:
        messages.print_error(f"the search did not finish; run what is left with {sweep.resumption}")
    proved = any(math.isfinite(searches.objective(result)) for result in found)
    return 0 if proved and not stopped else 1
