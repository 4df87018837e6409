"""The entry: compose -> cell -> task -> record."""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path

if __package__ in (None, ""):
    # `python lab/run.py` puts lab/ itself on the path: its names would shadow others.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

try:
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import DictConfig

    from lab.cells import config, expectations
    from lab.command import compose, messages, overrides, runs, searches, sweeps, usage
    from lab.errors import UserError
    from lab.records import Result
    from lab.report import terminal
except ModuleNotFoundError as missing:
    from lab.command import outside

    outside.refuse(missing)

compose.register()

_single: list[tuple[Result, Path]] = []  # what a run outside a sweep came to, and where it lies
_errors: list[Exception] = []  # what kept a cell from its result


def job(composed: DictConfig) -> float:
    """One job of Hydra's: a cell in its directory. Nothing but Ctrl-C is raised to the launcher.

    Returns the objective that a search minimises; other sweepers look at none.
    """
    settings = HydraConfig.get()
    directory = Path(settings.runtime.output_dir)
    try:
        cell = compose.cell_from(composed, settings.overrides.task)
        if settings.mode != RunMode.MULTIRUN:
            _single.append((runs.run(cell, directory), directory))
        elif runs.skips(cell, directory):
            return searches.objective(runs.finished_before(cell, directory))
        else:
            return searches.objective(runs.run(cell, directory))
    except (UserError, OSError) as error:
        _errors.append(error)
    return math.inf


def _compose_and_run() -> int:
    """Hand over to Hydra, which calls `job` for every cell; what it raises is said in one line."""
    entry = hydra.main(
        version_base="1.3", config_path=str(config.config_directory()), config_name="config"
    )(job)
    try:
        overrides.refuse_unreadable(sys.argv[1:])
        entry()
    except KeyboardInterrupt:
        sweeps.say_interrupted("interrupted")
        return 1
    except Exception as error:
        if not messages.is_mistake(error):
            raise
        _errors.append(error)
    return messages.say(_errors, begun=sweeps.current is not None)


def _finish() -> int:
    """Show what came of the run or the sweep; the exit code that its records ask for."""
    if sweeps.current is not None:
        return sweeps.finish(sweeps.current)
    for result, directory in _single:
        terminal.show(result, directory)
    return expectations.exit_code(result for result, _ in _single) if _single else 0


def main() -> None:
    """The console script `lab`."""
    if usage.shown(sys.argv[1:]):
        return
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors come to us whole; we say them short
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = 1
    try:
        code = _compose_and_run()
    finally:
        try:
            code = max(code, _finish())
        except OSError as error:
            messages.print_error(messages.describe(error))
            code = 1
        except KeyboardInterrupt:
            sweeps.say_interrupted("interrupted while the tables were written")
            code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
