"""What a sweep says at its end."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import samples
from rich.console import Console

from lab.report import Report, slowdowns, terminal
from lab.report.comparisons import compare


def printed(results: list[samples.Result], width: int = 100) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    terminal.show_sweep(results, Path("sweep"), Report(Path("sweep/report"), 1, 1, (), ()), console)
    return console.export_text().splitlines()


def test_a_sweep_ends_with_its_slowdowns_intervals_and_evidence_in_100_columns() -> None:
    results = [
        samples.timed("kernel=xla", "seq=2048", "q_len=64", "scope=softmax", ms=2.0),
        samples.timed("kernel=pallas", "seq=2048", "q_len=64", "scope=softmax", ms=5.0),
        samples.timed("kernel=pallas-8row", "seq=2048", "q_len=64", "scope=softmax", ms=200.0),
    ]
    said = printed(results)
    assert max(map(len, said)) <= 100
    assert not any("block_rows" in line for line in said)
    (row,) = [line for line in said if "pallas-8row" in line]
    for part in ("softmax 64 x 2048", "100x", " to "):
        assert part in row
    assert any("against xla (above 1: slower)" in line for line in said)
    assert any("interpreted: not a performance claim" in line for line in said)


def test_a_case_is_named_whole_where_a_terminal_has_80_columns() -> None:
    results = [samples.timed(f"kernel={k}", "seq=2048", ms=123.4) for k in ("xla", "pallas-8row")]
    (row,) = [line for line in printed(results, 80) if "pallas-8row" in line]
    assert "attention 2048" in row


def test_levels_that_differ_are_named_in_each_row() -> None:
    given = [("xla", "attention"), ("pallas", "attention"), ("jax_sdpa", "attention")]
    said = printed([samples.timed(f"kernel={k}", f"scope={s}", ms=2.0) for k, s in given])
    for kernel, level in (("pallas", "interpreted"), ("jax_sdpa", "measured")):
        assert any(
            line.split()[:1] == [kernel] and line.endswith(level) for line in map(str.rstrip, said)
        )


def test_what_varies_is_named_and_a_missing_interval_is_none() -> None:
    results = [
        samples.result(cell, samples.benchmark(ms, samples=5))
        for dtype in ("bf16", "f32")
        for kernel, ms in (("xla", 2.0), ("pallas", 5.0))
        for cell in [samples.cell(f"kernel={kernel}", f"dtype={dtype}", "benchmark.samples=5")]
    ]
    said = "\n".join(printed(results))
    assert "attention 256 bf16" in said
    assert "attention 256 f32" in said
    assert said.count("none") == 2


def test_options_are_named_where_a_kernel_appears_with_several() -> None:
    rows = [samples.timed("kernel=pallas", f"kernel.block_rows={n}", ms=5.0) for n in (8, 16)]
    said = "\n".join(printed([samples.timed("kernel=xla", ms=2.0), *rows]))
    assert "block_rows=8" in said
    assert "block_rows=16" in said


def test_nothing_to_compare_is_no_table_and_many_rows_are_cut() -> None:
    assert not any("Slowdown" in line for line in printed([samples.timed("kernel=xla", ms=2.0)]))
    (found,) = compare(
        [samples.timed("kernel=xla", ms=2.0), samples.timed("kernel=pallas", ms=5.0)]
    )
    made = slowdowns.table([found] * (slowdowns.MOST_ROWS + 3))
    assert (made.row_count, made.caption) == (slowdowns.MOST_ROWS, "and 3 more in comparisons.csv")


CUSTOM = ("candidate=custom", "candidate.path=a b.py", "candidate.function=f")
QUOTED = "candidate=custom 'candidate.path=a b.py' candidate.function=f"


@pytest.mark.parametrize(
    ("given", "passed", "command"),
    [
        (
            CUSTOM,
            False,
            "lab task=rubric candidate=custom 'candidate.path=a b.py' candidate.function=f",
        ),
        (("kernel=flash",), False, "lab task=rubric kernel=flash"),
        (("kernel=flash",), True, None),
        (("scope=softmax",), False, None),  # which the rubric does not grade
    ],
)
def test_a_failed_correctness_points_to_the_rubric(
    given: tuple[str, ...], passed: bool, command: str | None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.py").write_text("")
    check = {"name": "causal", "passed": passed, "error": 9.0, "bound": 1.0, "margin": 0.1}
    result = samples.result(samples.cell("task=correctness", *given), {"checks": [check]})
    console = Console(width=100, record=True, file=io.StringIO())
    terminal.show(result, Path("run"), console)
    pointers = [line for line in console.export_text().splitlines() if "task=rubric" in line]
    assert [line.partition(": ")[2] for line in pointers] == ([command] if command else [])
