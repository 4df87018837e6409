"""Checks of what a release claims: levels of evidence, and that its profiles are complete."""

from __future__ import annotations

from collections.abc import Iterator

from lab.records import EVIDENCE_ORDER, Result
from lab.release.build import profiles
from lab.release.build.assemble import MANIFEST
from lab.release.format import rows
from lab.release.verify.folder import Problem
from lab.release.verify.opened import Opened

_LEVELS_OF_TASK = {
    "benchmark": ("interpreted", "measured"),
    "correctness": ("interpreted", "measured"),
    "rubric": ("interpreted", "measured"),
    "compile": ("compiled", "estimated"),
}


def levels(opened: Opened) -> Iterator[Problem]:
    """No record or row claims more than what ran allows."""
    for raw in opened.raws.values():
        yield from (Problem(raw.place, text) for text in _overclaims(raw.result))
    for place, row in opened.rows("comparisons", rows.Comparison):
        sides = [
            opened.raws[row.profile, record].result.evidence
            for record in (row.baseline_cell, row.kernel_cell)
            if (row.profile, record) in opened.raws
        ]
        known = [level for level in sides if level is not None]
        weaker = min(known, key=EVIDENCE_ORDER.index, default=None)
        if len(known) == 2 and row.evidence != weaker:
            yield Problem(place, f"evidence {row.evidence}, the weaker of its sides is {weaker}")


def _overclaims(result: Result) -> Iterator[str]:
    level, task = result.evidence, result.task
    if level is None:
        if result.status == "done" and task in _LEVELS_OF_TASK:
            yield f"a done record of task {task} has no level of evidence"
        return
    allowed = _LEVELS_OF_TASK.get(task, ())
    if level not in allowed:
        yield f"evidence {level}; a record of task {task} can be {' or '.join(allowed) or 'none'}"
    if (level == "interpreted") != bool(result.interpret):
        yield f"evidence {level}, but interpret {result.interpret}"
    if level == "measured":
        seen = result.environment
        if seen.platform is None or seen.device_kind is None:
            yield "measured, but on no known device"
        # The Pallas kernels are TPU kernels: a CPU can only interpret them.
        own = result.cell.candidate == "reference" and result.cell.kernel.startswith("pallas")
        if own and seen.platform == "cpu":
            yield f"kernel {result.cell.kernel} cannot be measured on a CPU, only interpreted"
    made = result.compile
    if made is not None and (level == "estimated") != (made.estimated_ms is not None):
        yield f"evidence {level}, but estimated_ms {made.estimated_ms}"


def complete(opened: Opened) -> Iterator[Problem]:
    """Every profile is one this lab knows, unaltered, and has every case it asks for."""
    shipped = profiles.load_all()
    listed = opened.manifest.get("profiles")
    listed = listed if isinstance(listed, dict) else {}
    if not listed:
        yield Problem(MANIFEST, "lists no profile")
    names = {profile for profile, _ in opened.raws}
    for line in (line for lines in opened.lines.values() for line in lines):
        names.add(line.row.profile)
    for name in sorted(names - listed.keys()):
        yield Problem(MANIFEST, f"profile {name} has records or rows, but is not listed")
    for name, facts in sorted(listed.items()):
        profile = profiles.template_of(str(name), shipped)
        if profile is None:
            known = ", ".join(sorted(shipped))
            yield Problem(MANIFEST, f"profile {name} is unknown; this lab knows {known}")
            continue
        definition = facts.get("definition") if isinstance(facts, dict) else None
        if definition != profile.model_dump(mode="json"):
            yield Problem(MANIFEST, f"the definition of {name} is not the one this lab ships")
        found = [raw.result for (of, _), raw in sorted(opened.raws.items()) if of == name]
        yield from (Problem(f"raw/{name}", reason) for reason in profiles.unmet(profile, found))
        if found and profiles.instance_name(profile, found) != name:
            yield Problem(f"raw/{name}", "the profile's name is not that of its device")


CHECKS = {"levels": levels, "complete": complete}
