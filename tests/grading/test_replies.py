"""What a child answers is checked before it is used: it speaks for a stranger."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.grading.sandbox.inside.claims import Dot, Program
from lab.grading.sandbox.process import Stopped, one_line
from lab.grading.sandbox.replies import Called, Done, Traced, parse

PROGRAM = Program(
    dots=(Dot("kernel", ("bfloat16", "bfloat16"), "float32", 2), Dot(None, ("a", "b"), "c", 1)),
    kernels={"kernel": 1},
    largest_outside=7,
    host_calls=("pure_callback",),
    native_calls=(),
    fickle=(),
    lab_files=(),
    constant_bytes=3,
    reads_inputs=True,
)


def over_the_wire(fields: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(json.dumps({**fields, "nonce": "00", "arrays": []}))
    return message


def test_a_description_of_a_program_comes_back_whole() -> None:
    header = over_the_wire({"kind": "ok", "exported": True, "forward": PROGRAM.to_json()})
    reply = parse(Traced, header)
    assert reply.forward == PROGRAM
    assert reply.with_gradients is None
    assert reply.exported


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Called, {}),
        (Called, {"kind": "accepted"}),
        (Called, {"kind": "ok", "score": 100}),
        (Called, {"kind": "error", "detail": None}),
        (Done, {"ok": "yes"}),
        (Done, {"ok": 1}),
        (Traced, {"kind": "ok", "forward": []}),
        (Traced, {"kind": "ok", "forward": {**PROGRAM.to_json(), "dots": [{"inside": "k"}]}}),
        (Traced, {"kind": "ok", "forward": {"dots": []}}),
        (Traced, {"kind": "ok", "forward": {**PROGRAM.to_json(), "constant_bytes": "none"}}),
        (Traced, {"kind": "ok", "backward_error": ["no"]}),
    ],
)
def test_anything_else_is_a_malformed_message(kind: type[Any], fields: dict[str, Any]) -> None:
    with pytest.raises(Stopped, match=r"^answered with a malformed message$"):
        parse(kind, over_the_wire(fields))


def test_a_strangers_words_are_made_fit_to_print() -> None:
    said = "first\nsecond\x1b[31m\t third" + "x" * 1000
    reply = parse(Called, over_the_wire({"kind": "error", "detail": said}))
    assert reply.detail.startswith("first second [31m third")
    assert len(reply.detail) == 500
    assert one_line("a\r\n\x07b") == "a  b"
