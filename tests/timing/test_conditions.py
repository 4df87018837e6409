"""What else the machine did: each witness is shown to notice something."""

from __future__ import annotations

import subprocess
import sys
import time

from lab.timing.conditions import Watch


def test_other_workers_and_their_processor_time_are_seen() -> None:
    spin = "import time\nend = time.time() + 20\nwhile time.time() < end: pass"
    watch = Watch()
    company = subprocess.Popen([sys.executable, "-c", spin, "lab.worker"])
    try:
        time.sleep(1.5)
        seen = watch.conditions("cpu")
    finally:
        company.kill()
        company.wait()
    assert seen.other_workers >= 1
    assert seen.others_cpu_share is not None
    assert 0.05 < seen.others_cpu_share <= 1
    assert seen.foreign_accelerator_processes is None, "a CPU is no accelerator"
    assert seen.memory_available_bytes > 0


def test_a_driver_that_is_not_there_tells_nothing() -> None:
    assert Watch().conditions("gpu").foreign_accelerator_processes in (None, 0)
    assert Watch().conditions("tpu").foreign_accelerator_processes is not None
