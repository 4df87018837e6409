import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.tpu.schedule.scalar import EXPRESSIONS, CannotFollowError, Unknown, divide, known, select

word = st.integers(-(2**31), 2**31 - 1)
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def compute(opcode: str, *operands: object) -> object:
    names = dict(zip("abc", operands, strict=False))
    return eval(EXPRESSIONS[opcode].format(*names), {"select": select}, names)


def signed(value: int) -> int:
    return int(np.uint32(value & 0xFFFFFFFF).view(np.int32))


@given(word, word)
def test_arithmetic_is_that_of_32_bit_words(a: int, b: int) -> None:
    ua, ub = a & 0xFFFFFFFF, b & 0xFFFFFFFF
    assert compute("sadd.s32", a, b) == signed(ua + ub)
    assert compute("ssub.s32", a, b) == signed(ua - ub)
    assert compute("smul.u32", a, b) == signed(ua * ub)
    assert compute("sand.u32", a, b) == signed(ua & ub)
    assert compute("sor.u32", a, b) == signed(ua | ub)
    assert compute("sxor.u32", a, b) == signed(ua ^ ub)
    assert compute("smin.u32", a, b) == signed(min(ua, ub))
    assert compute("smax.u32", a, b) == signed(max(ua, ub))
    assert compute("smin.s32", a, b) == min(a, b)
    assert compute("smax.s32", a, b) == max(a, b)
    assert compute("scalar_lea.hbm", a, b) == signed(ua + ub)


@given(word, st.integers(0, 40))
def test_shifts(a: int, count: int) -> None:
    assert compute("sshll.u32", a, count) == signed((a & 0xFFFFFFFF) << count)
    assert compute("sshrl.u32", a, count) == signed((a & 0xFFFFFFFF) >> count)
    assert compute("sshra.s32", a, count) == a >> count


@given(word, word)
def test_comparisons_are_signed_or_unsigned(a: int, b: int) -> None:
    for name, sign in COMPARE.items():
        compare = getattr(operator, name)
        assert compute(f"scmp.{name}.s32.totalorder", a, b) is compare(a, b), sign
        ua, ub = a & 0xFFFFFFFF, b & 0xFFFFFFFF
        assert compute(f"scmp.{name}.u32.totalorder", a, b) is compare(ua, ub), sign


@given(word, word.filter(bool))
def test_division_is_of_unsigned_words(a: int, b: int) -> None:
    ua, ub = a & 0xFFFFFFFF, b & 0xFFFFFFFF
    assert divide(a, b) == (signed(ua // ub), signed(ua % ub))


def test_a_division_by_what_is_unknown_or_zero_is_unknown() -> None:
    unknown = Unknown("a test")
    assert divide(5, unknown) == (unknown, unknown)
    assert divide(unknown, 0)[0] is unknown
    assert isinstance(divide(5, 0)[1], Unknown)


@given(st.booleans(), st.booleans())
def test_predicates(p: bool, q: bool) -> None:
    assert compute("por", p, q) is (p or q)
    assert compute("pand", p, q) is (p and q)
    assert compute("pxor", p, q) is (p != q)
    assert compute("pnand", p, q) is (not (p and q))
    assert compute("pnor", p, q) is (not (p or q))
    assert compute("pneg", p) is (not p)


@pytest.mark.parametrize("opcode", sorted(EXPRESSIONS))
def test_an_unknown_operand_makes_an_unknown_result(opcode: str) -> None:
    unknown = Unknown("a test")
    others = [True, True] if opcode.startswith("p") and opcode != "por" else [5, 5]
    others = [False, False] if opcode in {"por", "pnor"} else others
    assert compute(opcode, unknown, *others) is unknown


def test_a_known_operand_may_decide_beside_an_unknown_one() -> None:
    unknown = Unknown("a test")
    assert compute("pand", False, unknown) is False
    assert compute("pnand", unknown, False) is True
    assert compute("por", unknown, True) is True
    assert compute("sand.u32", unknown, 0) == 0
    assert compute("sor.u32", unknown, 1) is unknown
    assert compute("scalar_select", False, unknown, 3) == 3


def test_an_unknown_refuses_to_decide_and_says_where_it_is_from() -> None:
    for decide in (bool, known):
        with pytest.raises(CannotFollowError, match="depends on data: a value loaded at 0x12"):
            decide(Unknown("a value loaded at 0x12"))
    assert known(3) == 3
