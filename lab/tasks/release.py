"""`task=release`: add one profile to the data release from finished runs, or rebuild it."""

from __future__ import annotations

from pathlib import Path

from lab.cells.cell import Cell, Outcome
from lab.errors import UserError
from lab.records import ReleaseSection
from lab.release.build import assemble as build
from lab.release.build import profiles


def run(cell: Cell, directory: Path) -> Outcome:  # noqa: ARG001 - writes to release.out
    """Build; a run that does not meet its profile fails with every reason at once."""
    asked = cell.config.release
    if asked.name is None:
        raise UserError(f"task=release needs release=NAME: {', '.join(profiles.options())}")
    profile = profiles.parse(asked.name, asked.profile)
    built = build.update(
        Path(asked.out),
        profile,
        [Path(run) for run in asked.runs],
        pages=Path(asked.evidence) if asked.evidence else None,
    )
    if built.refused:
        return Outcome(None, evidence=None, status="failed", reason=_refusal(built))
    section = ReleaseSection(
        profile=built.profile, out=asked.out, records=built.records, files=built.files
    )
    return Outcome(section=section, evidence=None)


def _refusal(built: build.Built) -> str:
    head = f"profile {built.profile} not met; nothing was written. Every reason:"
    return "\n  - ".join((head, *built.refused))
