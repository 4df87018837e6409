"""The lab's own kernels before the grader: what they declare that they cannot do costs nothing."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import samples

from lab.cells.config import Supports
from lab.errors import UnsupportedCell
from lab.grading import rubric
from lab.grading.cases import BY_NAME, SUITE
from lab.grading.engine import grade
from lab.grading.executor import InProcess, call_of
from lab.grading.supports import KERNELS, fit, supported
from lab.kernels import load
from lab.kernels.options import configuration
from lab.kernels.peers.limits import tpu_kernel
from lab.records import RubricSection
from lab.truth.problems import POLICIES

BF16 = POLICIES["bf16"]
FEW = tuple(BY_NAME[name] for name in ("plain", "causal", "grouped", "padded"))


def graded(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> RubricSection:
    monkeypatch.setattr(rubric, "SUITE", FEW)
    section = rubric.grade_shipped(samples.cell("task=rubric", *overrides)).section
    assert isinstance(section, RubricSection)
    return section


@pytest.mark.parametrize("kernel", ["xla", "jax_sdpa", "jax_splash"])
def test_a_kernel_has_every_point_that_its_limits_leave(
    monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    section = graded(monkeypatch, f"kernel={kernel}")
    assert section.verdict == "accepted"
    lost = {item.id for item in section.items if item.earned < item.points}
    asked = {item.id for item in section.items if item.covered}
    assert not lost & asked
    limited = kernel in KERNELS
    assert bool(section.details["fitted_cases"]) == limited
    assert section.details["unsupported_cases"] == (["padded"] if limited else [])
    assert (section.score == section.max_score) == limited  # else 70 cases were not asked


def test_a_kernel_that_refuses_the_policy_has_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedCell, match="bf16 only"):
        graded(monkeypatch, "kernel=jax_splash", "dtype=f32")


def test_only_a_declared_refusal_is_free() -> None:
    xla = load(configuration("xla"), policy=BF16).attention

    def maskless(q: jax.Array, k: jax.Array, v: jax.Array, **how: Any) -> jax.Array:
        if how["key_mask"] is not None:
            raise UnsupportedCell("no key mask")
        return xla(q, k, v, **how)

    free = grade(InProcess(maskless, declares=True), cases=FEW)
    charged = grade(InProcess(maskless), cases=FEW)
    assert free.score == free.max_score
    assert charged.score < charged.max_score
    assert free.score == charged.score


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_cases_are_fitted_to_what_a_kernel_really_takes(name: str) -> None:
    """Beyond its declaration a peer refuses causality where T and S differ, and odd long keys."""
    least_able = tpu_kernel(
        name, lambda q, *_, **__: q, BF16, block=1024, most_q_len_is_kv_len=False
    )
    executor = InProcess(least_able)
    ran = set()
    for case in fit(SUITE, KERNELS[name]):
        call = call_of(case.problem(BF16, 0), backward=False)
        answer = executor.run([call])[0]
        if answer.kind == "ok":
            assert supported(call, KERNELS[name])
            ran.add(case.check)
        elif supported(call, KERNELS[name]):
            assert "is causal for" in answer.detail or "takes multiples of 1024" in answer.detail
            assert not case.core
    assert ran >= {"accuracy", "causal", "gqa_mapping", "head_dim", "tail_block", "extreme_logits"}
    assert fit(SUITE, Supports()) == SUITE
