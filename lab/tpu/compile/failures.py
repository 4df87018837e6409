"""What a compiler's refusal means: one line a person can act on, from pages of its output."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Refusal:
    """A compiler's no: `kind` for tables, `reason`, `place` and `hint` for people."""

    kind: str
    reason: str
    hint: str
    place: str | None = None

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return f"{self.reason}{where}; {self.hint}"


def explain(message: str, place: str | None = None) -> Refusal:
    """Recognise a refusal by the words of jax 0.10 to 0.12 and libtpu 0.0.42 to 0.0.50.

    An unknown one is given by its own first line that says something.

    Args:
        message: the compiler's.
        place: the line of the kernel that it speaks of: see lab/tpu/compile/source.py.
    """
    return replace(_recognised(message), place=place)


def _recognised(message: str) -> Refusal:
    for pattern, make in _KNOWN:
        if (match := re.search(pattern, message, re.DOTALL)) is not None:
            return make(match, message)
    return Refusal("other", _first_line(message), "the full text is in compiler_error.txt")


def compiler_abort(log: str) -> str | None:
    """The failed check with which the compiler ended its own process, if that is what happened."""
    match = re.search(r"(?:^|\n)F\d{4} [\d:.]+ +\d+ (\S+?)\] (.+)", log)
    return f"{match[1]}: {match[2].strip()[:200]}" if match else None


def _mib(text: str) -> str:
    """A size as libtpu prints it (32.00M, 134217728) in MiB."""
    match = re.fullmatch(r"([\d.]+)([KMGB]?)", text)
    if match is None:
        return text
    return f"{float(match[1]) * _UNITS[match[2]] / 2**20:.2f} MiB"


def _vmem(needed: str, limit: str, what: str) -> Refusal:
    return Refusal(
        "vmem",
        f"VMEM overflow: the kernel needs {_mib(needed)}, the {what} is {_mib(limit)}",
        "use smaller blocks"
        + (
            " or raise CompilerParams(vmem_limit_bytes=...)"
            if what == "default scoped limit"
            else ""
        ),
    )


def _scoped(match: re.Match[str], _: str) -> Refusal:
    return _vmem(match[1], match[2], "default scoped limit")


def _capacity(match: re.Match[str], _: str) -> Refusal:
    return _vmem(match[1], match[2], "chip's capacity")


def _one_buffer(match: re.Match[str], _: str) -> Refusal:
    return _vmem(match[1], match[2], "chip's capacity for this buffer alone")


def _hbm(match: re.Match[str], _: str) -> Refusal:
    return Refusal(
        "hbm",
        f"out of HBM: arrays need {_mib(match[1])}, the program may take {_mib(match[2])}",
        "shorten seq or reduce shape.batch",
    )


def _block_shape(match: re.Match[str], message: str) -> Refusal:
    given = ", ".join(re.findall(r"block_size=(\d+)", match[1]) or re.findall(r"\d+", match[1]))
    array = re.search(r"array shape (\([\d, ]*\))", message)
    return Refusal(
        "block shape",
        f"block shape ({given}) of an array {array[1] if array else ''} is not allowed",
        "the last two block dimensions must be multiples of (8, 128) or the array's own",
    )


def _misaligned(match: re.Match[str], _: str) -> Refusal:
    return Refusal(
        "block shape",
        f"block shape ({match[3]}) does not fit the tiling ({match[2]}) of its array ({match[1]})",
        "use blocks that are multiples of that tiling (bfloat16 and int8 have taller tiles)",
    )


def _dtype(match: re.Match[str], _: str) -> Refusal:
    return Refusal(
        "dtype",
        f"dtype {match[1]} is not supported in a TPU kernel",
        "use bfloat16 or float32",
    )


def _layout(match: re.Match[str], message: str) -> Refusal:
    operation = re.search(
        r'involved:\s*%\S+ = "?([\w.]+)"?.*?: (\(.*?\) -> [^\n]+)', message, re.DOTALL
    )
    where = f" in {operation[1]} {operation[2]}" if operation else ""
    return Refusal(
        "layout",
        f"unsupported layout: {match[1].strip()}{where}"[:300],
        "keep the last two dimensions in whole (8, 128) tiles and avoid that shape change",
    )


