"""Figures that can be trusted at a glance; matplotlib's warnings are errors here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import samples

from lab import records, report
from lab.errors import UserError
from lab.records import Result
from lab.report import figures, host, latency_figure, panels, published, roofline_figure, series
from lab.report.comparisons import compare

LENGTHS = (128, 256, 512, 1024, 2048)
EVIDENCE = Path(__file__).parents[2] / "evidence" / "tpu-v5e-compiled"


def renamed(result: Result, name: str) -> Result:
    """The record under another candidate's name, without composing it."""
    candidate = {**result.config["candidate"], "kind": "control", "name": name}
    return result.model_copy(
        update={
            "cell": result.cell.model_copy(update={"candidate": name}),
            "config": {**result.config, "candidate": candidate},
            "cell_id": f"{name}-{result.cell_id}",
        }
    )


def curve(
    name: str, ms: float, lengths: tuple[int, ...] = LENGTHS, *overrides: str, **extra: Any
) -> list[Result]:
    kernel = name if name in ("xla", "pallas") else "xla"
    base = samples.cell(f"kernel={kernel}", *overrides)
    made = [
        samples.result(
            samples.changed(base, seq=n), samples.benchmark(ms * n / 128), device=samples.TPU
        )
        for n in lengths
    ]
    made = [
        r.model_copy(update={"benchmark": r.benchmark.model_copy(update=extra)})
        for r in made
        if r.benchmark
    ]
    return made if kernel == name else [renamed(r, name) for r in made]


def draw(out: Path, results: list[Result], **options: Any) -> str:
    files = figures.slowdown(list(compare(results)), [], out, baseline="xla", **options)
    assert files == ["slowdown.png", "slowdown.svg"]
    return (out / "slowdown.svg").read_text()


@pytest.mark.parametrize("count", [1, 8, 30])
def test_one_series_eight_and_thirty(tmp_path: Path, count: int) -> None:
    names = [f"c{i:02}" for i in range(count)]
    results = curve("xla", 1.0) + [r for i, n in enumerate(names) for r in curve(n, 1 + i / 10)]
    drawn = draw(tmp_path, results)
    shown = [name for name in names if f"{name}<" in drawn]
    assert len(shown) == min(count, series.MOST_SERIES)
    assert (f"{count - series.MOST_SERIES} more series" in drawn) == (count > series.MOST_SERIES)


def test_no_two_series_share_a_colour_a_marker_or_a_dash() -> None:
    found = panels.looks(f"k{i}" for i in range(series.MOST_SERIES)).values()
    for part in ("colour", "marker", "dash"):
        assert len({str(getattr(look, part)) for look in found}) == series.MOST_SERIES


def test_series_that_coincide_are_shifted_apart() -> None:
    moved = panels.shifts(["a", "b", "c"], LENGTHS)
    assert len(set(moved.values())) == 3
    assert moved["b"] == 1.0
    assert max(moved.values()) < 2**0.5  # never as far as the next length


def test_shapes_are_panels_over_length_and_rows_at_one_length(tmp_path: Path) -> None:
    widths = [(f"shape.head_dim={d}",) for d in (64, 128, 256)]
    many = [r for o in widths for k in ("xla", "pallas") for r in curve(k, 1.0, LENGTHS, *o)]
    one = [r for o in widths for k in ("xla", "pallas") for r in curve(k, 1.0, (256,), *o)]
    for results in (many, one):
        drawn = draw(tmp_path, results)
        assert all(f"width {d}," in drawn for d in (64, 128, 256))
    assert "slowdown at 256 keys" in draw(tmp_path, one)
    assert "sequence length" in draw(tmp_path, many)


def test_a_panel_too_many_is_said(tmp_path: Path) -> None:
    widths = [(f"shape.head_dim={8 * d}",) for d in range(1, series.MOST_PANELS + 3)]
    results = [r for o in widths for k in ("xla", "pallas") for r in curve(k, 1.0, (64, 128), *o)]
    assert "2 more panels" in draw(tmp_path, results)


