"""Linux namespaces for a sandboxed process: no lab, nothing to write to, no network, no others.

A second wall behind the audit hook, for the code that gets past it. Needs unprivileged user
namespaces; where the kernel has none, the sandbox runs without and its report says so.

Loaded by path in the child, so it imports nothing of the lab.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

# linux/sched.h, sys/mount.h, linux/prctl.h, linux/capability.h
CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = (
    1, 2, 4, 8, 0x1000, 0x4000, 1 << 18,
)  # fmt: skip
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
CAPABILITY_VERSION_3 = 0x20080522
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1


def isolate(*, hidden: Path, scratch: Path) -> bool:
    """Move this process into namespaces of its own.

    The directory `hidden` is empty there, and only `scratch` can be written to (the latter needs
    Linux 5.12). Call it while the process has one thread. It forks: the caller continues as the
    first process of a new process namespace, and dies with its parent.

    Returns:
        True if the namespaces are in force; False if the system refused them (nothing changed).
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # Some systems grant the namespaces and then nothing in them, which cannot be undone: try first.
    if not _succeeds_elsewhere(lambda: _enter(libc, hidden, scratch)):
        return False
    _enter(libc, hidden, scratch)
    os.chdir(scratch)  # the working directory so far is the place below the new mount
    child = os.fork()
    if child:
        _end_as(child)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(OSError):  # refused in some containers: then others are seen there
        _mount(libc, "proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _drop_capabilities(libc)
    return True


def _enter(libc: ctypes.CDLL, hidden: Path, scratch: Path) -> None:
    """Enter new namespaces; OSError if the system refuses any part of it."""
    uid, gid = os.getuid(), os.getgid()
    kinds = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC
    _check(libc.unshare(kinds), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _mount(libc, "none", "/", None, MS_REC | MS_PRIVATE)
    _mount(libc, "tmpfs", str(hidden), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    _mount(libc, str(scratch), str(scratch), None, MS_BIND)
    _set_read_only(libc, "/", AT_RECURSIVE, on=True)
    _set_read_only(libc, str(scratch), 0, on=False)


def _succeeds_elsewhere(action: Callable[[], None]) -> bool:
    """Whether the action succeeds in a process of its own."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        action()
    except OSError:
        os._exit(1)
    os._exit(0)


def _end_as(child: int) -> NoReturn:
    """Wait for the child and end as it ended."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _mount(libc: ctypes.CDLL, source: str, target: str, kind: str | None, flags: int) -> None:
    encoded = kind.encode() if kind else None
    mounted = libc.mount(source.encode(), target.encode(), encoded, ctypes.c_ulong(flags), None)
    _check(mounted, target)


def _set_read_only(libc: ctypes.CDLL, target: str, flags: int, *, on: bool) -> None:
    """mount_setattr(2); on a kernel without it the files stay as writable as they were."""
    change = (MOUNT_ATTR_RDONLY, 0) if on else (0, MOUNT_ATTR_RDONLY)
    attributes = (ctypes.c_uint64 * 4)(*change, 0, 0)
    libc.syscall(
        SYS_MOUNT_SETATTR, AT_FDCWD, target.encode(), flags, ctypes.byref(attributes),
        ctypes.sizeof(attributes),
    )  # fmt: skip


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Give up what the new user namespace granted, so that nothing is unmounted again."""
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    libc.capset(ctypes.byref(header), ctypes.byref(nothing))
