"""Refusals in the compilers' own words, kept in refusals/, and what people read of them."""

from pathlib import Path

import pytest

from lab.tpu.compile.failures import compiler_abort, explain


def said(name: str) -> str:
    return (Path(__file__).parent / "refusals" / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        (said("scoped"), "vmem", ("needs 32.00 MiB", "limit is 16.00 MiB", "vmem_limit_bytes")),
        (
            said("capacity"),
            "vmem",
            ("needs 256.00 MiB", "capacity is 128.00 MiB", "smaller blocks"),
        ),
        (said("one_buffer"), "vmem", ("needs 128.00 MiB", "64.00 MiB")),
        (said("hbm"), "hbm", ("need 33955.84 MiB", "16128.00 MiB", "seq")),
        (said("f16"), "dtype", ("dtype f16", "bfloat16")),
        (said("f16_reduction"), "dtype", ("dtype f16", "bfloat16")),
        (said("block"), "block shape", ("(12, 2048)", "(2048, 2048)", "multiples of (8, 128)")),
        (said("tiling"), "block shape", ("(8, 128)", "(32, 128)", "multiples of that tiling")),
        (said("layout"), "layout", ("unsupported shape cast", "tpu.reshape", "(8, 128) tiles")),
        (said("primitive"), "operation", ("sort", "supported operations")),
        (said("value_slice"), "operation", ("dynamic_slice", "ref[pl.ds(start, size)]")),
        (said("gather"), "operation", ("array of indices", "one-hot")),
        (said("wide_gather"), "operation", ("within one register", "one-hot")),
        (said("unaligned"), "alignment", ("dimension 1", "pl.multiple_of(start, 128)")),
        (said("unaligned_copy"), "alignment", ("dimension 0", "pl.multiple_of(start, 8)")),
        (said("f16_cast"), "dtype", ("dtype f16", "bfloat16")),
        ("INTERNAL: never seen before\nsecond line", "other", ("never seen before; ", "full text")),
        ("", "other", ("gave no reason",)),
    ],
)
def test_each_refusal_is_one_line_with_a_hint(
    message: str, kind: str, words: tuple[str, ...]
) -> None:
    refusal = explain(message)
    assert refusal.kind == kind
    assert "\n" not in str(refusal)
    assert len(str(refusal)) < 500
    for word in words:
        assert word in str(refusal)


def test_the_line_of_the_kernel_stands_between_reason_and_hint() -> None:
    refusal = explain(said("gather"), "mine.py:8, in kernel: x[i]")
    assert str(refusal).index("(mine.py:8") < str(refusal).index("; read rows")


def test_a_raised_limit_is_not_advised_where_the_chip_has_no_more() -> None:
    assert "vmem_limit_bytes" not in str(explain(said("capacity")))


def test_the_check_that_ended_the_compiler_is_found_in_its_log() -> None:
    assert str(compiler_abort(said("abort"))).startswith(
        "llo_module.cc:66: Check failed: TakeStatus()"
    )
    assert compiler_abort("Killed\n") is None
