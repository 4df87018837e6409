"""Write the validation of a sweep over the published cases: tables and a figure.

    python -m lab.report.validate SWEEP_DIRECTORY OUT_DIRECTORY

makes validation.csv (a row a point), validation.md (the fit and its tables), predicted.png, .svg.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from lab import records
from lab.errors import UserError
from lab.records import RESULT_FILE, Result
from lab.report import predicted, predicted_figure
from lab.report.jinja import PAGES
from lab.report.validation import Fit, fit, ratios


def write(sweep: Path, out: Path) -> Fit:
    """Validate the compiled cells under `sweep` and write the files into `out`.

    Raises:
        UserError: no cell of a published case.
    """
    results = [records.read(path, Result) for path in sorted(sweep.rglob(RESULT_FILE))]
    cells = predicted.compiled(results)
    points = predicted.against_published(cells)
    if len(points) < predicted.LEAST_POINTS:
        raise UserError(
            f"{sweep} holds {len(points)} published cases; run the sweep of "
            "evidence/tpu-v5e-compiled/README.md first"
        )
    found = fit(points)
    out.mkdir(parents=True, exist_ok=True)
    table = rows(found).to_csv(index=False, lineterminator="\n", float_format="%.6g")
    records.write_atomically(out / "validation.csv", table)
    records.write_atomically(out / "validation.md", page(found, cells))
    predicted_figure.draw(points, found.dispatch_ms, out)
    return found


def rows(found: Fit) -> pd.DataFrame:
    """A row a point: published, estimate, prediction, error, error when left out of the fit."""
    return pd.DataFrame(
        {
            "kernel": point.kernel,
            "scope": point.scope,
            "seq": point.seq,
            "published_ms": point.published_ms,
            "estimated_ms": point.estimated_ms,
            "dispatch_ms": found.dispatch_ms,
            "predicted_ms": point.predicted_ms(found.dispatch_ms),
            "relative_error": error,
            "left_out_relative_error": left_out,
        }
        for point, error, left_out in zip(found.points, found.errors, found.left_out, strict=True)
    )


def page(found: Fit, cells: list[Result]) -> str:
    """The tables as Markdown."""
    sources = [
        (cell, op)
        for cell in cells
        for op in (cell.compile.ops if cell.compile else ())
        if op.kind == "pallas" and op.static_profile_cycles and op.schedule_cycles
    ]
    return PAGES.get_template("validation.md").render(
        fit=found,
        rows=rows(found).to_dict("records"),
        ratios=ratios(found.points, found.dispatch_ms),
        sources=sources,
        versions=sorted({(c.compile.jax, c.compile.libtpu) for c in cells if c.compile}),
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m lab.report.validate SWEEP_DIRECTORY OUT_DIRECTORY")
    try:
        write(Path(sys.argv[1]), Path(sys.argv[2]))
    except (UserError, records.InvalidRecord) as error:
        sys.exit(f"error: {error}")
