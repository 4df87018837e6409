"""The commands that look at a machine, on this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from commands import ROOT, Lab


def test_the_doctor_names_the_next_command(lab: Lab, tmp_path: Path) -> None:
    done = lab("task=doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "next: lab task=" in done.stdout


def test_the_campaign_that_fits_is_one_of_conf() -> None:
    command = [sys.executable, "-m", "lab.doctor.campaigns"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ROOT / f"conf/campaign/{done.stdout.strip()}.yaml").is_file(), done.stderr
