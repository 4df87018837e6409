"""Which scalar values time can hang on.

Most of a kernel's scalar instructions compute addresses of copies and check their bounds. Neither
changes when a bundle runs, so they need not be executed.
"""

import re
from collections.abc import Iterator

from lab.tpu.schedule.bundles import Instruction, Schedule

_NAME = re.compile(r"%[\w.]+")
_COPY = re.compile(r"dma\.(?:general|\w+_to_\w+)")


def is_copy(opcode: str) -> bool:
    """Whether an instruction starts a copy: operands source, granules, destination, sync flag."""
    return _COPY.fullmatch(opcode) is not None


def needed_names(schedule: Schedule) -> frozenset[str]:
    """Names that branches, guards, copies, waits and stores use, and all that those come from."""
    sources: dict[str, tuple[str, ...]] = {}
    todo: list[str] = []
    for bundle in schedule.bundles:
        for instruction in bundle.instructions:
            used = tuple(_used(instruction))
            if instruction.result[:2] in {"%s", "%p"} or instruction.opcode.startswith("sdivrem"):
                sources[instruction.result] = used
            else:
                todo += used
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += sources.get(name, ())
    return frozenset(found)


def _used(instruction: Instruction) -> Iterator[str]:
    """Names whose values matter to what an instruction does."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode.startswith("shalt"):  # a bounds check that fails ends the program: it is not run
        return
    if is_copy(opcode):  # where to matters only in scalar memory, which the program reads back
        where = operands[2:3] if opcode.endswith("_to_smem") else ()
        operands = (*operands[1:4:2], *operands[4:], *where)
    yield from (name for operand in operands for name in _NAME.findall(operand))
    if instruction.guard is not None:
        yield instruction.guard.removeprefix("!")
