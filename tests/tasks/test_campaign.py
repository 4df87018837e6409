"""A campaign: looks kept, steps run with what was passed on, limits honoured, records packed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lab import worker
from lab.cells.cell import Cell, Outcome
from lab.cells.config import CampaignConfig
from lab.errors import UserError
from lab.records import CampaignStep, DoctorSection
from lab.tasks import campaign

STEPS = [
    {"name": "correctness", "overrides": ["task=correctness"]},
    {"name": "benchmark", "overrides": ["+experiment=published"]},
]


class Fake:
    """Stands in for the lab's own process: writes the record that a look would leave."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.record = record
        self.calls: list[list[str]] = []

    def __call__(self, name: str, arguments: list[str], until: float | None) -> CampaignStep:
        assert until is None
        self.calls.append(list(arguments))
        if "task=doctor" in arguments:
            where = next(a for a in arguments if a.startswith("hydra.run.dir=")).partition("=")[2]
            Path(where).mkdir(parents=True)
            (Path(where) / "result.json").write_text(json.dumps(self.record))
            (Path(where) / "notes.txt").write_text("stays behind")
        return CampaignStep(name=name, arguments=[], as_expected=True, exit_code=0, seconds=0.1)


def look(*, ready: bool = True, platform: str | None = "tpu") -> dict[str, Any]:
    section = DoctorSection(
        ready=ready, device=None, pairing_fits=ready, pairing=[], canary_passed=ready, canary="x",
        tasks={}, advice=None if ready else "pip install the pair that works", next_command="y",
    )  # fmt: skip
    cell = {"task": "doctor", "kernel": "xla", "scope": "attention", "seq": 1, "q_len": 1,
            "dtype": "bf16", "shape": "tiny", "candidate": "reference", "direction": "forward",
            "target": None}  # fmt: skip
    environment = {"python": "3.11", "jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": None,
                   "hydra": "1.3.8", "omegaconf": "2.3", "numpy": "2.4", "platform": platform,
                   "device_kind": platform, "device_count": 1, "cpu_model": "m", "cpu_count": 1,
                   "commit": None, "dirty": None, "flags": {}}  # fmt: skip
    return {
        "schema_version": 1, "task": "doctor", "cell_id": "doctor-00000000", "status": "done",
        "reason": None, "evidence": None, "cell": cell, "config": {}, "overrides": [], "seed": 0,
        "regime": "normal", "interpret": None, "cache_state": None, "code_sha256": "0" * 64,
        "environment": environment, "started_at": "a", "finished_at": "b", "error": None,
        "doctor": section.model_dump(),
    }  # fmt: skip


def run(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...] = ()
) -> Outcome:
    monkeypatch.setattr(campaign, "_lab", fake)
    settings = CampaignConfig(name="c", device="tpu", out=str(tmp_path / "out"), steps=STEPS)
    config = type("Config", (), {"campaign": settings})()
    return campaign.run(Cell(config, overrides), tmp_path)


def test_steps_run_in_order_with_what_was_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake(look())
    given = ("task=campaign", "campaign=c", "campaign.out=x", "shape=tiny", "deadline_s=9")
    outcome = run(fake, tmp_path, monkeypatch, given)
    assert outcome.status == "done"
    assert [step.name for step in outcome.section.steps] == [
        "doctor 1", "correctness", "benchmark",
    ]  # fmt: skip
    assert fake.calls[2] == [
        "-m", "+experiment=published", "shape=tiny", "deadline_s=9",
        f"hydra.sweep.dir={(tmp_path / 'out').resolve() / 'benchmark'}",
    ]  # fmt: skip


def test_records_alone_are_packed_the_same_way_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(Fake(look()), tmp_path, monkeypatch)
    with zipfile.ZipFile(tmp_path / "out" / "c.zip") as packed:
        assert packed.namelist() == ["doctor/01/result.json"]
        assert packed.infolist()[0].date_time[0] == 1980


def test_every_look_is_kept_and_a_bad_one_stops_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = Fake(look(ready=False))
    outcome = run(bad, tmp_path, monkeypatch)
    assert outcome.status == "failed"
    assert "pip install the pair that works" in (outcome.reason or "")
    assert len(bad.calls) == 1
    run(Fake(look()), tmp_path, monkeypatch)
    with zipfile.ZipFile(tmp_path / "out" / "c.zip") as packed:
        assert packed.namelist() == ["doctor/01/result.json", "doctor/02/result.json"]


def test_another_platform_is_refused_with_the_way_to_rehearse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(Fake(look(platform="cpu")), tmp_path, monkeypatch)
    assert outcome.status == "failed"
    assert "add campaign.device=cpu shape=tiny" in (outcome.reason or "")


def test_nothing_starts_after_the_limit() -> None:
    step = campaign._lab("benchmark", ["-m"], time.monotonic() - 1)
    assert (step.as_expected, step.exit_code) == (False, None)
    assert "resumes" in step.note


def test_a_step_is_stopped_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    real = subprocess.Popen
    monkeypatch.setattr(campaign.subprocess, "Popen", lambda _, **__: real(sleeper))
    started = time.monotonic()
    step = campaign._lab("benchmark", ["-m"], started + 0.5)
    assert time.monotonic() - started < 20
    assert not step.as_expected
    assert "campaign.limit_s" in step.note


def test_a_campaign_has_a_name() -> None:
    config = type("Config", (), {"campaign": CampaignConfig()})()
    with pytest.raises(UserError, match="campaign=NAME"):
        campaign.preflight(Cell(config))


@pytest.mark.slow
def test_a_rehearsal_on_the_cpu_is_packed_and_refused_by_the_release(tmp_path: Path) -> None:
    """The real thing, small: tiny heads, one cell a step."""
    steps = (
        "[{name:correctness,overrides:['task=correctness','kernel=xla']},"
        "{name:benchmark,overrides:['kernel=pallas-8row','seq=128']}]"
    )
    out = tmp_path / "campaign"
    common = [sys.executable, "-m", "lab.run"]
    done = subprocess.run(
        [*common, "task=campaign", "campaign=kaggle-v5e", "campaign.device=cpu", "shape=tiny",
         f"campaign.steps={steps}", f"campaign.out={out}", f"hydra.run.dir={tmp_path}/r"],
        capture_output=True, text=True, timeout=900, check=False, cwd=worker.PACKAGE_ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (out / "kaggle-v5e.zip").is_file()
    refused = subprocess.run(
        [*common, "task=release", "release=kaggle-v5e-8", f"release.out={tmp_path}/dataset",
         f"release.runs=[{out}/kaggle-v5e.zip]", f"hydra.run.dir={tmp_path}/r2"],
        capture_output=True, text=True, timeout=120, check=False, cwd=worker.PACKAGE_ROOT,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "platform cpu, not tpu" in refused.stdout
    assert not (tmp_path / "dataset").exists()
