"""The script that compiles the public kernels asks for every block size that was timed, once."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_timing_is_a_cell(tmp_path: Path) -> None:
    stub = tmp_path / "python"
    stub.write_text(
        f'#!/usr/bin/env bash\n[ "$1" = - ] && exec {sys.executable} "$@"\n'
        f'echo "$@" >> {tmp_path}/asked\n'
    )
    stub.chmod(0o755)
    subprocess.run(
        ["bash", ROOT / "scripts/public_kernels.sh", "K", "OUT"],
        env={"PYTHON": str(stub), "PATH": "/usr/bin:/bin"},
        check=True,
    )
    *sweeps, page = (tmp_path / "asked").read_text().splitlines()
    cells = [re.findall(r"\{bm:[^}]*\}", sweep) for sweep in sweeps]
    assert [len(options) for options in cells] == [12, 32, 1]
    assert all(len(options) == len(set(options)) for options in cells)
    assert page == "-m lab.report.kernel_timings K OUT"
