"""Records become tables, curves and a page. A pure function of directories; no jax here.

`load` finds records, `comparisons` pairs them, `tables` are the CSV files, `page` and `html` the
pages (their text is in templates/); `figures`, `latency_figure`, `roofline_figure` and
`utilisation_figure` draw on `panels`, `published` is the curve that is laid over them; `terminal`
and `progress` are what a person sees meanwhile, `before_after` what task=compare finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import records
from lab.errors import UserError
from lab.records import Result
from lab.report.comparisons import BASELINE, compare, label, reading_order
from lab.report.load import load


@dataclass(frozen=True)
class Report:
    """What was written, and what it was made from."""

    directory: Path
    cells: int
    comparisons: int
    skipped: tuple[str, ...]
    files: tuple[str, ...]


def build(
    runs: Sequence[Path],
    out: Path,
    *,
    overlay: str | None = None,
    baseline: str = BASELINE,
    merge_machines: bool = False,
) -> Report:
    """Read the records under `runs` and write the tables, the figures, report.md and report.html.

    The same records give the same bytes. Figures are written where anything can be compared.

    Args:
        runs: run or sweep directories.
        out: the directory to write into; made if it is missing.
        overlay: "published" draws the published v5e curve too.
        baseline: the kernel that others are compared with.
        merge_machines: let times of unlike machines stand in one table, each row marked.

    Raises:
        UserError: a directory is missing, or holds no run; or machines are unlike.
    """
    loaded = load(runs)
    # pandas and matplotlib take most of a second to import: only those pay who get here.
    from lab.report import figures, host, html, machines, page, predicted, tables
    from lab.report.latency_figure import latency
    from lab.report.published import curves
    from lab.report.roofline_figure import roofline
    from lab.report.utilisation_figure import utilisation

    results = [entry.result for entry in loaded.entries]
    _require_baseline(results, baseline)
    if not merge_machines:
        machines.refuse_unlike(results)
    if overlay == "published":
        curves(baseline)  # refuses a baseline of which nothing was published
    peaks = host.read(runs)
    found = sorted(compare(results, baseline), key=lambda c: reading_order(c.kernel))
    gaps = [r for r in results if r.task in ("benchmark", "compile") and r.status != "done"]
    out.mkdir(parents=True, exist_ok=True)
    files = ["cells.csv", "comparisons.csv", "report.md", "report.html"]
    for stale in ("slowdown", "latency", "roofline", "utilisation"):
        for suffix in ("png", "svg"):
            (out / f"{stale}.{suffix}").unlink(missing_ok=True)
    cells_csv = tables.cells(loaded.entries, peaks).to_csv(index=False, lineterminator="\n")
    comparisons_csv = tables.comparisons(found).to_csv(index=False, lineterminator="\n")
    records.write_atomically(out / "cells.csv", cells_csv)
    records.write_atomically(out / "comparisons.csv", comparisons_csv)
    if found:
        files += figures.slowdown(found, gaps, out, baseline=baseline, overlay=overlay)
    files += latency(results, out)
    files += roofline(results, out, peaks)
    files += utilisation(results, out)
    files += predicted.write(results, out, baseline)
    text = page.render(loaded, found, baseline=baseline, overlay=overlay, files=files, peaks=peaks)
    records.write_atomically(out / "report.md", text)
    text = html.render(loaded, found, out, files, baseline=baseline, peaks=peaks)
    records.write_atomically(out / "report.html", text)
    return Report(out, len(results), len(found), loaded.skipped, tuple(files))


def _require_baseline(results: Sequence[Result], baseline: str) -> None:
    """A baseline that was asked for must be there; the default one may be missing."""
    names = sorted({label(result) for result in results if result.task in ("benchmark", "compile")})
    if baseline != BASELINE and baseline not in names:
        raise UserError(
            f"report.baseline={baseline}: no such cell; there are {', '.join(names) or 'none'}"
        )
