"""Which records may be compared: those of one case on one machine, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import samples

from lab.records import Result
from lab.report.comparisons import compare, kernel_options, label
from lab.timing.statistics import ratio_interval

XLA = samples.timed("kernel=xla", ms=2.0)
PALLAS = samples.timed("kernel=pallas", ms=5.0)


def moved(result: Result, **environment: Any) -> Result:
    changed = result.environment.model_copy(update=environment)
    return result.model_copy(update={"environment": changed})


def test_a_comparison_is_the_ratio_of_two_medians_with_the_weaker_evidence() -> None:
    (found,) = compare([PALLAS, XLA])
    assert (found.baseline_ms, found.kernel_ms, found.slowdown) == (2.0, 5.0, 2.5)
    assert (XLA.evidence, PALLAS.evidence, found.evidence) == (
        "measured", "interpreted", "interpreted",
    )  # fmt: skip
    assert PALLAS.benchmark is not None
    assert XLA.benchmark is not None
    assert found.interval == ratio_interval(PALLAS.benchmark.samples_ms, XLA.benchmark.samples_ms)


@pytest.mark.parametrize(
    "override",
    ["seq=128", "q_len=64", "dtype=f32", "shape=tiny", "shape.head_dim=64", "scope=softmax",
     "direction=backward", "seed=1", "regime=peaky", "benchmark.samples=5"],
)  # fmt: skip
def test_another_case_is_no_baseline(override: str) -> None:
    other = samples.timed("kernel=xla", override, ms=2.0)
    assert not list(compare([PALLAS, other]))
    (found,) = compare([samples.timed("kernel=pallas", override, ms=3.0), other])
    assert found.slowdown == 1.5


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"cpu_model": "another"},
        {"device_kind": "TPU v5 lite"},
        {"platform": "tpu"},
        {"jax": "9.9"},
        {"jaxlib": "9.9"},
        {"libtpu": "9.9"},
    ],
    ids=str,
)
def test_another_machine_is_no_baseline(elsewhere: dict[str, str]) -> None:
    assert not list(compare([PALLAS, moved(XLA, **elsewhere)]))
    (found,) = compare([moved(PALLAS, **elsewhere), XLA, moved(XLA, **elsewhere)])
    assert found.baseline.environment == found.kernel.environment


def test_other_code_is_no_baseline() -> None:
    assert not list(compare([PALLAS, XLA.model_copy(update={"code_sha256": "other"})]))


def test_what_does_not_change_the_time_does_not_part_a_pair() -> None:
    patient = samples.timed("kernel=xla", "deadline_s=1200", "resume=false", ms=2.0)
    assert len(list(compare([PALLAS, patient]))) == 1


def test_a_cell_without_a_time_is_compared_with_nothing() -> None:
    failed = samples.result(samples.cell("kernel=xla"), status="failed", reason="odd")
    assert not list(compare([PALLAS, failed]))
    assert not list(compare([XLA]))


def test_a_candidate_is_compared_in_place_of_its_kernel() -> None:
    naive = samples.timed("kernel=xla", "candidate=naive", ms=3.0)
    (found,) = compare([XLA, naive])
    assert label(found.kernel) == "naive"
    assert label(found.baseline) == "xla"
    assert found.evidence == "measured"


def test_another_baseline_can_be_chosen() -> None:
    (found,) = compare([PALLAS, XLA], baseline="pallas")
    assert (label(found.kernel), found.slowdown) == ("xla", 0.4)


def test_options_are_read_from_the_configuration() -> None:
    assert kernel_options(XLA) == ""
    assert kernel_options(PALLAS) == "block_rows=auto"
    assert kernel_options(samples.timed("kernel.block_rows=16", ms=1.0)) == "block_rows=16"
    assert kernel_options(samples.timed("candidate=naive", ms=1.0)) == ""
