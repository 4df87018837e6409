"""The tuned table: who gets an entry, what is said of it, and that its evidence is there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import ROOT
from pydantic import ValidationError

from lab import records
from lab.errors import UnsupportedCell
from lab.kernels import winners
from lab.kernels.flash import tuned
from lab.kernels.notes import heard
from lab.kernels.winners import Entry
from lab.records import Result

EARNED = {
    "cell_id": "compile-flash-attention-s512-bf16-forward-v5e-00000000",
    "record": "0" * 64,
    "estimated_ms": 0.008,
    "estimated_cycles": 12_000,
    "values_proved": True,
    "fingerprint": "f" * 64,
    "code_sha256": "c" * 64,
    "kernel_sha256": "k" * 64,
    "libtpu": "0.0.42.1",
}
ENTRY = {
    "direction": "forward",
    "dtype": "bfloat16",
    "causal": True,
    "q_len": 512,
    "kv_len": 512,
    "head_dim": 128,
    "group": 4,
    "target": "v5e",
    "device_kind": "TPU v5 lite",
    "options": {"block_q": 512, "block_k": 256, "lookahead": 3},
    "earned": EARNED,
}
DECODE = {
    "direction": "decode", "causal": False, "q_len": 1, "kv_len": 1024, "options": {"block_k": 256},
}  # fmt: skip
BACKWARD = {
    "direction": "backward",
    "options": {"backward_block_q": 128, "backward_block_k": 256, "backward_heads": 2},
}


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`on("TPU v6 lite", ENTRY)`: trace for a device, with these entries alone in the table."""

    def given(kind: str, *entries: dict[str, Any]) -> None:
        monkeypatch.setattr(tuned.jax, "devices", lambda: [SimpleNamespace(device_kind=kind)])
        made = tuple(Entry.model_validate(entry) for entry in entries)
        monkeypatch.setattr(winners, "table", lambda: made)

    return given


def forward(length: int = 512, *, width: int = 128, **given: int) -> tuple[Any, list[str]]:
    """The blocks and the note of a causal call with 8 heads on 2."""
    with heard() as lines:
        blocks = tuned.forward_blocks(
            (1, 8, length, width), (1, 2, length, width), "bfloat16", causal=True, given=given
        )
    return blocks, [said.line for said in lines]


def test_an_entry_is_for_its_device_and_its_shape_class(on: Any) -> None:
    on("TPU v5 lite", ENTRY)
    for length, width in ((512, 128), (500, 128), (512, 64), (512, 80)):
        blocks, said = forward(length, width=width)
        assert (blocks.block_q, blocks.block_k, blocks.lookahead) == (512, 256, 3)
        assert said == ["flash forward: block_q 512, block_k 256, lookahead 3: tuned for v5e"]
    for length, width in ((1024, 128), (256, 128), (512, 192)):
        assert forward(length, width=width)[1][0].endswith(": untuned fallback")


def test_another_device_falls_back_and_says_so(on: Any) -> None:
    on("TPU v6 lite", ENTRY)
    (said,) = forward()[1]
    assert said.endswith(": untuned fallback")
    on("cpu", ENTRY)  # interpreted as the validated target runs it
    assert forward()[1][0].endswith(": tuned for v5e")


def test_an_entry_that_would_mostly_pad_is_left(on: Any) -> None:
    on("TPU v5 lite", ENTRY)
    blocks, (said,) = forward(300)
    assert said.endswith(": untuned fallback")
    assert blocks.block_q < 512


def test_given_sizes_win_and_are_named(on: Any) -> None:
    on("TPU v5 lite", ENTRY)
    blocks, (said,) = forward(block_k=128)
    assert (blocks.block_q, blocks.block_k) == (512, 128)
    assert said.endswith("lookahead 3: as given, the rest tuned for v5e")
    assert forward(block_q=256, block_k=128, lookahead=1)[1][0].endswith(": as given")


def test_the_backward_and_decoding_have_their_own_entries(on: Any) -> None:
    on("TPU v5 lite", ENTRY | BACKWARD, ENTRY | DECODE)
    shapes = ((1, 8, 512, 128), (1, 2, 512, 128))
    with heard() as lines:
        blocks = tuned.backward_blocks(*shapes, "bfloat16", causal=True, given={})
        keys = tuned.decode_block((8, 8, 1, 128), (8, 2, 1000, 128), "bfloat16", given={})
    assert (blocks.block_q, blocks.block_k, blocks.heads) == (128, 256, 2)
    assert keys == 256
    assert [said.chosen for said in lines] == ["tuned for v5e"] * 2
    assert forward()[1][0].endswith("untuned fallback")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"block_q": 384, "block_k": 256}, "one must divide the other"),
        ({"heads": 3}, "must divide the group of 4"),
    ],
)
def test_backward_sizes_that_do_not_fit_are_unsupported(
    given: dict[str, int], words: str, on: Any
) -> None:
    on("TPU v5 lite")
    with pytest.raises(UnsupportedCell, match=words):
        tuned.backward_blocks(
            (1, 8, 512, 128), (1, 2, 512, 128), "bfloat16", causal=True, given=given
        )


@pytest.mark.parametrize("proved", [False, None])
def test_an_entry_of_unproved_values_cannot_be_made(proved: bool | None) -> None:
    with pytest.raises(ValidationError, match="values_proved"):
        Entry.model_validate(ENTRY | {"earned": EARNED | {"values_proved": proved}})


ENTRIES = [pytest.param(e, id=f"{e.target}-{e.earned.cell_id}") for e in winners.table()]


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_record_that_earned_an_entry_is_kept(entry: Entry) -> None:
    path: Path = ROOT / "evidence" / "tuning" / entry.target / f"{entry.earned.cell_id}.json"
    assert winners.sha256(path) == entry.earned.record
    section = records.read(path, Result).compile
    assert section is not None
    assert section.proof is not None
    assert section.values_proved is True
    assert section.proof.fingerprint == entry.earned.fingerprint
    assert section.estimated_ms == entry.earned.estimated_ms
    assert section.estimated_cycles == entry.earned.estimated_cycles


def test_a_device_and_a_class_have_one_entry() -> None:
    keys = [entry.key for entry in winners.table()]
    assert len(keys) == len(set(keys))
    assert winners.TABLE.read_text() == winners.text(winners.table())
