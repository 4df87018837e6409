"""The proof that a compiled chain holds its program: read from the optimised HLO.

Work (products, reductions, transcendentals, custom calls) that the single program does must be in
the body of the one loop that the entry runs, as often; and outside that loop there must be none
that depends on an argument. A compiler that hoists a call, or drops it, fails one of the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lab.tpu.hlo.text import Computations, Op, UnrecognisedHloError, parse

# Opcodes whose number the compiler does not change as it fuses; others need only be there.
_COUNTED = frozenset({"dot", "convolution", "custom-call"})
_PRESENT = frozenset({"reduce", "reduce-window", "exponential", "sort", "scatter", "fft"})
_WORK = _COUNTED | _PRESENT


def problem(chain: str, single: str) -> str | None:
    """What the chain's HLO text lacks of the single program's; None if it holds all of it."""
    try:
        computations, entry = parse(chain)
        alone, alone_entry = parse(single)
    except UnrecognisedHloError as error:
        return f"the compiler's HLO cannot be read: {error}"
    loops = [op for op in computations[entry] if op.opcode == "while"]
    outside = _hoisted(computations, entry)
    if outside:
        return f"the compiler moved {', '.join(sorted(outside))} out of the loop"
    if len(loops) != 1:
        return f"the compiled chain runs {len(loops)} loops, not one"
    inside = _work(computations, list(loops[0].calls))
    wanted = _work(alone, [alone_entry])
    for opcode, count in sorted(wanted.items()):
        least = count if opcode in _COUNTED else 1
        if inside[opcode] < least:
            return f"the loop holds {inside[opcode]} {opcode}, the program alone {count}"
    return None


def _hoisted(computations: Computations, entry: str) -> set[str]:
    """Opcodes of work in the entry, outside its loops, that depends on an argument."""
    depends: set[str] = set()
    found: set[str] = set()
    for op in computations[entry]:
        if op.opcode == "parameter" or depends.intersection(op.operands):
            depends.add(op.name)
            if op.opcode == "while":
                continue
            found |= {inner for inner in _opcodes(computations, op) if inner in _WORK}
    return found


def _opcodes(computations: Computations, op: Op) -> Iterator[str]:
    yield op.opcode
    yield from _work(computations, list(op.calls))


def _work(computations: Computations, names: list[str]) -> Counter[str]:
    """How often each opcode of work stands in these computations and what they call."""
    counts: Counter[str] = Counter()
    waiting, seen = list(names), set(names)
    while waiting:
        for op in computations.get(waiting.pop(), []):
            if op.opcode in _WORK:
                counts[op.opcode] += 1
            for called in op.calls:
                if called not in seen:
                    seen.add(called)
                    waiting.append(called)
    return counts
