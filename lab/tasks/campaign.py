"""`task=campaign campaign=NAME`: a whole measurement in one command, packed into one file.

A look at the machine first, each kept; then the campaign's steps, each a sweep in a process of its
own. All of it lies in one directory (`campaign.out`): the same command resumes what was cut off.
Overrides given beside the campaign reach its steps, so `shape=tiny` makes a rehearsal.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lab import records
from lab.cells import expectations
from lab.cells.cell import Cell, Outcome
from lab.errors import UserError
from lab.records import RESULT_FILE, CampaignSection, CampaignStep, InvalidRecord, Result
from lab.release.build.pack import pack
from lab.worker import PACKAGE_ROOT

_OWN = ("task=", "campaign=", "campaign.", "hydra.", "hydra/")


def preflight(cell: Cell) -> None:
    """Refuse an incomplete campaign before anything runs."""
    if cell.config.campaign.name is None or not cell.config.campaign.steps:
        raise UserError("task=campaign needs campaign=NAME: kaggle-v5e, tpu, gpu or local-cpu")


def run(cell: Cell, directory: Path) -> Outcome:  # noqa: ARG001 - works in campaign.out
    """Look at the machine, run each step, pack the records."""
    campaign = cell.config.campaign
    out = Path(campaign.out or f"runs/campaign-{campaign.name}").resolve()
    passed_on = [text for text in cell.overrides if not text.startswith(_OWN)]
    until = None if campaign.limit_s is None else time.monotonic() + campaign.limit_s
    look, steps = _look(out, until)
    problem = _unfit(look, campaign.device, str(campaign.name))
    if problem is None:
        for step in campaign.steps:
            overrides = [*step["overrides"], *passed_on]
            steps.append(_step(str(step["name"]), overrides, out, until))
    package = out / f"{campaign.name}.zip"
    files = pack(out, package)
    section = CampaignSection(
        name=str(campaign.name), steps=steps, package=package.name if files else None
    )
    if problem is not None:
        return Outcome(section=section, evidence=None, status="failed", reason=problem)
    print(f"packed {files} files into {package}")  # noqa: T201 - what to bring back
    return Outcome(section=section, evidence=None)


def _look(out: Path, until: float | None) -> tuple[Result | None, list[CampaignStep]]:
    """One more look at the machine; earlier ones, which may have failed, stay as they are."""
    number = 1 + len(list(out.glob("doctor/*")))
    where = out / "doctor" / f"{number:02}"
    step = _lab(f"doctor {number}", ["task=doctor", f"hydra.run.dir={where}"], until)
    try:
        return records.read(where / RESULT_FILE, Result), [step]
    except InvalidRecord:
        return None, [step]


def _unfit(look: Result | None, wanted: str | None, name: str) -> str | None:
    """Why the campaign cannot run on this machine; None if it can."""
    if look is None:
        return "the look at the machine left no record; run task=doctor to see why"
    if surprises := expectations.surprises(look):
        return surprises[0]
    if wanted is not None and look.environment.platform != wanted:
        return (
            f"campaign={name} measures on a {wanted}, and jax sees a {look.environment.platform} "
            f"here; to rehearse, add campaign.device={look.environment.platform} shape=tiny"
        )
    return None


def _step(name: str, overrides: Sequence[str], out: Path, until: float | None) -> CampaignStep:
    return _lab(name, ["-m", *overrides, f"hydra.sweep.dir={out / name}"], until)


def _lab(name: str, arguments: Sequence[str], until: float | None) -> CampaignStep:
    """Run the lab itself in a process of its own; its output goes to the terminal."""
    started = time.monotonic()
    left = None if until is None else until - started
    said = [a for a in arguments if "hydra." not in a]
    step = functools.partial(CampaignStep, name=name, arguments=said)
    if left is not None and left <= 0:
        return step(as_expected=False, exit_code=None, seconds=0.0, note=_LATE)
    path = os.pathsep.join(p for p in (str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")) if p)
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.run", *arguments],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    note = None
    try:
        process.wait(timeout=left)
    except subprocess.TimeoutExpired:
        note = _LATE
    finally:
        if process.poll() is None:
            process.terminate()  # the sweep records what it was doing, and ends
            process.wait()
    seconds = round(time.monotonic() - started, 1)
    code = process.returncode
    return step(as_expected=code == 0, exit_code=code, seconds=seconds, note=note)


_LATE = "stopped at campaign.limit_s; the same command resumes"
