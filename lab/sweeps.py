"""What a sweep adds to runs: refuse bad cells up front, watch progress, aggregate at the end.

Every launcher runs jobs its own way (joblib in other processes, whose results never come back),
so the sweep relies on nothing but the files that each run leaves.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lab import messages, records, runs, tasks
from lab.cells import Cell
from lab.config import check, field_names, from_plain
from lab.errors import UserError
from lab.records import Result
from lab.report.progress import Watcher


@dataclass(frozen=True)
class Sweep:
    """A sweep that passed its preflight."""

    directory: Path
    cells: tuple[Cell, ...]
    watcher: Watcher


current: Sweep | None = None


def cell_from(composed: DictConfig, overrides: Sequence[str] = ()) -> Cell:
    """The cell of a composed Hydra configuration.

    Raises:
        UserError: a value is missing, out of range, or does not fit the others.
    """
    own = OmegaConf.masked_copy(composed, list(field_names()))
    if missing := sorted(OmegaConf.missing_keys(own)):
        raise UserError(f"no value for {', '.join(missing)}: set it, as in {missing[0]}=VALUE")
    plain = OmegaConf.to_container(own, resolve=True)
    assert isinstance(plain, dict)
    config = from_plain({str(key): value for key, value in plain.items()})
    check(config)
    return Cell(config, tuple(overrides))


def register_resolver() -> None:
    """Make `${cell_id:}` in hydra.sweep.subdir the id of the cell being run."""
    OmegaConf.register_new_resolver("cell_id", lambda *, _root_: cell_from(_root_).id, replace=True)


class Preflight(Callback):
    """Before a sweep's first job: compose every cell, refuse bad ones and duplicates."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:  # noqa: ANN401
        """Exit with code 2 for what is wrong; Hydra swallows any other exception."""
        global current  # noqa: PLW0603 - Hydra builds this object itself and keeps it to itself
        try:
            cells = _expand(config)
            _refuse_duplicates(cells)
            for cell in cells:
                tasks.preflight(cell)
        except (UserError, HydraException, OmegaConfBaseException) as error:
            messages.print_error(messages.describe(error))
            raise SystemExit(2) from None
        directory = Path(config.hydra.sweep.dir).resolve()
        current = Sweep(directory, cells, Watcher(directory, [cell.id for cell in cells]))
        current.watcher.start()


def _expand(config: DictConfig) -> tuple[Cell, ...]:
    """Every cell of the sweep, composed as the launcher will compose it."""
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    loader = hydra.config_loader
    axes = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(
        [*axes, *config.hydra.overrides.task]
    )
    jobs = BasicSweeper.split_arguments(parsed, max_batch_size=None)[0]
    return tuple(cell_from(loader.load_sweep_config(config, list(job)), job) for job in jobs)


def _refuse_duplicates(cells: Sequence[Cell]) -> None:
    counts = Counter(cell.id for cell in cells)
    repeated = [cell_id for cell_id, count in counts.items() if count > 1]
    if repeated:
        raise UserError(
            f"the sweep holds a cell more than once: {repeated[0]} ({counts[repeated[0]]} times); "
            "drop the repeated value"
        )


def results(sweep: Sweep) -> list[Result]:
    """The results of this sweep's cells, in its order; a cell that left none is made known."""
    found = []
    for cell in sweep.cells:
        path = sweep.directory / cell.id / runs.RESULT_FILE
        try:
            found.append(records.read(path, Result))
        except records.InvalidRecord as error:
            print(f"no result: {error}", file=sys.stderr)  # noqa: T201
    return found
