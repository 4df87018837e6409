"""Linux namespaces for a sandboxed process: no lab, nothing to write to, no network, no others.

A second wall behind the audit hook, for the code that gets past it. Needs unprivileged user
namespaces; where the kernel has none, the sandbox runs without and its report says so.

Loaded by path in the child, so it imports nothing of the lab.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

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
    uid, gid = os.getuid(), os.getgid()
    kinds = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC
    if libc.unshare(kinds) != 0:
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _mount(libc, "none", "/", None, MS_REC | MS_PRIVATE)
    quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC
    _mount(libc, "tmpfs", str(hidden), "tmpfs", quiet | MS_RDONLY)
    _mount(libc, str(scratch), str(scratch), None, MS_BIND)
    _set_read_only(libc, "/", AT_RECURSIVE, on=True)
    _set_read_only(libc, str(scratch), 0, on=False)
    os.chdir(scratch)  # the working directory so far is the place below the new mount
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:  # end as the child ended
            signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
            os.kill(os.getpid(), -code)
        os._exit(code)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _mount(libc, "proc", "/proc", "proc", quiet)
    _drop_capabilities(libc)
    return True


def _mount(libc: ctypes.CDLL, source: str, target: str, kind: str | None, flags: int) -> None:
    encoded = kind.encode() if kind else None
    if libc.mount(source.encode(), target.encode(), encoded, ctypes.c_ulong(flags), None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


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
