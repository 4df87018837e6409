"""Read libtpu's dumps of an op's final VLIW schedule.

A line of such a dump is one bundle, issued in one cycle::

    0x22   : > { %108 = sbr.rel (%p105_p1) target bundleno = 308 (0x134), region = 24  ;;  ... }

that is address, optional label (LB loop body, PF predicated fall-through), one ``>`` a loop level,
and instructions separated by ``;;``. Comments nest and may span lines. Two passes are read:
``packed-bundles-post-ra``, in which the cycles spent waiting for a unit's result are empty bundles,
and ``final_bundles``, from which most of those empty bundles have been removed again (the hardware
interlocks), so that its length says less about time.

Seen with libtpu 0.0.42.1; any other format raises `UnrecognisedDump`.
"""

import gzip
import re
from dataclasses import dataclass
from pathlib import Path

DUMP_FLAGS = (
    "--xla_jf_dump_to={directory} --xla_jf_dump_llo_text=true"
    " --xla_jf_dump_llo_pass_label_regex=final_|packed-bundles-post-ra|pre-delay_hlo"
)
DELAY_SLOTS = 4  # bundles after a branch that still execute before control moves

_SIGNATURE = "= control target key start"
_COMMENT = re.compile(r"/\*|\*/")
_REGION = re.compile(r"(Start/End empty|Start|End) region (\d+)")
_BUNDLE = re.compile(
    r"\s*(?P<address>0x[0-9a-f]+|0)\s+(?:(?P<label>[A-Z]{2})\s*)?:(?P<depth>[ >]*)"
    r"\{(?P<body>.*)\}\s*"
)
_INSTRUCTION = re.compile(r"(?:(?P<result>%[\w.]+) = )?(?P<opcode>[a-z][\w.\-]*)(?P<rest>.*)")
_GUARD = re.compile(r"\((!?%p[\w.]+)\)")
_QUALIFIER = re.compile(r"\[(?:thread|resolvable):\$\w+\]")
_TARGET = re.compile(r"target (?:= \$region(?P<region>\d+)|bundleno = (?P<address>\d+) )")


class UnrecognisedDump(Exception):  # noqa: N818 - it names the finding, as UserError does not
    """A dump is not in the known format; the message says what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One slot of a bundle: ``result = opcode (guard) operands``, or a branch to a target.

    Attributes:
        result: the SSA name it defines, such as ``%s444_s10``, or a bare number for none.
        opcode: with its suffixes, such as ``sadd.s32`` or ``vmatmul.bf16.gmra.mxu0``.
        guard: predicate under which it takes effect, ``!`` in front when inverted; or None.
        operands: names, integers and bracketed addresses, in order, comments removed.
        target: address of the bundle a branch goes to; None for every other opcode.
    """

    result: str
    opcode: str
    guard: str | None
    operands: tuple[str, ...]
    target: int | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """The instructions issued in one cycle, at a loop depth of 0 (outside every loop) or more."""

    label: str
    loop_depth: int
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Schedule:
    """A whole op; a bundle's address is its index. ``latencies`` : waits are empty bundles."""

    bundles: tuple[Bundle, ...]
    latencies: bool
    name: str = ""


def find_dump(directory: Path, op: str) -> Path | None:
    """The schedule of an HLO op in a dump directory, with latencies where dumped; None for none."""
    return _newest(directory, op, "packed-bundles-post-ra") or _newest(
        directory, op, "final_bundles"
    )


def find_slots(directory: Path, op: str) -> Path | None:
    """The per-bundle slot use that goes with the schedule with latencies of an HLO op, or None."""
    return _newest(directory, op, "pre-delay_hlo-static-per-bundle-utilization")


def _newest(directory: Path, op: str, stage: str) -> Path | None:
    name = re.compile(rf"(\d+)-{re.escape(op)}-\d+-{re.escape(stage)}\.txt(\.gz)?")
    found = [(int(m[1]), p) for p in directory.iterdir() if (m := name.fullmatch(p.name))]
    return max(found)[1] if found else None


def read_text(path: Path) -> str:
    """A dump's text, unpacked when its name ends in .gz; an unreadable file is UnrecognisedDump."""
    try:
        if path.suffix == ".gz":
            return gzip.decompress(path.read_bytes()).decode()
        return path.read_text()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UnrecognisedDump(f"{path.name}: expected readable text, found: {error}") from error


def read(path: Path) -> Schedule:
    """Parse the dump in a file (.txt or .txt.gz)."""
    return parse(read_text(path), name=path.name)


