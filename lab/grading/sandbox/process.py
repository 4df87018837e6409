"""A child process on a leash: messages over pipes, and limits on time, memory and output.

The parent's side of the sandbox. Nothing the child does can block the parent: every pipe is
non-blocking, and one loop moves bytes, reads the clock and weighs the child.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lab.grading.sandbox.inside import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.grading.sandbox.inside.wire import Array

PROGRAM = Path(__file__).parent / "inside" / "child.py"
CHUNK_BYTES = 1 << 20
POLL_S = 0.02
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LOG_TAIL_BYTES = 4000
REASON_BYTES = 1000


class Stopped(Exception):  # noqa: N818 - names what happened to the child
    """The child was stopped or ended by itself; the message is the reason, one line."""


def one_line(text: str) -> str:
    """A stranger's text made fit to print: one line, at most 500 characters, no control codes."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))[:500]


@dataclass(frozen=True)
class Limits:
    """What a candidate may use.

    Attributes:
        start_s: seconds for Python and jax to start; not the candidate's doing.
        call_s: seconds for each step: importing the file, tracing one program, running one call.
        total_s: seconds for all of it.
        memory_bytes: resident memory of a child with all its descendants.
        output_bytes: bytes of one answer, a compiled program included.
        log_bytes: bytes printed to stdout and stderr together.
    """

    start_s: float = 90.0
    call_s: float = 60.0
    total_s: float = 900.0
    memory_bytes: int = 4 << 30
    output_bytes: int = 256 << 20
    log_bytes: int = 1 << 20


@dataclass
class _Request:
    nonce: str
    unsent: memoryview
    deadline: float
    seconds: float
    doing: str


