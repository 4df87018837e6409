"""task=audit: how often the grader is wrong, measured on every candidate the lab has."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lab import candidates, worker
from lab.cells.cell import Cell, Outcome
from lab.errors import UserError
from lab.grading.audit import figures as audit_figures
from lab.grading.audit import summary as audit
from lab.grading.cases import SUITE, Case
from lab.records import AuditSection

# One thread a worker: the workers themselves keep the cores busy.
WORKER_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
BASE_SEED = 20_000  # calibration uses seeds below 20,000: see calibration.json
REPEATS = 5
CHUNK = 21  # candidates a worker process: bounds what it keeps in memory


@dataclass(frozen=True)
class Size:
    """How much of the audit runs."""

    seeds: dict[str, int]
    cases: tuple[Case, ...]
    per_class: int | None  # known-bad candidates of a class; None for all
    controls: int | None


QUICK_CASES = (
    "plain", "plain-one-hot", "plain-large", "plain-moving-max", "plain-negative", "causal",
    "cached", "grouped", "decode-2-causal-padded", "decode-2-causal-grouped",
    "padded", "padded-negative", "padded-below-sentinel", "padded-poisoned", "empty",
)  # fmt: skip
SIZES = {
    "quick": Size(
        {"known-bad": 1, "control": 2, "low-precision": 1},
        tuple(case for case in SUITE if case.name in QUICK_CASES),
        per_class=1,
        controls=5,
    ),
    "full": Size({"known-bad": 2, "control": 5, "low-precision": 2}, SUITE, None, None),
}


def preflight(cell: Cell) -> None:
    """Refuse an unknown size before anything runs.

    Raises:
        UserError: `audit.size` or `audit.workers` out of range.
    """
    settings = cell.config.audit
    if settings.size not in SIZES:
        raise UserError(f"audit.size={settings.size}: allowed are {', '.join(SIZES)}")
    if settings.workers < 1:
        raise UserError(f"audit.workers={settings.workers}: allowed is at least 1")


def run(cell: Cell, directory: Path) -> Outcome:
    """Run all trials in worker processes, then write tables, figures and the summary."""
    size = SIZES[cell.config.audit.size]
    chosen = choose(candidates.configs(), size)
    tables = _trials(cell, chosen, size, directory)
    found = audit.Audit(**{name: _frame(name, rows) for name, rows in tables.items()})
    files = write(found, cell.config.audit.size, directory)
    summary = json.loads((directory / "summary.json").read_text())
    section = AuditSection(size=cell.config.audit.size, summary=summary, files=files)
    return Outcome(section=section, evidence=None, cache_state="cold", regime="rubric suite")


def choose(configs: list[dict[str, Any]], size: Size) -> list[dict[str, Any]]:
    """The candidates of an audit of this size: the first of each class, or all of them."""
    counts: dict[str, int] = {}
    chosen = []
    for config in configs:
        control = config["kind"] == "control"
        key = "control" if control else str(config["fault_class"])
        limit = size.controls if control else size.per_class
        # Pallas kernels are interpreted, slowly: a quick audit leaves them to the full one.
        if limit is not None and config["name"].startswith("pallas"):
            continue
        counts[key] = counts.get(key, 0) + 1
        if limit is None or counts[key] <= limit:
            chosen.append(config)
    return chosen


def relation_cases(cases: tuple[Case, ...]) -> list[str]:
    """One case a regime, and those that ask for relations themselves."""
    regimes: dict[str, str] = {}
    for case in cases:
        regimes.setdefault(case.regime, case.name)
    return sorted({*regimes.values(), *(case.name for case in cases if case.relations)})


def _trials(
    cell: Cell, chosen: list[dict[str, Any]], size: Size, directory: Path
) -> dict[str, list[Any]]:
    workers = cell.config.audit.workers
    count = max(workers, -(-len(chosen) // CHUNK))
    chunks = [chosen[i::count] for i in range(count)]

    def one(index: int) -> dict[str, list[Any]]:
        log = directory / f"worker-{index}"
        log.mkdir(exist_ok=True)
        payload = {
            "candidates": chunks[index],
            "policy": cell.config.dtype.name,
            "cases": [case.name for case in size.cases],
            "relation_cases": relation_cases(size.cases),
            "seeds": size.seeds,
            "repeats": REPEATS,
            "base_seed": BASE_SEED + cell.config.seed * 1000,
        }
        return worker.call(
            "lab.grading.audit.trials:run",
            {"payload": payload},
            dict,
            deadline_s=cell.config.deadline_s,
            directory=log,
            env=WORKER_ENVIRONMENT,
        )

    began = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(one, index) for index in range(count)]
        for done, _ in enumerate(as_completed(futures), 1):
            said = f"audit: {done} of {count} parts after {time.monotonic() - began:.0f} s"
            print(said, file=sys.stderr, flush=True)  # noqa: T201
    answers = [future.result() for future in futures]
    return {name: [row for answer in answers for row in answer[name]] for name in answers[0]}


COLUMNS = {
    "checks": ["candidate", "check", "gate", "case", "output"],
    "equivalents": ["candidate", "case", "reason"],
}


def _frame(name: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=COLUMNS.get(name))
    keys = [key for key in ("candidate", "case", "seed") if key in frame.columns]
    return frame.sort_values(keys, kind="stable").reset_index(drop=True)


def write(found: audit.Audit, size: str, directory: Path) -> list[str]:
    """Write tables, figures and summary.json; returns the file names."""
    tables = {
        "trials": found.trials,
        "failed_checks": found.checks,
        "verdicts": found.verdicts,
        "equivalents": found.equivalents,
        "kill_by_class": audit.kill_by_class(found),
        "confusion": audit.confusion(found),
        "gates": audit.marginal(found),
        "margins": audit.margins(found),
        "curves": audit.curves(found),
    }
    for name, table in tables.items():
        table.to_csv(directory / f"{name}.csv", index=False, float_format="%.6g")
    audit_figures.heatmap(audit.heatmap(found), directory / "heatmap")
    audit_figures.curves(tables["curves"], directory / "curves")
    summary = audit.summary(found, size)
    (directory / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    figures = [f"{name}.{kind}" for name in ("heatmap", "curves") for kind in ("png", "svg")]
    return [*(f"{name}.csv" for name in tables), *figures, "summary.json"]
