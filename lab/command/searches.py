"""A sweep by Hydra's Optuna sweeper: what it may search, and what it minimises.

Optuna chooses a cell after it has seen the last ones, so nobody knows the cells before they run.
What can be refused is refused all the same before the first: every value of every axis is composed
once. A job returns its objective: the estimated time of a cell whose values were proved, and
infinity for any other, which therefore never wins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from omegaconf import DictConfig

from lab import records
from lab.cells import environment
from lab.cells.cell import Cell
from lab.command import axes
from lab.command.compose import cell_from
from lab.errors import UserError
from lab.records import RESULT_FILE, Result

SWEEPER = "optuna_sweeper"


def is_search(config: DictConfig) -> bool:
    """Whether this sweep's jobs are chosen by Optuna as it goes.

    Raises:
        UserError: settings of Optuna's for another sweeper.
    """
    search = SWEEPER in str(config.hydra.sweeper.get("_target_", ""))
    if "n_trials" in config.hydra.sweeper and not search:
        raise UserError("hydra.sweeper.n_trials is a search's: add hydra/sweeper=optuna")
    return search


def trials(config: DictConfig) -> int:
    """How many cells the search asks for; some of them may be the same."""
    return int(config.hydra.sweeper.n_trials)


def cells(config: DictConfig) -> tuple[Cell, ...]:
    """The first values of all axes together, then every other value beside the other firsts.

    Raises:
        UserError: an axis that is no option of the kernel, or a cell that no search can rate.
    """
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    loader = hydra.config_loader
    params = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(
        [*params, *config.hydra.overrides.task]
    )
    # A key that is given twice counts as given last, as Optuna takes it.
    last = {override.get_key_element(): _values(override) for override in parsed}
    if not any(len(values) > 1 for values in last.values()):
        raise UserError(
            "a search needs values to choose from: kernel.block_q=256,512, or +experiment=tune-..."
        )
    for key, values in last.items():
        if len(values) > 1 and not key.startswith(axes.PREFIX):
            raise UserError(
                f"{key}={','.join(values)}: a search compares the options of one kernel on one "
                f"case; give {key} one value, and run a search for each"
            )
    found = [cell_from(loader.load_sweep_config(config, list(job)), job) for job in _jobs(last)]
    for cell in found:
        _refuse_unrated(cell)
    return tuple(found)


def _values(override: Override) -> list[str]:
    if not override.is_sweep_override():
        return [override.get_value_element_as_str()]
    value = override.value()
    if isinstance(value, IntervalSweep):
        return [str(value.start), str(value.end)]
    return [str(v) for v in override.sweep_string_iterator()]


def _jobs(last: dict[str, list[str]]) -> Iterator[tuple[str, ...]]:
    first = {key: values[0] for key, values in last.items()}
    yield tuple(f"{key}={value}" for key, value in first.items())
    for key, values in last.items():
        for other in values[1:]:
            yield tuple(f"{k}={other if k == key else v}" for k, v in first.items())


def _refuse_unrated(cell: Cell) -> None:
    if cell.task != "compile":
        raise UserError(
            f"hydra/sweeper=optuna with task={cell.task}: a search minimises the estimated time of "
            "task=compile; add task=compile"
        )
    if not cell.config.compile.prove:
        raise UserError(
            "compile.prove=false: a search takes no cell whose values are not proved, so nothing "
            "could win; leave it true"
        )


def objective(result: Result | None) -> float:
    """Estimated ms, or cycles where the clock is not public; infinity for what must not win."""
    section = result.compile if result is not None else None
    rating = section.rating if section is not None else None
    return math.inf if rating is None else rating


def found(directory: Path) -> list[Result]:
    """The results of a search's directory that this code made."""
    results = []
    for path in sorted(directory.glob(f"*/{RESULT_FILE}")):
        try:
            result = records.read(path, Result)
        except records.InvalidRecord:
            continue
        if result.code_sha256 == environment.code_sha256():
            results.append(result)
    return results


def said(results: Sequence[Result]) -> list[str]:
    """The outcome of a search, in lines for the terminal."""
    costs = {r.cell_id: objective(r) for r in results}
    proved = [r for r in results if math.isfinite(costs[r.cell_id])]
    refused = sum(r.status == "unsupported" for r in results)
    rest = len(results) - len(proved) - refused
    count = f"{len(results)} cells: {len(proved)} proved, {refused} refused, {rest} not proved"
    if not proved:
        return [f"search: {count}; none may win"]
    best = min(proved, key=lambda r: costs[r.cell_id])
    assert best.compile is not None
    time = (
        f"{best.compile.estimated_cycles:,} cycles"
        if best.compile.estimated_ms is None
        else f"{best.compile.estimated_ms:.4g} ms"
    )
    return [
        f"search: {count}",
        f"best: {time} {best.cell_id}",
        *(i.line for i in best.compile.implementation),
    ]
