"""What worker processes run in tests: every way in which a function can go wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lab.errors import UnsupportedCell, UserError

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


class OwnUserError(UserError):
    """A refinement of ours: still a UserError to the parent."""


def answer(x: list[Any] | None = None) -> dict[str, Any]:
    sys.stdout.write("said on the way\n")
    return {"pid": os.getpid(), "flag": os.environ.get("LAB_TEST_FLAG"), "given": x}


def sleep_with_children(pids: Path) -> None:
    child = subprocess.Popen(SLEEPER)
    grandchild = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; subprocess.run({SLEEPER})"]
    )
    pids.write_text(f"{os.getpid()} {child.pid} {grandchild.pid}")
    time.sleep(600)


def exit_quietly(code: int) -> None:
    os.write(1, b"last words\n")
    os._exit(code)


def kill_itself(code: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(code: int) -> None:
    sys.exit(code)


def no_json(code: int) -> object:
    return object()


def refuse(kind: str, message: str) -> None:
    kinds = {"user": OwnUserError, "unsupported": UnsupportedCell, "bug": ValueError}
    raise kinds[kind](message)


def pretend() -> None:
    raise type("UserError", (Exception,), {})("not ours")
