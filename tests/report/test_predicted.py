"""Compiled cells in the report, and the checked-in evidence for the estimates."""

import functools
from pathlib import Path
from typing import Any

import pytest

from lab import records
from lab.records import Result
from lab.report import comparisons, predicted, tables, validate
from lab.report.validation import ratios

EVIDENCE = Path(__file__).parents[2] / "evidence" / "tpu-v5e-compiled"


@functools.cache
def evidence() -> tuple[Result, ...]:
    paths = sorted((EVIDENCE / "sweep").glob("*/result.json"))
    return tuple(records.read(path, Result) for path in paths)


def changed(result: Result, **fields: Any) -> Result:
    assert result.compile is not None
    section = result.compile.model_copy(update=fields)
    cell = result.cell.model_copy(update={"target": section.target})
    return result.model_copy(update={"compile": section, "cell": cell})


def test_the_evidence_holds_the_twenty_cases_and_meets_its_claims(tmp_path: Path) -> None:
    found = validate.write(EVIDENCE / "sweep", tmp_path)
    assert len(found.points) == 20
    assert found.mean_error("xla") <= 0.10
    assert found.mean_error("pallas-8row") <= 0.20
    assert found.worst_error <= 0.35
    assert all(r.same_side for r in ratios(found.points, found.dispatch_ms))
    assert abs(found.dispatch_ms - predicted.DISPATCH_MS) < 1e-3
    for name in ("validation.csv", "validation.md"):
        assert (tmp_path / name).read_text() == (EVIDENCE / name).read_text()


def test_the_page_of_the_evidence_quotes_its_own_tables() -> None:
    found = validate.fit(predicted.against_published(predicted.compiled(evidence())))
    page = (EVIDENCE / "README.md").read_text()
    for kernel in ("xla", "pallas-8row"):
        assert f"{100 * found.mean_error(kernel):.1f}% | " in page
        assert f"{100 * found.mean_left_out(kernel):.1f}% | " in page
    assert f"{100 * found.worst_error:.1f}%" in page
    assert f"{found.dispatch_ms:.3f} ms" in page


def test_estimates_are_the_sum_of_their_ops() -> None:
    for result in evidence():
        assert result.compile is not None
        cycles = sum(op.count * (op.estimated_cycles or 0) for op in result.compile.ops)
        assert result.compile.estimated_ms == pytest.approx(cycles / 1.5e6)


def test_a_report_of_compiled_cells_has_their_table_and_the_published_figure(
    tmp_path: Path,
) -> None:
    files = predicted.write(evidence(), tmp_path)
    assert files == ["predicted.csv", "predicted.png", "predicted.svg"]
    assert len((tmp_path / "predicted.csv").read_text().splitlines()) == 21
    text = predicted.section(evidence())
    assert "never measurements" in text
    assert "0.1694 ms of host dispatch" in text
    assert text.count("%") >= 20
    first = (tmp_path / "predicted.csv").read_bytes()
    predicted.write(tuple(reversed(evidence())), tmp_path)
    assert (tmp_path / "predicted.csv").read_bytes() == first


def test_without_compiled_cells_nothing_is_written_and_stale_files_go(tmp_path: Path) -> None:
    (tmp_path / "predicted.png").write_text("stale")
    assert predicted.write([], tmp_path) == []
    assert predicted.section([]) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_of_estimates_has_one_answer_whichever_side_is_the_baseline() -> None:
    cells = predicted.compiled(evidence())
    forth = predicted.slowdowns(cells, "xla")
    back = predicted.slowdowns(cells, "pallas-8row")
    assert len(forth) == len(back) == 10
    for found in forth.values():
        other = back[found.baseline.cell_id]
        assert found.slowdown * other.slowdown == pytest.approx(1)
        assert found.interval is not None
        assert other.interval is not None
        assert found.interval.lo * other.interval.hi == pytest.approx(1)
        assert found.interval.hi * other.interval.lo == pytest.approx(1)
        opposite = {"slower": "faster", "faster": "slower", "ambiguous": "ambiguous"}
        assert found.verdict is not None
        assert other.verdict == opposite[found.verdict]


def test_the_claim_is_that_of_the_cells_own_estimates_and_lies_in_the_band() -> None:
    for found in predicted.slowdowns(predicted.compiled(evidence()), "xla").values():
        assert found.kernel.compile is not None
        assert found.baseline.compile is not None
        assert found.kernel_ms == found.kernel.compile.estimated_ms
        assert found.baseline_ms == found.baseline.compile.estimated_ms
        assert found.interval is not None
        assert found.interval.lo <= found.slowdown <= found.interval.hi


def test_sources_that_contradict_each_other_are_ambiguous() -> None:
    pair = [r for r in evidence() if (r.cell.scope, r.cell.seq) == ("softmax", 2048)]
    xla = next(r for r in pair if r.cell.kernel == "xla")
    assert xla.compile is not None
    fast = xla.compile.floor_ms * 1.1  # by its executed schedule, far below its cost model
    kernel = [
        changed(r, estimated_ms=xla.compile.schedule_ms, schedule_ms=xla.compile.schedule_ms)
        for r in pair
        if r.cell.kernel != "xla"
    ]
    (found,) = comparisons.compare([changed(xla, schedule_ms=fast), *kernel])
    assert found.interval is not None
    assert found.interval.lo < 1 < found.interval.hi
    assert found.verdict == "ambiguous"


def test_without_a_schedule_on_both_sides_there_is_no_band_and_no_verdict() -> None:
    cells = [changed(r, schedule_ms=None) for r in predicted.compiled(evidence())]
    for found in predicted.slowdowns(cells, "xla").values():
        assert (found.interval, found.verdict) == (None, None)


def test_an_estimate_counts_only_where_its_values_were_proved() -> None:
    proved = predicted.compiled(evidence())
    assert all(r.compile and r.compile.values_proved for r in proved)
    cells = [
        changed(r, values_proved=None, proof=None) for r in proved
    ]  # as before there were proofs
    assert "not proved: 20 of these" in predicted.section(cells).lower()
    assert "not proved" not in predicted.section(proved).lower()
    wrong = [changed(r, values_proved=r.cell.kernel == "xla") for r in cells]
    assert predicted.slowdowns(wrong, "xla") == {}
    assert "wrong or not proved" in predicted.section(wrong)


def test_times_of_other_targets_carry_their_label_and_meet_no_published_time() -> None:
    label = "estimates not validated"
    cells = [changed(r, target="v5p", validated=False, label=label) for r in evidence()]
    assert predicted.against_published(cells) == []
    table = [line for line in predicted.section(cells).splitlines() if "| v5p |" in line]
    assert len(table) == 20
    assert all(label in line for line in table)
    assert all(label in tables.device(cell) for cell in cells)


def test_a_cell_without_estimate_shows_why() -> None:
    cells = [
        changed(r, estimated_ms=None, no_estimate="control flow depends on data")
        for r in evidence()[:1]
    ]
    assert "control flow depends on data" in predicted.section(cells)
    assert predicted.slowdowns(cells, "xla") == {}


def test_validation_of_a_sweep_without_published_cases_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(validate.UserError, match="holds 0 published cases; run the sweep"):
        validate.write(tmp_path, tmp_path / "out")
