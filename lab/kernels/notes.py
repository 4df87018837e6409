"""What a kernel says of itself while it is traced: what runs, its blocks, and who chose them.

A kernel notes it where it makes its call, so the line is of the program that was traced. Who traces
a program hears it: `with heard() as lines`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_heard: ContextVar[list[str] | None] = ContextVar("heard", default=None)


def note(line: str) -> None:
    """Say a line to whoever listens; once, however often the kernel is called."""
    lines = _heard.get()
    if lines is not None and line not in lines:
        lines.append(line)


@contextmanager
def heard() -> Iterator[list[str]]:
    """The lines that are noted inside the `with`."""
    lines: list[str] = []
    token = _heard.set(lines)
    try:
        yield lines
    finally:
        _heard.reset(token)
