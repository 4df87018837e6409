"""What else the machine did while it was timed. No jax here."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import psutil

from lab.records.benchmark import Conditions

BUSY_SHARE = 0.25
"""Others that use more of the processors than this disturb a measurement."""
_WORKER = "lab.worker"
_ACCELERATORS = ("/dev/accel", "/dev/vfio/")


class Watch:
    """Looks at the machine when made, and again when asked."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._memory = int(psutil.virtual_memory().available)
        self._busy_s, self._own_s, self._at_s = _busy_s(), _own_s(), time.monotonic()

    def conditions(self, platform: str, parallel_jobs: int = 1) -> Conditions:
        """What was seen between the two looks.

        Args:
            platform: jax's name of the accelerator's platform.
            parallel_jobs: cells that the launcher runs at a time.
        """
        elapsed_s = time.monotonic() - self._at_s
        share = None
        if elapsed_s > 0:
            others_s = (_busy_s() - self._busy_s) - (_own_s() - self._own_s)
            share = min(max(others_s / elapsed_s / (os.cpu_count() or 1), 0.0), 1.0)
        return Conditions(
            load_before=self._load,
            load_after=os.getloadavg()[0],
            others_cpu_share=share,
            other_workers=_other_workers(),
            memory_available_bytes=self._memory,
            foreign_accelerator_processes=_foreign(platform),
            parallel_jobs=parallel_jobs,
        )


def _busy_s() -> float:
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Linux counts guests' time in user and nice already.
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - guests)


def _own_s() -> float:
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system


def _other_workers() -> int:
    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = 0
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        found += process.pid not in mine and _WORKER in command
    return found


def _foreign(platform: str) -> int | None:
    if platform in ("gpu", "cuda"):
        return _foreign_on_gpu()
    return _foreign_on_tpu() if platform == "tpu" else None


def _foreign_on_gpu() -> int | None:
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    query = [command, "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
        pids = {int(line) for line in done.stdout.split()}
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return len(pids - {os.getpid()})


def _foreign_on_tpu() -> int | None:
    """Processes of ours and others', as far as we may look, that hold a TPU's device file."""
    found = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            links = [str(link.readlink()) for link in (entry / "fd").iterdir()]
        except OSError:
            continue
        found += any(link.startswith(_ACCELERATORS) for link in links)
    return found
