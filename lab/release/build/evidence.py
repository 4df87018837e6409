"""Evidence pages: what ran, on what, by which command, what may be concluded and what may not.

One folder a profile, made from the release's records; and one for the published v5e figures, which
are somebody else's measurement and not part of the release. Pure functions, same bytes each time.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.release.build import profiles, tables
from lab.release.build.tables import Entry
from lab.release.format import card, rows
from lab.report import published

PUBLISHED = "published-kaggle-v5e-8"
_PUBLISHED_FACTS = Path(published.__file__).with_name("published_v5e.json")


def pages(entries: Sequence[Entry]) -> dict[str, bytes]:
    """Every page, by path relative to the evidence folder."""
    made = tables.make(entries)
    files = published_pages()
    shipped = profiles.load_all()
    for name in sorted({entry.profile for entry in entries}):
        profile = profiles.template_of(name, shipped)
        if profile is None or not profile.evidence_page:
            continue
        own = [entry for entry in entries if entry.profile == name]
        facts = card.profile_facts(name, profile, own, made)
        facts["suites"] = _suites(r for r in made.get("correctness", ()) if r.profile == name)
        facts["verdicts"] = [r for r in made.get("rubric", ()) if r.profile == name]
        page = card.environment().get_template("evidence.md").render(profile=facts)
        files[f"{name}/README.md"] = page.encode()
        compared = [row.model_dump(mode="json") for row in facts["comparisons"]]
        if compared:
            files[f"{name}/comparisons.csv"] = _csv(compared)
    return files


def published_pages() -> dict[str, bytes]:
    """The published figures as a page and a table, with attribution."""
    facts = json.loads(_PUBLISHED_FACTS.read_text())
    cases = [
        {
            "scope": case.scope,
            "seq": case.seq,
            "xla_ms": case.xla_ms,
            "pallas_ms": case.pallas_ms,
            "slowdown": case.slowdown,
            "evidence": "measured",
        }
        for case in published.published()
    ]
    page = card.environment().get_template("published.md").render(cases=cases, facts=facts)
    return {
        f"{PUBLISHED}/README.md": page.encode(),
        f"{PUBLISHED}/comparisons.csv": _csv(cases),
    }


def write(out: Path, files: Mapping[str, bytes]) -> None:
    """Write the pages below `out`; what else is there stays."""
    for name, data in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _suites(checks: Iterable[rows.Row]) -> list[dict[str, Any]]:
    """One line a suite: checks passed, and the largest error in units of its bound."""
    suites: dict[str, list[rows.Correctness]] = {}
    for row in checks:
        assert isinstance(row, rows.Correctness)
        suites.setdefault(row.record, []).append(row)
    return [
        {
            "kernel": found[0].kernel,
            "scope": found[0].scope,
            "dtype": found[0].dtype,
            "evidence": found[0].evidence,
            "passed": sum(row.passed for row in found),
            "checks": len(found),
            "worst": max((r.error / r.bound for r in found if r.error and r.bound), default=0.0),
        }
        for found in suites.values()
    ]


def _csv(records: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode()