def parse(text: str, *, name: str = "dump") -> Schedule:
    """Parse the text of a dump; `name` is used in messages alone.

    Raises:
        UnrecognisedDump: the text is of another format, or cut off.
    """
    if not text.startswith(_SIGNATURE):
        found = text[:40].splitlines()[0] if text.strip() else "nothing"
        raise UnrecognisedDump(f"{name}: expected {_SIGNATURE!r} on line 1, found {found!r}")
    code, comments = _split_comments(text, name)
    bundles: list[Bundle] = []
    starts: dict[int, int] = {}
    opened: set[int] = set()
    last = ""
    for line, remarks in zip(code, comments, strict=True):
        match = _BUNDLE.fullmatch(line)
        if match is None:
            if bundles and line.strip():
                raise UnrecognisedDump(f"{name}: expected a bundle, found {line.strip()[:60]!r}")
            continue
        if int(match["address"], 16) != len(bundles):
            raise UnrecognisedDump(
                f"{name}: expected bundle {len(bundles):#x}, found {match['address']}"
            )
        for remark in remarks:
            for kind, region in _REGION.findall(remark):
                if kind == "End":
                    opened.discard(int(region))
                else:
                    starts[int(region)] = len(bundles)
                    if kind == "Start":
                        opened.add(int(region))
        body = match["body"].split(";;")
        bundles.append(
            Bundle(
                match["label"] or "",
                match["depth"].count(">"),
                tuple(_instruction(part, name) for part in map(str.strip, body) if part),
            )
        )
        last = " ".join(remarks)
    final = "exit bundle:" in last
    if not bundles or (opened and not final):
        raise UnrecognisedDump(f"{name}: expected the end of every region, found the end of file")
    return Schedule(_resolved(bundles, starts, name), latencies=not final, name=name)


def _split_comments(text: str, name: str) -> tuple[list[str], list[list[str]]]:
    """The text without comments, as lines, and the outermost comments that stood on each line."""
    code: list[str] = []
    comments: list[list[str]] = []
    line: list[str] = []
    remarks: list[str] = []
    depth = position = 0

    def take(piece: str) -> None:
        first, *rest = piece.split("\n")
        line.append(first)
        for following in rest:
            code.append("".join(line))
            comments.append(remarks.copy())
            line[:] = [following]
            remarks.clear()

    for mark in _COMMENT.finditer(text):
        if mark[0] == "/*":
            if depth == 0:
                take(text[position : mark.start()])
                position = mark.end()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                remarks.append(text[position : mark.start()])
                position = mark.end()
    if depth:
        raise UnrecognisedDump(f"{name}: expected the end of a comment, found the end of the file")
    take(text[position:] + "\n")
    return code, comments


def _instruction(text: str, name: str) -> Instruction:
    match = _INSTRUCTION.fullmatch(text)
    if match is None:
        raise UnrecognisedDump(f"{name}: expected '%result = opcode ...', found {text[:60]!r}")
    rest = _QUALIFIER.sub("", match["rest"])
    guard = _GUARD.search(rest)
    if guard is not None:
        rest = rest[: guard.start()] + "," + rest[guard.end() :]
    rest = rest.replace("]] ", "]], ")  # `sst [smem:[address]] value`
    operands = tuple(part for part in map(str.strip, rest.split(",")) if part)
    return Instruction(
        match["result"] or "", match["opcode"], guard[1] if guard else None, operands
    )


def _resolved(bundles: list[Bundle], starts: dict[int, int], name: str) -> tuple[Bundle, ...]:
    """The bundles with each branch's region or bundle number turned into an address."""
    for address, bundle in enumerate(bundles):
        if not any(i.opcode.startswith("sbr") for i in bundle.instructions):
            continue
        instructions = []
        for instruction in bundle.instructions:
            target = None
            if instruction.opcode.startswith("sbr"):
                match = _TARGET.search(", ".join(instruction.operands) + " ")
                if match is None:
                    raise UnrecognisedDump(
                        f"{name}: expected a branch target, found {instruction.operands}"
                    )
                target = (
                    starts.get(int(match["region"])) if match["region"] else int(match["address"])
                )
                if target is None or target >= len(bundles):
                    raise UnrecognisedDump(
                        f"{name}: the branch at {address:#x} leads out of the file ({match[0]})"
                    )
            instructions.append(
                Instruction(
                    instruction.result,
                    instruction.opcode,
                    instruction.guard,
                    instruction.operands,
                    target,
                )
            )
        bundles[address] = Bundle(bundle.label, bundle.loop_depth, tuple(instructions))
    return tuple(bundles)
