"""Frames: what is sent arrives; what is not a frame is refused, never believed."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.grading.sandbox.inside import wire

SHAPES = st.lists(st.integers(0, 4), max_size=4)


def split(frame: bytes) -> tuple[bytes, bytes]:
    start = wire.PREFIX.size
    end = start + wire.header_length(frame[:start])
    return frame[start:end], frame[end:]


@given(st.lists(st.tuples(st.sampled_from(wire.DTYPES), SHAPES), max_size=4), st.integers())
def test_a_frame_brings_its_header_and_arrays_back(
    kinds: list[tuple[str, list[int]]], number: int
) -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.integers(0, 2, shape).astype(dtype) for dtype, shape in kinds]
    text, payload = split(wire.encode({"number": number}, arrays))
    header, size = wire.decode_header(text, max_bytes=1 << 20)
    assert header["number"] == number
    assert size == len(payload)
    back = wire.decode_arrays(header, payload)
    for sent, received in zip(arrays, back, strict=True):
        assert received.dtype == sent.dtype
        assert received.shape == sent.shape
        assert received.tobytes() == sent.tobytes()
        assert received.flags.writeable or not received.size


def test_bfloat16_bits_survive() -> None:
    array = np.array([np.nan, -0.0, 1e-40, 3.14], ml_dtypes.bfloat16)
    text, payload = split(wire.encode({}, [array.reshape(2, 2)[:, ::-1]]))
    (back,) = wire.decode_arrays(wire.decode_header(text, max_bytes=99)[0], payload)
    assert back.tobytes() == array.reshape(2, 2)[:, ::-1].tobytes()


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"[]",
        b"{}",
        b'{"arrays": 3}',
        b'{"arrays": [{"dtype": "float32"}]}',
        b'{"arrays": [{"dtype": "object", "shape": [1]}]}',
        b'{"arrays": [{"dtype": "float32", "shape": [-1]}]}',
        b'{"arrays": [{"dtype": "float32", "shape": [true]}]}',
        b'{"arrays": [{"dtype": "float32", "shape": [1.5]}]}',
        b'{"arrays": [{"dtype": "float32", "shape": "44"}]}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_malformed_header_is_refused(header: bytes) -> None:
    with pytest.raises(wire.Malformed):
        wire.decode_header(header, max_bytes=1 << 20)


def test_more_bytes_than_allowed_are_refused_before_they_are_read() -> None:
    text = json.dumps({"arrays": [{"dtype": "float32", "shape": [1 << 40]}]}).encode()
    with pytest.raises(wire.Malformed, match="at most 1024 are allowed"):
        wire.decode_header(text, max_bytes=1024)
    with pytest.raises(wire.Malformed, match="a header of"):
        wire.header_length(b"\xff\xff\xff\xff")
