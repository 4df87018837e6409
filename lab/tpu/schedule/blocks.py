"""Split a schedule into basic blocks, each a Python function of time.

A block runs from a bundle that control can reach by a branch, or just after one, to the next such
bundle; a branch acts after its delay slots. A loop of thousands of steps then executes in a second
or so, for its vector bundles cost nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from lab.tpu.schedule.bundles import DELAY_SLOTS, Instruction, Schedule, UnrecognisedDump
from lab.tpu.schedule.emit import Emitter
from lab.tpu.schedule.timeline import Timeline


@dataclass(frozen=True)
class Block:
    """Bundles [start, end), always executed as a whole.

    Attributes:
        start: address of its first bundle.
        end: address after its last bundle.
        work: about how many lines of Python it costs.
        step: cycle of its first bundle -> (address that follows, cycle there).
    """

    start: int
    end: int
    work: int
    step: Callable[[float], tuple[int, float]]


def compile_blocks(
    schedule: Schedule, timeline: Timeline, words: Mapping[int, Mapping[int, int]]
) -> dict[int, Block]:
    """Every block of a schedule by its start; an address past the last bundle ends the program.

    Args:
        schedule: what to split.
        timeline: keeps the time of its copies.
        words: operand of the op -> its words in scalar memory, for those that are known.

    Raises:
        UnrecognisedDump: a branch stands in another's delay slots, or an operand cannot be read.
    """
    emitter = Emitter(schedule, words)
    spans = list(_spans(schedule))
    codes = [_code(schedule, emitter, *span) for span in spans]
    scope = emitter.scope(timeline)
    blocks = {}
    for (start, end, _), code in zip(spans, codes, strict=True):
        names = dict(scope)
        source = "\n    ".join(["def step(t, r=r):", *code])
        exec(source, names)  # noqa: S102 - made of place numbers, integers and our own words
        blocks[start] = Block(start, end, len(code) + 5, names["step"])  # type: ignore[arg-type]
    return blocks


def _spans(schedule: Schedule) -> Iterator[tuple[int, int, Instruction | None]]:
    """(start, end, the branch that acts at its end) of every block."""
    size = len(schedule.bundles)
    branches = {
        address: instruction
        for address, bundle in enumerate(schedule.bundles)
        for instruction in bundle.instructions
        if instruction.target is not None
    }
    for address in branches:
        slots = range(address + 1, address + 1 + DELAY_SLOTS)
        if slots.stop > size or any(slot in branches for slot in slots):
            raise UnrecognisedDump(
                f"{schedule.name}: expected {DELAY_SLOTS} plain bundles after the branch at"
                f" {address:#x}"
            )
    after = {address + 1 + DELAY_SLOTS for address in branches}
    leaders = {0, *after, *(i.target for i in branches.values() if i.target is not None)}
    for start in sorted(leaders - {size}):
        address = start
        while address not in branches:
            address += 1
            if address == size or address in leaders:
                yield start, address, None
                break
        else:
            yield start, address + 1 + DELAY_SLOTS, branches[address]


def _code(
    schedule: Schedule, emitter: Emitter, start: int, end: int, branch: Instruction | None
) -> list[str]:
    """The lines of one block's function."""
    lines = [
        line
        for address in range(start, end)
        for instruction in schedule.bundles[address].instructions
        for line in emitter.lines(instruction, address, address - start)
    ]
    lines.append(f"t += {end - start}")
    if branch is not None and branch.target is not None:
        taken = _jump(schedule, emitter, branch.target, back=branch.target < end)
        if branch.guard is None:
            return lines + taken
        lines.append(f"if {emitter.guard(branch.guard)}:")
        lines += ["    " + line for line in taken]
    return lines + _jump(schedule, emitter, end, back=False)


def _jump(schedule: Schedule, emitter: Emitter, address: int, *, back: bool) -> list[str]:
    """Go to a block; `sphi a, b` at its start takes a on first entry, b on the loop's way back."""
    leave = f"return {address}, t"
    if address >= len(schedule.bundles):
        return [leave]
    bundle = schedule.bundles[address]
    phis = [i for i in bundle.instructions if i.opcode == "sphi" and emitter.needs(i)]
    if not phis:
        return [leave]
    if bundle.label == "LB":
        values = [emitter.operand(phi.operands[back]) for phi in phis]
    else:
        values = [emitter.unknown(f"a merge of paths at bundle {address:#x}") for _ in phis]
    places = [emitter.place(phi.result) for phi in phis]
    return [f"{', '.join(places)} = {', '.join(values)}", leave]
