"""Analytic work and the floor that follows from it."""

import pytest
import samples
from hypothesis import given
from hypothesis import strategies as st

from lab.tpu import roofline
from lab.truth.problems import POLICIES, Shape, visible

V5E = samples.cell("task=compile", "target=v5e").config.target


def shape(
    seq: int, *, q_len: int | None = None, causal: bool = True, padding: str = "none"
) -> Shape:
    return Shape(1, 8, 2, q_len or seq, seq, 128, causal, padding)


@given(st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_visible_pairs_are_those_of_the_mask(q_len: int, kv_len: int, causal: bool) -> None:
    mask = visible(q_len, kv_len, causal=causal)
    assert roofline.visible_pairs(q_len, kv_len, causal=causal) == int(mask.sum())


def test_the_floor_of_the_published_attention_at_2048_is_arithmetic() -> None:
    work = roofline.work(shape(2048), POLICIES["bf16"], "attention", "forward")
    assert work.flops == 4 * 8 * 128 * 2048 * 2049 // 2
    assert work.hbm_bytes == (2 * 8 + 2 * 2) * 2048 * 128 * 2
    floor = roofline.floor(work, V5E)
    assert floor.bound_by == "compute"
    assert floor.ms == pytest.approx(0.0436, abs=1e-4)


def test_the_floor_of_the_published_softmax_at_2048_is_bandwidth() -> None:
    work = roofline.work(shape(2048), POLICIES["bf16"], "softmax", "forward")
    assert work.hbm_bytes == 8 * 2048 * 2048 * (2 + 4) + 2048 * 2048
    floor = roofline.floor(work, V5E)
    assert floor.bound_by == "memory"
    assert floor.ms == pytest.approx(0.251, abs=1e-3)


@pytest.mark.parametrize("scope", ["softmax", "attention"])
def test_backward_does_and_moves_more_than_forward(scope: str) -> None:
    forward, backward = (
        roofline.work(shape(256), POLICIES["bf16"], scope, direction)
        for direction in ("forward", "backward")
    )
    assert backward.flops > forward.flops
    assert backward.hbm_bytes > forward.hbm_bytes


def test_attention_backward_counts_six_products_and_every_argument_and_result_once() -> None:
    work = roofline.work(shape(64, causal=False), POLICIES["f32"], "attention", "backward")
    q, k = 8 * 64 * 128, 2 * 64 * 128
    assert work.flops == 6 * 2 * 8 * 64 * 64 * 128
    assert work.hbm_bytes == 4 * ((q + 2 * k) + q + q + (q + 2 * k))


def test_causal_counts_half_of_full() -> None:
    causal, full = (
        roofline.work(shape(1024, causal=c), POLICIES["bf16"], "attention", "forward").flops
        for c in (True, False)
    )
    assert causal / full == pytest.approx(0.5, abs=1e-3)


def test_a_key_mask_is_an_argument() -> None:
    plain, padded = (
        roofline.work(shape(128, padding=p), POLICIES["bf16"], "attention", "forward")
        for p in ("none", "tail")
    )
    assert padded.hbm_bytes - plain.hbm_bytes == 128
    assert padded.flops == plain.flops
