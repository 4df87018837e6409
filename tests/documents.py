"""What the Markdown pages offer to be typed, so that tests run what readers paste."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README, RUNBOOK = ROOT / "README.md", ROOT / "TPU_RUNBOOK.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^    \S.*\n)+", re.MULTILINE)
# A word that begins a command, and then at least one more: `make` alone is a name.
_INLINE = re.compile(
    r"`((?:\.venv/bin/)?(?:python[\d.]*|lab|make|pip|pytest|bash|git|gcloud|scripts/\S+) [^`]+)`"
)


def languages(page: Path) -> set[str]:
    """The languages of the page's fenced blocks; "" for one that names none."""
    return {language for language, _ in _FENCE.findall(page.read_text())}


def blocks(page: Path, language: str) -> list[str]:
    """The contents of the page's fenced blocks of one language, in order."""
    return [text for named, text in _FENCE.findall(page.read_text()) if named == language]


def without_blocks(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def commands(page: Path) -> Iterator[str]:
    """The page's commands, split at && and without comments.

    Those of `sh` blocks, of indented blocks, and in the text.
    """
    text = without_blocks(page)
    inline = (" ".join(found.split()) for found in _INLINE.findall(text))
    for block in (*blocks(page, "sh"), *_INDENTED.findall(text), *inline):
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.split("&&"):
                if words := shlex.join(shlex.split(part, comments=True)):
                    yield words
