"""The texts of a release: card, citation, licence, changelog. Pure functions of its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from lab.records import EVIDENCE_ORDER
from lab.release import RELEASE_VERSION
from lab.release.build.profiles import Profile
from lab.release.build.tables import Entry
from lab.release.format import canonical, rows, schema, text
from lab.report.comparisons import BASELINE

_TEMPLATES = Path(__file__).resolve().parent / "templates"


def environment() -> jinja2.Environment:
    """Templates with the filters that format figures."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown and YAML, not HTML
    )
    made.filters["figure"] = figure
    made.filters["interval"] = _interval
    return made


def figure(value: float | None) -> str:
    """Four significant digits, for people; the tables hold the number itself."""
    return "-" if value is None else f"{value:#.4g}".rstrip(".")


def _interval(row: rows.Comparison) -> str:
    if row.slowdown_lo is None or row.slowdown_hi is None:
        return "-"
    return f"{figure(row.slowdown_lo)} to {figure(row.slowdown_hi)}"


def texts(
    tables: dict[str, list[rows.Row]],
    entries: Sequence[Entry],
    profiles: dict[str, Profile],
    published: str,
) -> dict[str, bytes]:
    """README.md, CITATION.cff, LICENSE-DATA and CHANGELOG.md, by file name."""
    context: dict[str, Any] = {
        "title": text.TITLE,
        "description": text.DESCRIPTION,
        "version": RELEASE_VERSION,
        "published": published,
        "license_id": text.LICENSE_ID,
        "license_spdx": text.LICENSE_SPDX,
        "authors": text.AUTHORS,
        "citation": text.citation(published),
        "baseline": BASELINE,
        "size_category": _size_category(sum(map(len, tables.values()))),
        "tables": [_table(name, found) for name, found in tables.items()],
        "profiles": [
            profile_facts(name, profile, [e for e in entries if e.profile == name], tables)
            for name, profile in sorted(profiles.items())
        ],
    }
    templates = environment()
    names = ("README.md", "CITATION.cff", "LICENSE-DATA", "CHANGELOG.md")
    return {name: templates.get_template(name).render(context).encode() for name in names}


def _size_category(count: int) -> str:
    steps = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))
    return next((name for limit, name in steps if count < limit), "100K<n<1M")


def _table(name: str, found: list[rows.Row]) -> dict[str, Any]:
    return {
        "name": name,
        "rows": len(found),
        # The file's own size: what a reader holds in memory is the reader's affair.
        "bytes": len(canonical.lines(row.model_dump(mode="json") for row in found)),
        "purpose": text.TABLE_PURPOSE[name],
        "features": schema.features(name),
    }


def profile_facts(
    name: str, profile: Profile, entries: Sequence[Entry], tables: dict[str, list[rows.Row]]
) -> dict[str, Any]:
    """What a page says of one profile, from its records."""
    results = [entry.result for entry in entries]
    looks = [result.doctor for result in results if result.doctor is not None]
    # A first look may have seen no device, or libraries that were replaced; it is told apart.
    working = [entry for entry in entries if entry.result.task != "doctor"] or list(entries)
    tasks = Counter(result.task for result in results)
    levels = {r.evidence for r in results if r.evidence is not None}
    comparisons = [r for r in tables.get("comparisons", ()) if r.profile == name]
    return {
        "name": name,
        "title": profile.title,
        "summary": " ".join(profile.summary.split()),
        "devices": "; ".join(sorted({_device(e) for e in working})),
        "libraries": "; ".join(sorted({_libraries(e) for e in working})),
        "cases": sorted({_case(e) for e in working}),
        "looks": len(looks),
        "bad_looks": [str(look.advice) for look in looks if not look.ready],
        "records": len(entries),
        "by_task": ", ".join(f"{count} {task}" for task, count in sorted(tasks.items())),
        "first": min(r.started_at for r in results)[:10],
        "last": max(r.finished_at for r in results)[:10],
        "code": "; ".join(sorted({_code(e) for e in working})),
        "levels": ", ".join(sorted(levels, key=EVIDENCE_ORDER.index)),
        "commands": [" ".join(command.split()) for command in profile.commands],
        "conclusions": profile.conclusions,
        "limits": profile.limits,
        "comparisons": comparisons,
    }


def _case(entry: Entry) -> str:
    shape, dtype = entry.result.config["shape"], entry.result.config["dtype"]
    return (
        f"batch {shape['batch']}, {shape['q_heads']} query heads, {shape['kv_heads']} key/value "
        f"heads of width {shape['head_dim']}, {'causal' if shape['causal'] else 'not causal'}, "
        f"padding {shape['padding']}; {dtype['name']}: {dtype['input']} in, {dtype['logits']} "
        f"logits, {dtype['accumulation']} accumulation, {dtype['output']} out"
    )


def _device(entry: Entry) -> str:
    result, seen = entry.result, entry.result.environment
    host = f"{seen.cpu_model}, {seen.cpu_count} CPUs visible"
    if result.cell.target:
        return f"none; compiled for {result.cell.target} on {host}"
    if seen.device_kind is None:
        return f"none asked, on {host}"
    return f"{seen.device_kind} ({seen.platform}), {seen.device_count} visible, on {host}"


def _libraries(entry: Entry) -> str:
    seen = entry.result.environment
    libtpu = f", libtpu {seen.libtpu}" if seen.libtpu else ""
    return f"Python {seen.python}, jax {seen.jax}, jaxlib {seen.jaxlib}{libtpu}, NumPy {seen.numpy}"


def _code(entry: Entry) -> str:
    result, commit = entry.result, entry.result.environment.commit
    at = f"commit {commit[:12]}" if commit else "no commit known"
    changed = ", with uncommitted changes" if result.environment.dirty else ""
    return f"{at}{changed}, code_sha256 {result.code_sha256[:12]}"
