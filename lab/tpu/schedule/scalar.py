"""What the scalar unit computes: its opcodes as Python expressions on signed 32-bit integers.

A value that a dump cannot tell (loaded from memory, made by a vector unit, an argument's address)
is an `Unknown`. It spreads through arithmetic like a NaN; asking it for a decision raises.
"""


class CannotFollowError(Exception):
    """The program's course cannot be told from its dump; the message is the reason, in one line."""


class Unknown:
    """A value that is not known, and where it came from."""

    __slots__ = ("origin",)

    def __init__(self, origin: str) -> None:
        self.origin = origin

    def __bool__(self) -> bool:
        raise CannotFollowError(f"control flow depends on data: {self.origin}")

    def _spread(self, _other: object) -> "Unknown":
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _spread
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __xor__ = __rxor__ = _spread
    __lt__ = __le__ = __gt__ = __ge__ = _spread
    __eq__ = __ne__ = _spread  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __and__(self, other: object) -> object:
        """Zero and anything is zero, so a false predicate decides beside an unknown one."""
        return self if isinstance(other, Unknown) or other else other

    def __or__(self, other: object) -> object:
        """True or anything is True; for integers nothing can be said."""
        return True if other is True else self

    __rand__ = __and__
    __ror__ = __or__


def select(predicate: object, on_true: object, on_false: object) -> object:
    """A choice by a predicate; an unknown predicate leaves an unknown value."""
    if isinstance(predicate, Unknown):
        return predicate
    return on_true if predicate else on_false


def divide(a: object, b: object) -> tuple[object, object]:
    """Quotient and remainder of unsigned words; unknown where an operand is, or b is zero."""
    if not (isinstance(a, int) and isinstance(b, int) and b):
        unknown = next((v for v in (a, b) if isinstance(v, Unknown)), Unknown("a division by zero"))
        return unknown, unknown
    quotient, remainder = divmod(a & 0xFFFFFFFF, b & 0xFFFFFFFF)
    return _signed(quotient), _signed(remainder)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


_UNSIGNED = "({} & 0xFFFFFFFF)"
_WRAP = "((({}) + 0x80000000 & 0xFFFFFFFF) - 0x80000000)"  # to signed 32 bits


def _expressions() -> dict[str, str]:
    a, b = _UNSIGNED.format("{0}"), _UNSIGNED.format("{1}")
    table = {
        "smov": "{0}",
        "pmov": "{0}",
        "sadd.s32": _WRAP.format("{0} + {1}"),
        "ssub.s32": _WRAP.format("{0} - {1}"),
        "smul.u32": _WRAP.format("{0} * {1}"),
        "sand.u32": "({0} & {1})",
        "sor.u32": "({0} | {1})",
        "sxor.u32": "({0} ^ {1})",
        "sshll.u32": _WRAP.format("{0} << ({1} & 63)"),
        "sshrl.u32": _WRAP.format(f"{a} >> ({{1}} & 63)"),
        "sshra.s32": "({0} >> ({1} & 63))",
        "smin.s32": "select({0} < {1}, {0}, {1})",
        "smax.s32": "select({0} > {1}, {0}, {1})",
        "smin.u32": f"select({a} < {b}, {{0}}, {{1}})",
        "smax.u32": f"select({a} > {b}, {{0}}, {{1}})",
        "scalar_select": "select({0}, {1}, {2})",
        "por": "({0} | {1})",
        "pand": "({0} & {1})",
        "pxor": "({0} ^ {1})",
        "pneg": "({0} ^ True)",
        "pnand": "(({0} & {1}) ^ True)",
        "pnor": "(({0} | {1}) ^ True)",
    }
    signs = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    for name, sign in signs.items():
        table[f"scmp.{name}.s32.totalorder"] = f"({{0}} {sign} {{1}})"
        table[f"scmp.{name}.u32.totalorder"] = f"({a} {sign} {b})"
    for space in ("vmem", "smem", "sflag", "hbm", "cmem"):
        table[f"scalar_lea.{space}"] = _WRAP.format("{0} + {1}")
        table[f"int_to_ptr.{space}"] = "{0}"
    return table


EXPRESSIONS = _expressions()
"""Opcode -> Python expression of its operands; opcodes that are missing give an `Unknown`."""


def known(value: object) -> int:
    """An integer on which time depends."""
    if isinstance(value, Unknown):
        bool(value)
    assert isinstance(value, int)
    return value
