"""What a sandboxed process may not do, watched from inside it.

An audit hook (PEP 578) sees imports, opened files, processes, sockets before they happen, and
Python code cannot remove it. A snapshot of the libraries' functions shows afterwards whether the
stranger's code replaced any. Native code gets past both: see docs/untrusted.md.

Loaded by path in the child, so it imports nothing of the lab.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FORBIDDEN = {
    "starts a process": (
        "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
        "os.forkpty", "pty.spawn",
    ),
    "uses the network": (
        "socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo",
        "socket.gethostbyname",
    ),
    "sends a signal to a process": ("os.kill", "os.killpg", "signal.pthread_kill"),
    "searches the garbage collector for other people's objects": (
        "gc.get_objects", "gc.get_referrers", "gc.get_referents",
    ),
    "watches the harness run": ("sys.settrace", "sys.setprofile", "sys._current_frames"),
}  # fmt: skip
CHANGES_PATH = (
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.link",
    "os.symlink", "os.truncate", "os.utime", "shutil.rmtree", "shutil.move",
)  # fmt: skip
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
LAB_USE = "a candidate may not use the lab's own oracle or kernels"
WATCHED_PACKAGES = ("jax", "jaxlib", "numpy", "ml_dtypes")
WATCHED_MODULES = (
    "__main__", "builtins", "gc", "hashlib", "json", "os", "posixpath", "struct", "sys", "time",
)  # fmt: skip

Namespace = Mapping[str, object]
Entry = tuple[str, object, CodeType | None]
Originals = list[tuple[str, ModuleType | None, Namespace, list[Entry]]]


class Guard:
    """The audit hook: calls `deny(reason)`, which must not return, on a violation."""

    def __init__(
        self,
        deny: Callable[[str], None],
        *,
        lab: Path,
        harness: Sequence[Path],
        folder: Path,
        scratch: Path,
    ) -> None:
        """Take note of what is allowed; nothing is watched before `install`.

        Args:
            deny: reports one line and ends the process.
            lab: the lab's package directory, which the stranger may not read.
            harness: files in it that are no secret: a traceback shows their lines.
            folder: the stranger's own folder (a `lab` that lives there is the stranger's own).
            scratch: the only directory that may be written to.
        """
        # Bound here, lest the stranger's replacements be used.
        self._deny, self._realpath, self._decode = deny, os.path.realpath, os.fsdecode
        self._lab, self._scratch = os.path.realpath(lab), os.path.realpath(scratch)
        self._harness = {os.path.realpath(path) for path in harness}
        self._own_process = os.path.realpath("/proc/self")
        own = (folder / "lab.py", folder / "lab")
        self._lab_is_theirs = any(p.exists() and os.path.realpath(p) != self._lab for p in own)
        self._changes, self._writing = CHANGES_PATH, WRITE_FLAGS
        self._fixed = {event: what for what, events in FORBIDDEN.items() for event in events}

    def install(self) -> None:
        """Watch from now on, for good."""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            self._check_open(*args[:3])
        elif event == "import":
            self._check_import(args[0])
        elif event in self._fixed:
            self._deny(f"{self._fixed[event]} ({event})")
        elif event in self._changes:
            self._check_change(self._real(args[0]), event)
        elif event == "object.__setattr__" and args[1] == "__code__":
            self._deny(f"rewrites the code of {getattr(args[0], '__name__', 'a function')}")

    def _check_import(self, name: object) -> None:
        if isinstance(name, str) and name.split(".")[0] == "lab" and not self._lab_is_theirs:
            self._deny(f"imports {name}: {LAB_USE}")

    def _check_open(self, path: object, mode: object, flags: object) -> None:
        where = self._real(path)
        if where is None:
            return
        if _inside(where, self._lab) and where not in self._harness:
            self._deny(f"reads lab{where[len(self._lab) :]}: {LAB_USE}")
        other = where.startswith("/proc/") and where.split("/")[2].isdigit()
        if other and (where.endswith("/mem") or not _inside(where, self._own_process)):
            self._deny(f"opens {where}: another process, or raw memory")
        by_flags = isinstance(flags, int) and bool(flags & self._writing)
        if by_flags or (isinstance(mode, str) and bool(set(mode) & set("wax+"))):
            self._check_change(where, "open")

    def _check_change(self, where: str | None, event: str) -> None:
        allowed = where is None or where == os.devnull or _inside(where, self._scratch)
        if not allowed:
            self._deny(f"changes {where}, outside its private directory ({event})")

    def _real(self, path: object) -> str | None:
        return self._realpath(self._decode(path)) if isinstance(path, str | bytes) else None


def _inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")


def snapshot() -> Originals:
    """What the watched libraries can be called for as it is now, with the functions' code.

    Of the harness's own files its constants too. Kept by namespace, so that looking again, which is
    done after every step, is a look at each value and nothing more.
    """
    found: dict[str, tuple[Namespace, list[Entry]]] = {}
    for space, name, attribute, value in _watched():
        found.setdefault(name, (space, []))[1].append((attribute, value, _code(value)))
    return [(name, sys.modules.get(name), *kept) for name, kept in found.items()]


def replaced(originals: Originals) -> list[str]:
    """Names of what is no longer the original; additions do not count."""
    modules = sys.modules
    return [
        f"{name}.{attribute}"
        for name, module, space, entries in originals
        for attribute, value, code in entries
        if space.get(attribute) is not value
        or (code is not None and _code(value) is not code)
        or (module is not None and modules.get(name) is not module)
    ]


def _code(value: object) -> CodeType | None:
    return value.__code__ if isinstance(value, FunctionType) else None


def _watched() -> Iterator[tuple[Namespace, str, str, object]]:
    """Namespace (a live view), its name, attribute, value."""
    for name, module in list(sys.modules.items()):
        watched = name.split(".")[0] in WATCHED_PACKAGES or name in WATCHED_MODULES
        own = name == "__main__" or name.startswith("sandbox_")  # the harness's files
        if not (watched or own) or not isinstance(module, ModuleType):
            continue
        for attribute, value in list(vars(module).items()):
            if not callable(value) and (not own or attribute.startswith("__")):
                continue
            yield vars(module), name, attribute, value
            if isinstance(value, type) and value.__module__ == name:
                for member, function in list(vars(value).items()):
                    if isinstance(function, FunctionType):
                        yield vars(value), f"{name}.{attribute}", member, function
