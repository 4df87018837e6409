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


def answer(payload: dict[str, Any]) -> dict[str, Any]:
    sys.stdout.write("said on the way\n")
    return {"pid": os.getpid(), "flag": os.environ.get("LAB_TEST_FLAG"), "given": payload}


def sleep_with_children(payload: dict[str, Any]) -> dict[str, Any]:
    child = subprocess.Popen(SLEEPER)
    grandchild = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; subprocess.run({SLEEPER})"]
    )
    Path(payload["pids"]).write_text(f"{os.getpid()} {child.pid} {grandchild.pid}")
    time.sleep(600)
    return {}


def exit_quietly(payload: dict[str, Any]) -> dict[str, Any]:
    os.write(1, b"last words\n")
    os._exit(payload["code"])


def kill_itself(payload: dict[str, Any]) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def leave(payload: dict[str, Any]) -> dict[str, Any]:
    sys.exit(payload["code"])


def no_json(payload: dict[str, Any]) -> dict[str, Any]:
    return {"a set": {1, 2}}


def refuse(payload: dict[str, Any]) -> dict[str, Any]:
    kinds = {"user": OwnUserError, "unsupported": UnsupportedCell, "bug": ValueError}
    raise kinds[payload["kind"]](payload["message"])


def pretend(payload: dict[str, Any]) -> dict[str, Any]:
    raise type("UserError", (Exception,), {})("not ours")
