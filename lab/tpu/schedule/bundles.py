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
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

DUMP_FLAGS = (
    "--xla_jf_dump_to={directory} --xla_jf_dump_llo_text=true"
    " --xla_jf_dump_llo_pass_label_regex=final_|packed-bundles-post-ra|pre-delay_hlo"
)
"""For LIBTPU_INIT_ARGS, which libtpu reads once a process: writes every file that is read here."""

PROFILE_FLAG = "--xla_jf_dump_static_llo_profile_to={directory}"
"""Writes libtpu's own estimates, or ends the process with SIGABRT where its latency model lacks a
case: on v4 and tpu7x, and on v5e for a kernel that copies HBM to scalar memory ("Unsupported DMA
direction"). The same program compiles without the flag, so a compile that dies is to be retried."""

DELAY_SLOTS = 4  # bundles after a branch that still execute before control moves
CORE_ID = "core-id"  # operand of a load that asks on which core the program runs
DIVIDE = "divide-and-remainder"  # operand of a division whose two results are both taken

_SIGNATURE = "= control target key start"
_COMMENT = re.compile(r"/\*|\*/")
_REMARK = re.compile(r"\s*(?:Start|End|exit bundle:)")
_REGION = re.compile(r"(Start/End empty|Start|End) region (\d+)")
_BUNDLE = re.compile(
    r"\s*(?P<address>0x[0-9a-f]+|0)\s+(?:(?P<label>[A-Z]{2})\s*)?:(?P<depth>[ >]*)"
    r"\{(?P<body>.*)\}(?P<remarks>[^{}]*)"
)
_INSTRUCTION = re.compile(r"(?:(?P<result>%[\w.]+) = )?(?P<opcode>[a-z][\w.\-]*)(?P<rest>.*)")
_VECTOR = re.compile(r"v(?!sync|wait|delay)")
_GUARD = re.compile(r"\((!?%p[\w.]+)\)")
_QUALIFIER = re.compile(r"\[(?:thread|resolvable):\$\w+\]")
_TARGET = re.compile(r"target (?:= \$region(?P<region>\d+)|bundleno = (?P<address>\d+)\b)")


class UnrecognisedDump(Exception):  # noqa: N818 - it names the finding, as UserError does not
    """A dump is not in the known format; the message says what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One slot of a bundle: ``result = opcode (guard) operands``, or a branch to a target.

    Attributes:
        result: the SSA name it defines, such as ``%s444_s10``, or a bare ``%number`` for none.
        opcode: with its suffixes, such as ``sadd.s32`` or ``vmatmul.bf16.gmra.mxu0``.
        guard: predicate under which it takes effect, ``!`` in front when inverted; or None.
        operands: names, integers and bracketed addresses, in order; a vector instruction's are
            left out.
        target: address of the bundle that a branch goes to; None for every other opcode.
    """

    result: str
    opcode: str
    guard: str | None
    operands: tuple[str, ...]
    target: int | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """The instructions issued in one cycle, and the bundle's label, such as ``LB``, or nothing."""

    label: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Schedule:
    """A whole op. A bundle's address is its index.

    Attributes:
        bundles: in order of address.
        latencies: waits for a unit's result stand in it as empty bundles.
        name: of the file, for messages.
    """

    bundles: tuple[Bundle, ...]
    latencies: bool
    name: str


def find_dump(directory: Path, op: str) -> Path | None:
    """The schedule of an HLO op in a dump directory, with latencies where dumped; or None."""
    return _newest(directory, op, "packed-bundles-post-ra") or _newest(
        directory, op, "final_bundles"
    )


def find_slots(directory: Path, op: str) -> Path | None:
    """The per-bundle slot use that goes with the schedule with latencies of an HLO op, or None."""
    return _newest(directory, op, "pre-delay_hlo-static-per-bundle-utilization")


def _newest(directory: Path, op: str, stage: str) -> Path | None:
    """The file `<time>-<op>-<pass number>-<stage>.txt`, possibly gzipped, of the latest time."""
    name = re.compile(rf"(\d+)-{re.escape(op)}-\d+-{re.escape(stage)}\.txt(\.gz)?")
    found = [(int(m[1]), p) for p in directory.iterdir() if (m := name.fullmatch(p.name))]
    return max(found)[1] if found else None


