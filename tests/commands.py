"""The advertised command as a subprocess; tests get it as the fixture `lab`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parent.parent


class Lab(Protocol):
    """`lab(*arguments)` runs `python lab/run.py` from an empty directory."""

    def __call__(
        self, *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]: ...


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "lab/run.py"), *arguments]


def run(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# Importing takes longer than composing: one process imports, and forks for every command line.
_FORKING = """
import json, os, sys
import lab.run
for directory, arguments in json.loads(sys.stdin.read()):
    if os.fork() == 0:
        os.chdir(directory)
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            file = os.open(f"{directory}.{name}", os.O_WRONLY | os.O_CREAT)
            os.dup2(file, descriptor)
        sys.argv = ["lab/run.py", *arguments]
        code = 0
        try:
            lab.run.main()
        except SystemExit as end:
            code = end.code
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
    _, status = os.wait()
    print(os.waitstatus_to_exitcode(status))
"""


def run_many(
    commands: Sequence[Sequence[str]], parent: Path
) -> list[subprocess.CompletedProcess[str]]:
    """What `run` gives for each command line, every one from its own empty directory."""
    directories = [parent / f"run{n}" for n in range(len(commands))]
    for directory in directories:
        directory.mkdir()
    work = json.dumps([(str(d), list(c)) for d, c in zip(directories, commands, strict=True)])
    done = subprocess.run(
        [sys.executable, "-c", _FORKING],
        input=work,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return [
        subprocess.CompletedProcess(
            command,
            int(code),
            (parent / f"{directory.name}.stdout").read_text(),
            (parent / f"{directory.name}.stderr").read_text(),
        )
        for command, code, directory in zip(commands, done.stdout.split(), directories, strict=True)
    ]
