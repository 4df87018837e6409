"""One sweep at a time in a directory: the second is refused, with the process of the first.

The lock is the operating system's (flock), held by the open file: it goes when the process does,
however that ends. The file stays and holds the number of the process that took it last.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from lab.errors import UserError

LOCK_FILE = ".lock"
_held: list[int] = []  # descriptors stay open until the process ends


def hold(directory: Path) -> None:
    """Lock a sweep's directory for the life of this process.

    Raises:
        UserError: another process holds it.
    """
    # A descriptor that Python opens is closed in the programs that this process starts.
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise UserError(
            f"hydra.sweep.dir={directory}: another sweep runs there (process {owner}); wait until "
            "it ends, or choose another directory"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    _held.append(descriptor)
