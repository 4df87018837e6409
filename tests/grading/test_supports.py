"""A declaration decides what is asked and what is only listed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from lab.cells.config import Causality, Supports
from lab.grading.cases import SUITE
from lab.grading.executor import Call
from lab.grading.supports import fit, supported, unsupported


def call(
    q_len: int = 64,
    kv_len: int = 128,
    head_dim: int = 64,
    *,
    causal: bool = True,
    masked: bool = False,
) -> Call:
    q = np.empty((1, 2, q_len, head_dim), ml_dtypes.bfloat16)
    k = np.empty((1, 2, kv_len, head_dim), ml_dtypes.bfloat16)
    mask = np.ones((1, kv_len), bool) if masked else None
    return Call(q, k, k, mask, causal, None, None)


def test_everything_is_supported_unless_declared_otherwise() -> None:
    for causal in (True, False):
        for masked in (True, False):
            assert supported(call(7, 13, 80, causal=causal, masked=masked), Supports())


@pytest.mark.parametrize(
    ("supports", "inside", "outside", "reason"),
    [
        (Supports(head_dims=[64, 128]), call(), call(head_dim=80), "head_dim 80 is outside"),
        (
            Supports(length_multiple_of=64),
            call(),
            call(q_len=65),
            "65 x 128 are no multiples of 64",
        ),
        (Supports(length_multiple_of=64), call(), call(kv_len=63), "64 x 63 are no multiples"),
        (
            Supports(causal=Causality.causal),
            call(),
            call(causal=False),
            "a non-causal call is outside",
        ),
        (Supports(causal=Causality.full), call(causal=False), call(), "a causal call is outside"),
        (Supports(key_mask=False), call(), call(masked=True), "a key mask is outside"),
    ],
)
def test_a_call_outside_the_declaration_has_a_reason(
    supports: Supports, inside: Call, outside: Call, reason: str
) -> None:
    assert unsupported(inside, supports) is None
    assert reason in (unsupported(outside, supports) or "")
    assert not supported(outside, supports)


DECLARATIONS = [
    Supports(head_dims=[128]),
    Supports(length_multiple_of=128),
    Supports(causal=Causality.causal),
    Supports(causal=Causality.full),
    Supports(key_mask=False),
    Supports(head_dims=[64, 256], length_multiple_of=64, causal=Causality.causal, key_mask=False),
]


def covered(supports: Supports) -> dict[str, bool]:
    answers = {}
    for case in fit(SUITE, supports):
        shape = case.shape
        masked = shape.padding != "none"
        sizes = (shape.q_len, shape.kv_len, shape.head_dim)
        answers[case.name] = supported(call(*sizes, causal=shape.causal, masked=masked), supports)
    return answers


def test_without_a_declaration_the_suite_stays_as_it_is() -> None:
    assert fit(SUITE, Supports()) == SUITE


@pytest.mark.parametrize("supports", DECLARATIONS, ids=str)
def test_every_declaration_leaves_a_core_that_it_covers(supports: Supports) -> None:
    fitted = fit(SUITE, supports)
    core = [case.name for case in fitted if case.core]
    assert core
    answers = covered(supports)
    assert all(answers[name] for name in core)
    assert [case.name for case in fitted] == [case.name for case in SUITE]


def test_a_kernel_with_needs_is_still_asked_about_heads_padding_and_alignment() -> None:
    supports = Supports(head_dims=[128], length_multiple_of=128, causal=Causality.causal)
    # Positions beyond 32768 would take minutes at this width.
    # Decoding cannot be asked of a kernel that takes whole blocks of queries.
    left = [name for name, ok in covered(supports).items() if not ok]
    assert [name for name in left if not name.startswith("decode")] == ["positions"]
    by_name = {case.name: case.shape for case in fit(SUITE, supports)}
    assert by_name["cached"].q_len < by_name["cached"].kv_len
    assert by_name["query-longer"].q_len > by_name["query-longer"].kv_len
    assert by_name["grouped"].group > 1


def test_what_cannot_fit_is_coverage() -> None:
    answers = covered(Supports(key_mask=False))
    assert not answers["padded"]
    assert answers["plain"]
    answers = covered(Supports(causal=Causality.full))
    assert not answers["causal"]
    assert answers["grouped"]
