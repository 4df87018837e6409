"""The entry: compose -> cell -> task -> record.

python lab/run.py task=correctness kernel=pallas
python lab/run.py -m kernel=pallas,xla seq=128,256,512,1024,2048
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

if __package__ in (None, ""):
    # `python lab/run.py` puts lab/ itself on the path, where `import lab` is not found and our
    # module names would shadow others.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from lab import config, expectations, messages, runs, sweeps, tasks
from lab.errors import UserError
from lab.records import Result

config.register()
sweeps.register_resolver()

_single: list[Result | UserError] = []  # what a run outside a sweep came to


def job(composed: DictConfig) -> None:
    """One job of Hydra's: a cell in its directory. Nothing but Ctrl-C is raised to the launcher."""
    settings = HydraConfig.get()
    directory = Path(settings.runtime.output_dir)
    in_sweep = settings.mode == RunMode.MULTIRUN
    try:
        cell = sweeps.cell_from(composed, settings.overrides.task)
        if in_sweep and cell.config.resume and runs.finished_before(cell, directory):
            return
        if not in_sweep:
            tasks.preflight(cell)
        result = runs.run(cell, directory)
    except UserError as mistake:
        _single.append(mistake)
        return
    if not in_sweep:
        _single.append(result)


def _finish_single() -> int:
    from lab.report import terminal

    outcome = _single[0]
    if isinstance(outcome, UserError):
        messages.print_error(str(outcome))
        return 2
    terminal.show(outcome)
    return expectations.exit_code([outcome])


def _finish_sweep(sweep: sweeps.Sweep) -> int:
    from lab.report import build, terminal

    sweep.watcher.stop()
    results = sweeps.results(sweep)
    report = build([sweep.directory], sweep.directory / "report")
    terminal.show_sweep(results, report)
    return max(expectations.exit_code(results), int(len(results) < len(sweep.cells)))


def main() -> None:
    """The console script `lab`."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors come to us whole; we say them short
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    entry = hydra.main(
        version_base="1.3", config_path=str(config.config_directory()), config_name="config"
    )(job)
    code = 0
    try:
        entry()
    except (HydraException, OmegaConfBaseException) as error:
        messages.print_error(messages.describe(error))
        code = 2
    except KeyboardInterrupt:
        messages.print_error("interrupted; the same command with its directory resumes a sweep")
        code = 1
    finally:
        if sweeps.current is not None:
            code = max(code, _finish_sweep(sweeps.current))
        elif _single:
            code = max(code, _finish_single())
    sys.exit(code)


if __name__ == "__main__":
    main()
