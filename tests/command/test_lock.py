"""Two sweeps in one directory: the second is refused, and a killed one leaves no lock behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.command import lock
from lab.errors import UserError

HOLD = """
import sys, time
from pathlib import Path
from lab.command import lock
lock.hold(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_the_second_is_refused_with_the_process_of_the_first(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(lock.__file__).parents[2])}
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=rf"another sweep runs there \(process {first.pid}\)"):
            lock.hold(tmp_path)
    finally:
        first.kill()  # SIGKILL: nothing is tidied up
        first.communicate()
    lock.hold(tmp_path)
    assert (tmp_path / lock.LOCK_FILE).read_text() == f"{os.getpid()}\n"


def test_a_child_of_the_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock.hold(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"]) as child:
        os.close(lock._held.pop())  # as when the holder ends
        lock.hold(tmp_path)
        child.kill()