def test_a_whisker_that_is_cut_says_so(tmp_path: Path) -> None:
    noisy = [0.01] * 10 + [100.0] * 10
    results = curve("xla", 1.0) + curve("pallas", 2.0)
    assert "goes on beyond" not in draw(tmp_path, results)
    results = curve("xla", 1.0) + curve("pallas", 2.0, samples_ms=noisy)
    assert "goes on beyond" in draw(tmp_path, results)
    latency_figure.latency(results, tmp_path)
    assert "goes on beyond" in (tmp_path / "latency.svg").read_text()


def test_names_that_matplotlib_would_interpret_are_drawn_as_they_stand(tmp_path: Path) -> None:
    drawn = draw(tmp_path, curve("xla", 1.0) + curve("a$b$_c^漢", 2.0))
    assert "a$b$_c^?" in drawn


def test_the_published_curve_is_inverted_or_refused_and_names_kernel_and_device(
    tmp_path: Path,
) -> None:
    direct, inverse = published.curves("xla"), published.curves("pallas-8row")
    for one, other in zip(direct, inverse, strict=True):
        assert (one.kernel, other.kernel) == ("pallas-8row", "xla")
        for n, ratio in one.slowdowns.items():
            assert ratio * other.slowdowns[n] == pytest.approx(1)
    with pytest.raises(UserError, match=r"report.baseline=pallas.*xla and pallas-8row"):
        published.curves("pallas")
    drawn = draw(tmp_path, curve("xla", 1.0) + curve("pallas", 2.0), overlay="published")
    assert "pallas-8row, attention; published: TPU v5e" in drawn
    assert "pallas-8row, softmax" not in drawn  # it was not run
    other = curve("xla", 1.0, LENGTHS, "dtype=f32") + curve("pallas", 2.0, LENGTHS, "dtype=f32")
    assert "published" not in draw(tmp_path, other, overlay="published")


def test_the_latency_curve_draws_the_dispatch_floor_where_there_is_one(tmp_path: Path) -> None:
    latency_figure.latency(curve("xla", 1.0, dispatch_floor_ms=0.4), tmp_path)
    drawn = (tmp_path / "latency.svg").read_text()
    assert "dispatch floor: an empty" in drawn
    latency_figure.latency(curve("xla", 1.0), tmp_path)
    drawn = (tmp_path / "latency.svg").read_text()
    assert "dispatch floor: an empty" not in drawn
    assert "no dispatch floor" in drawn
    assert latency_figure.latency([], tmp_path) == []


def test_a_roofline_stands_under_the_peaks_of_the_device_or_there_is_none(tmp_path: Path) -> None:
    chip = curve("xla", 1.0)
    assert roofline_figure.roofline(chip, tmp_path, {}) == ["roofline.png", "roofline.svg"]
    assert "197 TFLOP/s, 819 GB/s" in (tmp_path / "roofline.svg").read_text()
    model = chip[0].environment.cpu_model
    cpu = [samples.timed("kernel=xla", ms=1.0)]
    assert roofline_figure.roofline(cpu, tmp_path, {}) == []
    own = {model: host.HostPeaks(cpu_model=model, tflops=0.5, gb_s=20, source=host.SOURCE)}
    roofline_figure.roofline(cpu, tmp_path, own)
    assert "roof measured on the CPU" in (tmp_path / "roofline.svg").read_text()
    interpreted = [samples.timed("kernel=pallas", ms=1.0)]
    assert roofline_figure.roofline(interpreted, tmp_path, own) == []


def test_estimates_have_a_roofline_and_their_band(tmp_path: Path) -> None:
    paths = sorted((EVIDENCE / "sweep").glob("*/result.json"))
    cells = [records.read(path, Result) for path in paths]
    assert roofline_figure.roofline(cells, tmp_path, {})
    drawn = draw(tmp_path, cells, overlay="published")
    assert "from one source of cycles to the other" in drawn
    assert "goes on beyond" not in drawn  # a band is no noise
    assert "estimates are of the device alone" in drawn


def test_an_overlay_with_another_baseline_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    for result in curve("xla", 1.0) + curve("pallas", 2.0):
        samples.keep(result, tmp_path / "sweep" / result.cell_id)
    with pytest.raises(UserError, match=r"report.overlay=published with report.baseline=pallas"):
        report.build([tmp_path / "sweep"], tmp_path / "out", overlay="published", baseline="pallas")
    assert not (tmp_path / "out").exists()
