"""A release folder as a hostile stranger might have left it, read once and safely.

Nothing is followed, run, unpacked or unpickled: only regular files below the folder are read, by
descriptors opened without following links, and only up to the limits. What cannot be read that way
is a problem with a place and a reason; all else is bytes.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_FILES = 20_000
MAX_FILE_BYTES = 32 * 2**20
MAX_RAW_BYTES = 8 * 2**20
MAX_TOTAL_BYTES = 512 * 2**20
MAX_DEPTH = 3
# What a clone puts beside the release; neither read nor vouched for.
_BESIDE = (".git", ".gitattributes")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class Problem:
    """One thing wrong at one place; `place` is relative to the release."""

    place: str
    text: str

    def __str__(self) -> str:
        """The place, then what is wrong there."""
        return f"{self.place}: {self.text}" if self.place else self.text


@dataclass
class Folder:
    """The files of a release by relative path, and what was refused while reading them."""

    files: dict[str, bytes] = field(default_factory=dict)
    # Links, special files, odd names.
    unsafe: list[Problem] = field(default_factory=list)
    # Too large, too many, too deep.
    oversized: list[Problem] = field(default_factory=list)


def read(root: Path) -> Folder:
    """Read every regular file below `root`, which itself may be given through a link."""
    folder = Folder()
    total = 0
    for relative, entry in _walk(root, "", folder):
        information = entry.stat(follow_symlinks=False)
        if information.st_nlink > 1:
            folder.unsafe.append(Problem(relative, "is a hard link; only plain files belong here"))
            continue
        limit = MAX_RAW_BYTES if relative.startswith("raw/") else MAX_FILE_BYTES
        if information.st_size > limit:
            folder.oversized.append(Problem(relative, f"{information.st_size} B, over {limit} B"))
            continue
        total += information.st_size
        if len(folder.files) >= MAX_FILES or total > MAX_TOTAL_BYTES:
            text = f"more than {MAX_FILES} files or {MAX_TOTAL_BYTES} B; the rest was not read"
            folder.oversized.append(Problem("", text))
            break
        data = _read_file(entry.path, limit)
        if data is None:
            folder.unsafe.append(Problem(relative, "changed or cannot be read"))
        else:
            folder.files[relative] = data
    return folder


def _walk(path: Path | str, prefix: str, folder: Folder) -> Iterator[tuple[str, os.DirEntry[str]]]:
    if prefix.count("/") > MAX_DEPTH:
        folder.oversized.append(Problem(prefix, f"deeper than {MAX_DEPTH} folders"))
        return
    with os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            relative = prefix + entry.name
            if relative in _BESIDE:
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                folder.unsafe.append(Problem(relative, "is a link; links are not followed"))
            elif not _PLAIN_NAME.fullmatch(entry.name):
                folder.unsafe.append(Problem(repr(relative), "a name with odd characters"))
            elif stat.S_ISDIR(mode):
                yield from _walk(entry.path, f"{relative}/", folder)
            elif stat.S_ISREG(mode):
                yield relative, entry
            else:
                folder.unsafe.append(Problem(relative, "is no regular file"))


def _read_file(path: str, limit: int) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = file.read(limit + 1)
    return data if len(data) <= limit else None