class Child:
    """One run of child.py in its own session, with a private directory and a bare environment."""

    def __init__(self, name: str, limits: Limits) -> None:
        """Start it.

        Args:
            name: the subject of the reasons given, e.g. "its compiled program "; may be empty.
            limits: what it may use.
        """
        self.name, self.limits = name, limits
        self.peak_bytes = 0
        self.processes = 2  # allowed; in a namespace of its own it has a parent there
        self.log = bytearray()
        self._logged_bytes = 0
        self._weigh_at = 0.0
        self._pending: _Request | None = None
        self._alarm, self._alarm_token = b"", secrets.token_hex(8)
        self._received = bytearray()
        self.scratch = Path(tempfile.mkdtemp(prefix="lab-sandbox-"))
        command_out, self._command = os.pipe()
        self._result, result_in = os.pipe()
        self._alarms, alarm_in = os.pipe()
        self._logs, log_in = os.pipe()
        ends = (command_out, result_in, alarm_in)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-B", "-u", str(PROGRAM), *map(str, ends)],
                stdin=subprocess.DEVNULL,
                stdout=log_in,
                stderr=log_in,
                env=_environment(self.scratch),
                cwd=self.scratch,
                pass_fds=ends,
                start_new_session=True,
            )
        finally:
            for fd in (*ends, log_in):
                os.close(fd)
        self._open = {self._command, self._result, self._alarms, self._logs}
        for fd in self._open:
            os.set_blocking(fd, False)

    def ask(
        self,
        header: dict[str, Any],
        arrays: Sequence[Array] = (),
        *,
        seconds: float,
        doing: str,
        max_bytes: int = 0,
    ) -> tuple[dict[str, Any], list[Array]]:
        """Send one request and return its answer.

        Args:
            header: the request.
            arrays: its arrays.
            seconds: until the child is stopped.
            doing: what takes the time, for the reason: "importing the file".
            max_bytes: array bytes that the answer may have.

        Raises:
            Stopped: over a limit, a violation, an end without an answer, a malformed answer.
        """
        self.post(header, arrays, seconds=seconds, doing=doing)
        return self.collect(max_bytes)

    def post(
        self, header: dict[str, Any], arrays: Sequence[Array] = (), *, seconds: float, doing: str
    ) -> None:
        """Send one request, as far as its pipe takes it; `collect` the answer before the next."""
        nonce = secrets.token_hex(8)  # the answer must repeat it
        header = {**header, "nonce": nonce, "alarm": self._alarm_token}
        self._pending = _Request(
            nonce,
            memoryview(wire.encode(header, arrays)),
            time.monotonic() + seconds,
            seconds,
            doing,
        )
        self._send(self._pending)

    def collect(self, max_bytes: int = 0) -> tuple[dict[str, Any], list[Array]]:
        """Wait for the answer to what was posted; raises as `ask`."""
        request = self._pending
        assert request is not None
        try:
            while (frame := self._frame(request.nonce, max_bytes)) is None:
                self._move(request)
                self._check(request.doing)
                if time.monotonic() > request.deadline:
                    self._stop(f"did not finish {request.doing} within {request.seconds:g} s")
        except wire.Malformed as error:
            self.close()
            raise Stopped(f"{self.name}answered with a malformed frame: {error}") from None
        except Stopped:
            self.close()
            raise
        self._pending = None
        return frame

    def _stop(self, reason: str) -> NoReturn:
        raise Stopped(f"{self.name}{reason}")

    def _move(self, request: _Request) -> None:
        """Move what can be moved, waiting at most `POLL_S`."""
        with selectors.DefaultSelector() as selector:
            for fd in self._open - {self._command}:
                selector.register(fd, selectors.EVENT_READ)
            if request.unsent and self._command in self._open:
                selector.register(self._command, selectors.EVENT_WRITE)
            ready = {key.fd for key, _ in selector.select(POLL_S)}
        if self._command in ready:
            self._send(request)
        for fd in ready - {self._command}:
            self._receive(fd)

    def _send(self, request: _Request) -> None:
        try:
            sent = os.write(self._command, request.unsent[:CHUNK_BYTES])
            request.unsent = request.unsent[sent:]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._forget(self._command)

    def _receive(self, fd: int) -> None:
        data = os.read(fd, CHUNK_BYTES)
        if not data:
            self._forget(fd)
        elif fd == self._result:
            self._received += data
        elif fd == self._alarms:
            self._alarm = (self._alarm + data)[:REASON_BYTES]
        else:
            self._logged_bytes += len(data)
            self.log = (self.log + data)[-LOG_TAIL_BYTES:]
            if self._logged_bytes > self.limits.log_bytes:
                allowed = f"{self.limits.log_bytes / 1024:g} KiB"
                raise Stopped(
                    f"{self.name} prints a flood: more than {allowed} on stdout and stderr"
                )

    def _frame(self, nonce: str, max_bytes: int) -> tuple[dict[str, Any], list[Array]] | None:
        """Take one whole frame off what was received, if there is one."""
        data, start = self._received, wire.PREFIX.size
        if len(data) < start:
            return None
        end = start + wire.header_length(bytes(data[:start]))
        if len(data) < end:
            return None
        header, size = wire.decode_header(bytes(data[start:end]), max_bytes=max_bytes)
        if header.get("nonce") != nonce:
            raise wire.Malformed("an answer to something that was not asked")
        if len(data) < end + size:
            return None
        if len(data) > end + size:
            raise wire.Malformed("bytes after the answer")
        arrays = wire.decode_arrays(header, bytes(data[end:]))
        self._received = bytearray()
        return header, arrays

    def _check(self, doing: str) -> None:
        """Stop on a violation, an end without an answer, too much memory, other processes."""
        if self._alarm:
            token, _, reason = one_line(self._alarm.decode(errors="replace")).partition(" ")
            known = token == self._alarm_token
            self._stop(reason if known else "writes into the harness's channels")
        if self._result not in self._open:
            self._stop(f"{self._how_it_ended()} while {doing}, without an answer")
        if time.monotonic() < self._weigh_at:
            return
        family = _family(self._process.pid)
        self._weigh_at = time.monotonic() + POLL_S
        resident = sum(family.values())
        self.peak_bytes = max(self.peak_bytes, resident)
        if resident > self.limits.memory_bytes:
            allowed = f"{self.limits.memory_bytes / 2**20:g} MiB"
            self._stop(f"used more than {allowed} of memory while {doing}")
        if len(family) > self.processes:
            self._stop(f"starts processes: {len(family)} were running while {doing}")

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "closed its result channel"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def _forget(self, fd: int) -> None:
        if fd in self._open:
            self._open.discard(fd)
            os.close(fd)

    def log_tail(self) -> str:
        """The end of what it printed."""
        return self.log.decode(errors="replace")

    def close(self) -> None:
        """Kill it with everything it started, and remove its directory. Safe to repeat."""
        descendants = list(_family(self._process.pid)) if self._process.poll() is None else []
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in descendants:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(Stopped, BlockingIOError):
            while self._logs in self._open:  # what it printed last
                self._receive(self._logs)
        for fd in list(self._open):
            self._forget(fd)
        shutil.rmtree(self.scratch, ignore_errors=True)


def _environment(scratch: Path) -> dict[str, str]:
    """Nothing of the caller's: no tokens, no paths to the lab."""
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "JAX_PLATFORMS": "cpu",
        # Programs run a few times each: compiling them fast matters more than running them fast.
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def _family(root: int) -> dict[int, int]:
    """Resident bytes of a process and all its living descendants, by process id."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir() if Path("/proc/self/stat").exists() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The command, in parentheses, may hold spaces; fields are counted after it.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = (int(fields[1]), int(fields[21]) * PAGE_BYTES)
    family: dict[int, int] = {}
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid in parents and pid not in family:
            family[pid] = parents[pid][1]
            waiting += [child for child, (parent, _) in parents.items() if parent == pid]
    return family