def _primitive(match: re.Match[str], _: str) -> Refusal:
    hint = "express it by supported operations, or move it out of the kernel"
    if match[1] in ("dynamic_slice", "dynamic_update_slice"):
        hint = "a kernel slices its references, not their values: ref[pl.ds(start, size)]"
    return Refusal("operation", f"operation {match[1]} has no lowering in a TPU kernel", hint)


def _gather(_: re.Match[str], __: str) -> Refusal:
    return Refusal(
        "operation",
        "a gather by an array of indices has no lowering in a TPU kernel",
        "read rows one by one, ref[i, :] with the index i in SMEM, or take the product with a "
        "one-hot matrix",
    )


def _wide_gather(_: re.Match[str], __: str) -> Refusal:
    return Refusal(
        "operation",
        "take_along_axis gathers within one register alone: 8 rows along axis 0, 128 lanes along "
        "axis 1 (in 32 bits)",
        "gather from such pieces, or take the product with a one-hot matrix",
    )


def _unaligned(match: re.Match[str], _: str) -> Refusal:
    dimension, multiple = match[1], match[2]
    return Refusal(
        "alignment",
        f"a slice of dimension {dimension} starts where the compiler cannot prove a multiple of "
        f"{multiple}",
        f"if it is one, say so: pl.ds(pl.multiple_of(start, {multiple}), size); if not, load "
        "whole tiles and shift them with pltpu.roll",
    )


_KNOWN: tuple[tuple[str, Callable[[re.Match[str], str], Refusal]], ...] = (
    (r"Scoped allocation with size ([\d.]+[KMG]?) and limit ([\d.]+[KMG]?) exceeded", _scoped),
    (r"memory space vmem\. Used ([\d.]+[KMG]?) of ([\d.]+[KMG]?) vmem", _capacity),
    (
        r"Allocation \(size=(\d+)\) would exceed memory \(size=(\d+)\).{0,120}?space=vmem",
        _one_buffer,
    ),
    (r"memory space hbm\. Used ([\d.]+[KMG]?) of ([\d.]+[KMG]?) hbm", _hbm),
    (r"required for HLO \w+ \(([\d.]+[KMG]?)\) exceeds available HBM \(([\d.]+[KMG]?)\)", _hbm),
    (r"divisible by 8 and 128.*?has block shape (\(.*?\)), array shape", _block_shape),
    (
        r"shape \(\.{3}, (\S+ \S+)\) has tiling \((.+?)\), but.{1,9}block shape \(\.{3}, (.+?)\)",
        _misaligned,
    ),
    (r"\b(f16|f64|f8\w+|float16|float64)\b(?=.{0,200}(?:not supported|[Uu]nsupported))", _dtype),
    (r"(?:Invalid vector type|[Uu]nsupported element type).*?x(f16|f64|f8\w+)[,>]", _dtype),
    (r"failed to legalize operation [^\n]*?x(f16|f64|f8\w+)[,>]", _dtype),
    (r"Only take_along_axis-like gathers supported", _gather),
    (r"Multiple source vregs along gather dimension", _wide_gather),
    (r"prove that index in dimension (\d+) is a multiple of (\d+)", _unaligned),
    (r"index at dimension (\d+) is divisible by the tile dimension (\d+)", _unaligned),
    (r"Unimplemented primitive in Pallas TPU lowering[^:]*: (\w+)", _primitive),
    (r"Mosaic failed to compile TPU kernel: ((?:infer|apply)-vector-layout[^\n]*)", _layout),
    (r"Mosaic failed to compile TPU kernel: ([^\n]*(?:layout|[Uu]nsupported)[^\n]*)", _layout),
)


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return (
        re.sub(r"^[A-Z_]+: ", "", lines[0]).rstrip(".")[:300]
        if lines
        else "the compiler gave no reason"
    )
