"""What a kernel says of itself while it is traced: what runs, its sizes, and who chose them.

A kernel notes it where it makes its call, so it is of the program that was traced. Who traces a
program hears it: `with heard() as notes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from lab.records import Implementation

_heard: ContextVar[list[Implementation] | None] = ContextVar("heard", default=None)


def note(said: Implementation) -> None:
    """Say it to whoever listens; once, however often the kernel is called."""
    notes = _heard.get()
    if notes is not None and said not in notes:
        notes.append(said)


@contextmanager
def heard() -> Iterator[list[Implementation]]:
    """What is noted inside the `with`."""
    notes: list[Implementation] = []
    token = _heard.set(notes)
    try:
        yield notes
    finally:
        _heard.reset(token)
