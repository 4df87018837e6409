"""The code blocks of a Markdown page, so that tests run what readers paste."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README, RUNBOOK = ROOT / "README.md", ROOT / "TPU_RUNBOOK.md"


def blocks(page: Path, language: str) -> list[str]:
    """The contents of the page's fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