def read_text(path: Path) -> str:
    """A dump's text, unpacked when its name ends in .gz; an unreadable file is UnrecognisedDump."""
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
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
        found = text.strip()[:40].partition("\n")[0] or "nothing"
        raise UnrecognisedDump(f"{name}: expected {_SIGNATURE!r} on line 1, found {found!r}")
    bundles: list[Bundle] = []
    starts: dict[int, int] = {}  # region -> address
    opened: set[int] = set()
    remarks = ""
    for line in _without_comments(text, name).splitlines():
        match = _BUNDLE.fullmatch(line)
        if match is None:
            if bundles and line.strip():
                raise UnrecognisedDump(f"{name}: expected a bundle, found {line.strip()[:60]!r}")
            continue
        if int(match["address"], 16) != len(bundles):
            raise UnrecognisedDump(
                f"{name}: expected bundle {len(bundles):#x}, found {match['address']}"
            )
        remarks = match["remarks"]
        for kind, region in _REGION.findall(remarks):
            if kind == "End":
                opened.discard(int(region))
            else:
                starts[int(region)] = len(bundles)
                opened |= {int(region)} if kind == "Start" else set()
        body = (part.strip() for part in match["body"].split(";;"))
        instructions = tuple(_instruction(part, name) for part in body if part)
        bundles.append(Bundle(match["label"] or "", instructions))
    final = "exit bundle:" in remarks
    if not final and (opened or not starts):
        raise UnrecognisedDump(f"{name}: expected the end of every region, found the end of file")
    # The exit bundle's remark stands in place of the regions that start there.
    default = len(bundles) - 1 if final else None
    resolved = tuple(_resolved(bundle, starts, default, name) for bundle in bundles)
    for address, bundle in enumerate(resolved):
        for target in (i.target for i in bundle.instructions):
            if target is not None and not 0 <= target < len(bundles):
                raise UnrecognisedDump(f"{name}: the branch at {address:#x} leads out of the file")
    return Schedule(resolved, latencies=not final, name=name)


def _without_comments(text: str, name: str) -> str:
    """The text without comments, but for what they say of regions, cores and divisions."""
    text = text.replace("/* core id */", CORE_ID).replace("/* kDivAndRem */", f", {DIVIDE}")
    kept: list[str] = []
    depth = start = end = 0
    for mark in _COMMENT.finditer(text):
        if mark[0] == "/*":
            if depth == 0:
                kept.append(text[end : mark.start()])
                start = mark.end()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                end = mark.end()
                remark = text[start : mark.start()]
                kept.append(remark if _REMARK.match(remark) else "")
    if depth:
        raise UnrecognisedDump(f"{name}: expected the end of a comment, found the end of the file")
    return "".join(kept) + text[end:]


def _instruction(text: str, name: str) -> Instruction:
    match = _INSTRUCTION.fullmatch(text)
    if match is None:
        raise UnrecognisedDump(f"{name}: expected '%result = opcode ...', found {text[:60]!r}")
    result, opcode = match["result"] or "", match["opcode"]
    if _VECTOR.match(opcode):
        return Instruction(result, opcode, None, ())
    rest = _QUALIFIER.sub("", match["rest"])
    guard = _GUARD.search(rest)
    if guard is not None:
        rest = rest[: guard.start()] + "," + rest[guard.end() :]
    rest = rest.replace("]] ", "]], ")  # `sst [smem:[address]] value`
    operands = tuple(part for part in map(str.strip, rest.split(",")) if part)
    return Instruction(result, opcode, guard[1] if guard else None, operands)


def _resolved(bundle: Bundle, starts: dict[int, int], default: int | None, name: str) -> Bundle:
    """A bundle with its branch's region or bundle number turned into an address."""
    if not any(i.opcode.startswith("sbr.") for i in bundle.instructions):
        return bundle
    instructions = []
    for instruction in bundle.instructions:
        if not instruction.opcode.startswith("sbr."):
            instructions.append(instruction)
            continue
        match = _TARGET.search(" ".join(instruction.operands))
        target = None
        if match is not None:
            region, address = match["region"], match["address"]
            target = int(address) if address else starts.get(int(region), default)
        if target is None:
            raise UnrecognisedDump(
                f"{name}: expected a known branch target, found {instruction.operands}"
            )
        instructions.append(replace(instruction, target=target))
    return Bundle(bundle.label, tuple(instructions))
