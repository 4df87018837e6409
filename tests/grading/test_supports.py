"""A declaration decides what is asked and what is only listed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from lab.grading.executor import Call
from lab.grading.supports import Supports, supported, unsupported


def call(
    q_len: int = 64,
    kv_len: int = 128,
    head_dim: int = 64,
    *,
    causal: bool = True,
    masked: bool = False,
) -> Call:
    q = np.zeros((1, 2, q_len, head_dim), ml_dtypes.bfloat16)
    k = np.zeros((1, 2, kv_len, head_dim), ml_dtypes.bfloat16)
    mask = np.ones((1, kv_len), bool) if masked else None
    return Call(q, k, k, mask, causal, None, None)


def test_everything_is_supported_unless_declared_otherwise() -> None:
    for causal in (True, False):
        for masked in (True, False):
            assert supported(call(7, 13, 80, causal=causal, masked=masked), Supports())


@pytest.mark.parametrize(
    ("supports", "inside", "outside", "reason"),
    [
        (Supports(head_dims=(64, 128)), call(), call(head_dim=80), "head_dim 80 is outside"),
        (
            Supports(length_multiple_of=64),
            call(),
            call(q_len=65),
            "65 x 128 are no multiples of 64",
        ),
        (Supports(length_multiple_of=64), call(), call(kv_len=63), "64 x 63 are no multiples"),
        (Supports(causal="causal"), call(), call(causal=False), "a non-causal call is outside"),
        (Supports(causal="full"), call(causal=False), call(), "a causal call is outside"),
        (Supports(key_mask=False), call(), call(masked=True), "a key mask is outside"),
    ],
)
def test_a_call_outside_the_declaration_has_a_reason(
    supports: Supports, inside: Call, outside: Call, reason: str
) -> None:
    assert unsupported(inside, supports) is None
    assert reason in (unsupported(outside, supports) or "")
    assert not supported(outside, supports)
