"""`task=tune tune=NAME target=CHIP`: search a kernel's sizes, and enter the winners in the table.

Each case is a search by Optuna in a process of its own, in the run's directory: the same command
with `hydra.run.dir=DIR` resumes it. `tune.runs=[DIR,...]` enters what was searched before.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Literal

from lab import records
from lab.cells.cell import Cell, Outcome
from lab.errors import UserError
from lab.kernels import winners
from lab.records import RESULT_FILE, InvalidRecord, Result, TunedCase, TuneSection
from lab.tasks import compile as compile_task
from lab.worker import PACKAGE_ROOT

RECORDS = PACKAGE_ROOT / "evidence" / "tuning"


def preflight(cell: Cell) -> None:
    """Refuse what cannot search, before the first search.

    Raises:
        UserError: no cases, a folder that is none, or a package that is missing.
    """
    tune = cell.config.tune
    for name in tune.runs:
        if not Path(name).is_dir():
            raise UserError(f"tune.runs={name}: not a folder; give one that holds searches")
    if tune.runs:
        return
    if not tune.cases:
        raise UserError("task=tune needs tune=NAME, the cases to search: flash; or tune.runs=[DIR]")
    for name in tune.only:
        if name not in tune.cases:
            raise UserError(f"tune.only={name}: no such case; allowed are {', '.join(tune.cases)}")
    compile_task.preflight(cell)
    if importlib.util.find_spec("optuna") is None:
        raise UserError("task=tune searches with Optuna: pip install 'attention-lab[tune]'")


def run(cell: Cell, directory: Path) -> Outcome:
    """Search every case, then enter the winners; a case without one is named."""
    tune, target = cell.config.tune, cell.config.target.name
    if tune.runs:
        found = {name: _results(Path(name)) for name in tune.runs}
    else:
        names = tune.only or list(tune.cases)
        for name in names:
            case = dict(tune.cases[name])
            given = [*case["cell"], f"target={target}"]
            # What is run today is beaten, or stays.
            _lab(["task=compile", "kernel=flash", *given], directory / name)
            search = [f"+experiment={case['experiment']}", *given, *case.get("search", [])]
            _lab(["hydra/sweeper=optuna", *search], directory / name)
        found = {name: _results(directory / name) for name in names}
    table = Path(tune.table).resolve() if tune.table else winners.TABLE
    entries = list(winners.table(table)) if table.exists() else []
    cases = []
    for name, results in found.items():
        best = winner([r for r, _ in results], target)
        if best is None:
            cases.append(_none(name, f"no proved cell of {target} among {len(results)}"))
            continue
        path = next(path for result, path in results if result is best)
        entry = entry_of(best, path)
        entries, outcome = entered(entries, entry)
        if outcome == "entered":
            _keep_record(path, target, best.cell_id, Path(tune.records or RECORDS))
        cases.append(
            TunedCase(
                case=name,
                outcome=outcome,
                reason=None,
                cell_id=best.cell_id,
                options=entry.options,
                estimated_ms=entry.earned.estimated_ms,
                estimated_cycles=entry.earned.estimated_cycles,
                cells=len(results),
            )
        )
    records.write_atomically(table, winners.text(entries))
    missing = [case.case for case in cases if case.outcome == "none"]
    return Outcome(
        section=TuneSection(target=target, cases=cases),
        evidence=None,
        status="failed" if missing else "done",
        reason=f"no winner: {', '.join(missing)}" if missing else None,
    )


def winner(results: list[Result], target: str) -> Result | None:
    """The proved cell of a target with the shortest estimate; the first of equals."""
    rated = [
        (result.compile.rating, result)
        for result in results
        if result.compile and result.compile.target == target and result.compile.rating is not None
    ]
    return min(rated, key=lambda pair: pair[0], default=(None, None))[1]


def entry_of(result: Result, path: Path) -> winners.Entry:
    """The entry that a record earns.

    Raises:
        UserError: its values were not proved, it has no estimate, or sizes that are not named.
    """
    section, kernel = result.compile, result.config["kernel"]
    if section is None or section.values_proved is not True or section.proof is None:
        raise UserError(f"{result.cell_id}: its values were not proved, so the table takes it not")
    if section.estimated_cycles is None or section.proof.fingerprint is None:
        raise UserError(f"{result.cell_id}: it has no estimate; {section.no_estimate}")
    if kernel["name"] != "flash" or result.cell.candidate != "reference":
        raise UserError(f"{result.cell_id}: the table is of kernel=flash")
    shape, cell = result.config["shape"], result.cell
    direction: winners.Direction = (
        "backward"
        if cell.direction == "backward"
        else "decode"
        if cell.q_len <= winners.MAX_QUERIES
        else "forward"
    )
    name = f"flash {direction}"
    sizes = next((i.sizes for i in section.implementation if i.name == name), None)
    if sizes is None:
        raise UserError(f"{result.cell_id}: it does not say which sizes {name} had")
    options = {option: sizes[size] for size, option in winners.OPTIONS[direction].items()}
    of = winners.shape_class(
        direction,
        (shape["batch"], shape["q_heads"], cell.q_len, shape["head_dim"]),
        (shape["batch"], shape["kv_heads"], cell.seq, shape["head_dim"]),
        result.config["dtype"]["input"],
        causal=shape["causal"],
    )
    return winners.Entry(
        **of.model_dump(),
        target=section.target,
        device_kind=section.device_kind,
        options=options,
        earned=winners.Earned(
            cell_id=result.cell_id,
            record=winners.sha256(path),
            estimated_ms=section.estimated_ms,
            estimated_cycles=section.estimated_cycles,
            values_proved=section.values_proved,
            fingerprint=section.proof.fingerprint,
            code_sha256=result.code_sha256,
            kernel_sha256=winners.sources(direction),
            libtpu=section.libtpu,
        ),
    )


def entered(
    entries: list[winners.Entry], new: winners.Entry
) -> tuple[list[winners.Entry], Literal["entered", "kept"]]:
    """The table with `new` in it, unless the same kernel has a faster entry there already."""
    old = next((e for e in entries if e.key == new.key), None)
    if (
        old is not None
        and old.earned.kernel_sha256 == new.earned.kernel_sha256
        and old.earned.estimated_cycles <= new.earned.estimated_cycles
    ):
        return entries, "kept"
    return [e for e in entries if e is not old] + [new], "entered"


def _lab(overrides: list[str], directory: Path) -> None:
    """A sweep or a search; what it cannot do, its records say."""
    given = ["-m", *overrides, f"hydra.sweep.dir={directory.resolve()}"]
    subprocess.run(
        [sys.executable, str(PACKAGE_ROOT / "lab" / "run.py"), *given],
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _results(directory: Path) -> list[tuple[Result, Path]]:
    found = []
    for path in sorted(directory.glob(f"**/{RESULT_FILE}")):
        try:
            found.append((records.read(path, Result), path))
        except InvalidRecord:
            continue
    return found


def _none(name: str, reason: str) -> TunedCase:
    return TunedCase(case=name, outcome="none", reason=reason, cells=0)


def _keep_record(path: Path, target: str, cell_id: str, folder: Path) -> None:
    (folder / target).mkdir(parents=True, exist_ok=True)
    (folder / target / f"{cell_id}.json").write_bytes(path.read_bytes())
