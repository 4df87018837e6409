"""Run code that may call a stranger's, in a thread of its own.

From there no frame leads up to the harness's objects: a traceback's frames, followed to their
callers, end where the thread begins. So `work` must hold nothing that the stranger may not have.

Loaded by path in the sandbox's child, so it imports nothing of the lab.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_start, _lock = _thread.start_new_thread, _thread.allocate_lock  # builtins, bound before strangers


def aside(work: Callable[[], T], failed: Callable[[BaseException], T]) -> T:
    """What `work()` returns, or `failed(error)` for whatever it raises; both run in the thread."""
    box: list[Any] = []
    done = _lock()
    done.acquire()

    def run() -> None:
        try:
            try:
                box.append(work())
            except BaseException as error:  # noqa: BLE001 - whatever a stranger raises
                box.append(failed(error))
        finally:
            done.release()

    _start(run, ())
    done.acquire()
    if len(box) != 1:  # an exception that cannot even be described, or a hand in the box
        return failed(RuntimeError("its code meddles with how it is called"))
    result: T = box[0]
    return result
