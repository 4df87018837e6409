"""From directories of records to tables, a page and figures."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
import samples

from lab import records, report
from lab.errors import UserError
from lab.records import Device, Result
from lab.report import figures, series
from lab.report.comparisons import compare

LENGTHS = (128, 256, 512)


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def write(directory: Path, *results: Result) -> Path:
    for result in results:
        samples.keep(result, directory / result.cell_id)
    return directory


def curve(
    kernel: str, ms: float, lengths: tuple[int, ...] = LENGTHS, **extra: object
) -> list[Result]:
    base = samples.cell(f"kernel={kernel}")
    cells = [samples.changed(base, seq=seq, **extra) for seq in lengths]
    return [samples.result(cell, samples.benchmark(ms)) for cell in cells]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    gap = samples.changed(samples.cell("kernel=pallas"), seq=256)
    failed = samples.result(gap, status="failed", reason="ValueError: [/x] a|b")
    return write(tmp_path / "sweep", *curve("xla", 1.0), *curve("pallas", 4.0, (128, 512)), failed)


def test_tables_hold_a_row_a_cell_and_a_row_a_comparison(sweep: Path, tmp_path: Path) -> None:
    built = report.build([sweep], tmp_path / "out")
    assert (built.cells, built.comparisons, built.skipped) == (6, 2, ())
    rows = table(tmp_path / "out/cells.csv")
    assert [row["status"] for row in rows].count("done") == 5
    (failed,) = [row for row in rows if row["status"] == "failed"]
    assert failed["reason"] == "ValueError: [/x] a|b"
    assert failed["median_ms"] == ""
    assert (failed["q_heads"], failed["kv_heads"], failed["causal"]) == ("8", "2", "True")
    pairs = table(tmp_path / "out/comparisons.csv")
    assert [(row["kernel"], row["seq"], row["slowdown"]) for row in pairs] == [
        ("pallas", "128", "4.0"), ("pallas", "512", "4.0"),
    ]  # fmt: skip
    columns = (
        "scope seq q_len dtype shape direction baseline kernel kernel_options baseline_ms "
        "kernel_ms slowdown slowdown_lo slowdown_hi evidence device_kind baseline_cell kernel_cell"
    )
    added = (
        "batch q_heads kv_heads head_dim causal padding method verdict used flags machine values"
    )
    assert " ".join(pairs[0]) == f"{columns} {added}"
    assert {row["cell_id"] for row in rows} >= {pairs[0]["baseline_cell"], pairs[0]["kernel_cell"]}
    page = (tmp_path / "out/report.md").read_text()
    assert "6 cells: 5 done, 1 failed." in page
    assert "ValueError: [/x] a|b" in page
    assert "**Evidence: interpreted: not a performance claim.**" in page


def test_the_page_says_which_machine_and_versions_ran(sweep: Path, tmp_path: Path) -> None:
    report.build([sweep], tmp_path / "out")
    page = (tmp_path / "out/report.md").read_text()
    environment = samples.timed(ms=1.0).environment
    (ran,) = [line for line in page.splitlines() if f"| Python {environment.python}, jax " in line]
    assert str(environment.cpu_model) in ran
    assert f"jax {environment.jax}" in ran
    assert ran.endswith("| 6 |")


def test_the_figure_says_its_evidence_and_marks_gaps(sweep: Path, tmp_path: Path) -> None:
    report.build([sweep], tmp_path / "out")
    drawn = (tmp_path / "out/slowdown.svg").read_text()
    assert "interpreted: not a performance claim" in drawn
    assert "no result" in drawn
    assert "as fast" in drawn
    assert "published" not in drawn
    assert (tmp_path / "out/slowdown.png").read_bytes()[:4] == b"\x89PNG"
    report.build([sweep], tmp_path / "out", overlay="published")
    overlaid = (tmp_path / "out/slowdown.svg").read_text()
    assert "published: TPU v5e, L. Zorana, CC BY-NC 4.0" in overlaid
    assert "CC BY-NC 4.0" in (tmp_path / "out/report.md").read_text()


def test_the_same_records_give_the_same_bytes(sweep: Path, tmp_path: Path) -> None:
    one = report.build([sweep], tmp_path / "one", overlay="published")
    report.build([sweep], tmp_path / "two", overlay="published")
    assert "slowdown.svg" in one.files
    for name in one.files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_an_old_figure_does_not_outlive_its_comparisons(sweep: Path, tmp_path: Path) -> None:
    report.build([sweep], tmp_path / "out")
    built = report.build([write(tmp_path / "alone", *curve("xla", 1.0))], tmp_path / "out")
    assert built.comparisons == 0
    assert not (tmp_path / "out/slowdown.png").exists()
    assert table(tmp_path / "out/comparisons.csv") == []


def test_every_level_has_its_own_panel_and_claim(tmp_path: Path) -> None:
    naive = [
        samples.result(samples.changed(samples.cell("kernel=xla", "candidate=naive"), seq=seq),
                       samples.benchmark(1.2)) for seq in LENGTHS
    ]  # fmt: skip
    write(tmp_path / "mixed", *curve("xla", 1.0), *curve("pallas", 4.0), *naive)
    report.build([tmp_path / "mixed"], tmp_path / "out")
    drawn = (tmp_path / "out/slowdown.svg").read_text()
    assert "measured on cpu: not a TPU" in drawn
    assert "interpreted: not a performance claim" in drawn


def test_on_a_tpu_the_claim_is_a_measurement(tmp_path: Path) -> None:
    pair = [
        samples.timed(f"kernel={name}", ms=1.0, device=samples.TPU) for name in ("xla", "pallas")
    ]
    report.build([write(tmp_path / "tpu", *pair)], tmp_path / "out")
    drawn = (tmp_path / "out/slowdown.svg").read_text()
    assert "measured on TPU v5 lite<" in drawn
    assert "not a TPU" not in drawn


def test_truncated_and_cut_off_runs_are_named(sweep: Path, tmp_path: Path) -> None:
    first, second, *_ = sorted(path.parent for path in sweep.glob("*/result.json"))
    (first / "result.json").write_bytes((first / "result.json").read_bytes()[:300])
    status = json.loads((second / "status.json").read_text())
    (second / "status.json").write_text(json.dumps({**status, "status": "running"}))
    built = report.build([sweep], tmp_path / "out")
    assert built.cells == 4
    truncated, cut_off = built.skipped
    assert truncated.startswith(f"{first.name}/result.json: the file: Invalid JSON")
    assert cut_off.startswith(f"{second.name}: the run was cut off")
    page = (tmp_path / "out/report.md").read_text()
    assert truncated in page
    assert cut_off in page


def test_the_latest_run_of_a_cell_on_a_machine_counts(tmp_path: Path) -> None:
    old = samples.timed("kernel=xla", ms=1.0)
    new = samples.timed("kernel=xla", ms=2.0).model_copy(update={"finished_at": "2040"})
    tpu = samples.timed("kernel=xla", ms=3.0, device=samples.TPU)
    for name, result in (("a", old), ("b", new), ("c", tpu)):
        samples.keep(result, tmp_path / "runs" / name)
    built = report.build(
        [tmp_path / "runs", tmp_path / "runs/b"], tmp_path / "out", merge_machines=True
    )
    rows = table(tmp_path / "out/cells.csv")
    assert sorted((row["median_ms"], row["device_kind"]) for row in rows) == [
        ("2.0", "cpu"), ("3.0", "TPU v5 lite"),
    ]  # fmt: skip
    assert built.skipped == (f"{tmp_path}/runs/a: an older run of {old.cell_id}",)


def test_reports_are_no_cells(sweep: Path, tmp_path: Path) -> None:
    alone = report.build([sweep], tmp_path / "one")
    section = {"cells": 1, "comparisons": 0, "skipped": [], "files": []}
    kept = samples.keep(samples.result(samples.cell("task=report"), section), sweep / "a-report")
    status = json.loads((kept / "status.json").read_text())
    (kept / "status.json").write_text(json.dumps({**status, "status": "running"}))
    assert report.build([sweep], tmp_path / "two").cells == alone.cells
    assert (tmp_path / "one/cells.csv").read_bytes() == (tmp_path / "two/cells.csv").read_bytes()


def test_a_missing_and_an_empty_directory_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="missing is no directory"):
        report.build([tmp_path / "missing"], tmp_path / "out")
    with pytest.raises(UserError, match="no runs there"):
        report.build([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def names(results: list[Result]) -> dict[tuple[str, str], tuple[list[int], tuple[int, ...]]]:
    """Lengths and gaps of each series, by the titles of its panel and its own name."""
    gaps = [r for r in results if r.status != "done"]
    drawn = series.sheet(figures.points_of(list(compare(results))), gaps, "xla")
    return {
        (panel.title, one.name): (sorted(one.points), one.lost)
        for panel in drawn.panels
        for one in panel.series
    }


def test_options_and_shapes_split_lines_and_are_named_where_they_differ() -> None:
    rows = [samples.cell("kernel=pallas", f"kernel.block_rows={n}") for n in (8, 16)]
    pallas = [
        samples.result(samples.changed(cell, seq=seq), samples.benchmark(2.0))
        for cell in rows for seq in LENGTHS
    ]  # fmt: skip
    assert names([*curve("xla", 1.0), *pallas]) == {
        ("", "pallas (block_rows=8)"): ([*LENGTHS], ()),
        ("", "pallas (block_rows=16)"): ([*LENGTHS], ()),
    }
    wide = [samples.timed(f"kernel={k}", "shape.head_dim=64", ms=1.0) for k in ("xla", "pallas")]
    both = [*curve("xla", 1.0, (256,)), *curve("pallas", 4.0, (256,)), *wide]
    # Numbers sort as numbers: 64 before 128.
    assert list(names(both)) == [
        (f"batch 1, heads 8/2, width {d}, causal", "pallas") for d in (64, 128)
    ]


def test_repetitions_share_a_line() -> None:
    repeated = [r for seed in (0, 1) for r in curve("xla", 1.0, seed=seed)]
    repeated += [r for seed in (0, 1) for r in curve("pallas", 3.0 + seed, seed=seed)]
    assert names(repeated) == {("", "pallas"): ([*LENGTHS], ())}


def test_a_gap_belongs_to_its_own_line_and_a_baseline_gap_to_all() -> None:
    def failed(*overrides: str) -> Result:
        return samples.result(
            samples.cell(*overrides), status="failed", reason="odd",
            device=Device(),
        )  # fmt: skip

    f32 = [samples.timed(f"kernel={k}", "dtype=f32", "seq=128", ms=1.0) for k in ("xla", "pallas")]
    whole = [*curve("xla", 1.0, (128, 256)), *curve("pallas", 2.0, (128, 256)), *f32]
    assert names([*whole, failed("kernel=pallas", "dtype=f32", "seq=256")]) == {
        ("bf16", "pallas"): ([128, 256], ()),
        ("f32", "pallas"): ([128], (256,)),
    }
    lost = names([*whole, failed("kernel=xla", "seq=512")])
    assert lost["bf16", "pallas"] == ([128, 256], (512,))
    assert lost["f32", "pallas"] == ([128], ())


@pytest.mark.slow
def test_ten_thousand_records(tmp_path: Path) -> None:
    templates = {
        kernel: records.dump(samples.timed(f"kernel={kernel}", ms=ms))
        for kernel, ms in (("xla", 1.0), ("pallas", 4.0))
    }
    for kernel, text in templates.items():
        cell_id = json.loads(text)["cell_id"]
        for seq in range(1, 5001):
            made = text.replace(cell_id, f"{kernel}-{seq}")
            made = re.sub(r'"(seq|q_len)": 256', rf'"\1": {seq}', made)
            directory = tmp_path / "many" / f"{kernel}-{seq}"
            directory.mkdir(parents=True)
            (directory / "result.json").write_text(made)
            status = {
                "schema_version": 1, "cell_id": f"{kernel}-{seq}", "status": "done", "reason": None,
                "pid": 1, "started_at": "2030", "finished_at": "2030",
            }  # fmt: skip
            (directory / "status.json").write_text(json.dumps(status))
    built = report.build([tmp_path / "many"], tmp_path / "out")
    assert (built.cells, built.comparisons, built.skipped) == (10_000, 5_000, ())
    rows = table(tmp_path / "out/comparisons.csv")
    assert [int(row["seq"]) for row in rows] == list(range(1, 5001))
    assert {row["slowdown"] for row in rows} == {"4.0"}
