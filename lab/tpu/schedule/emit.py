"""Python code for the scalar instructions of a schedule, one line or two each.

Names become places in one list, allocations get made-up addresses, and only what time can hang on
becomes code (see `needed`).
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from lab.tpu.schedule.bundles import CORE_ID, DIVIDE, Instruction, Schedule, UnrecognisedDump
from lab.tpu.schedule.needed import is_copy, needed_names
from lab.tpu.schedule.scalar import EXPRESSIONS, CannotFollowError, Unknown, divide, select
from lab.tpu.schedule.timeline import Timeline

_SYMBOL_SPACING = 1 << 18  # words between two allocations' made-up addresses; SMEM holds fewer
_TERM = re.compile(r"(?P<name>%[\w.]+)|(?P<symbol>#\w+)|\$?(?P<number>0x[0-9a-f]+|-?\d+)\b")
_SCALAR_OPERAND = "inlined_call_operand."
_OPERAND = re.compile(r"index: (\d+),kind: input")
_SAME_PLACE = re.compile(r"int_to_ptr\.\w+|sshll\.u32|smov")  # an address, in other units
_GRANULES_A_STEP = 16  # strides count granules, and the length of a piece steps of 512 bytes
_SPACE = re.compile(r"(?:inlined_call_operand|scalar_lea|int_to_ptr)\.(\w+)")
_NOT_MODELLED = ("dma.", "vwait", "vsync", "scall", "sret", "inlined_call")
_EFFECTS = {  # opcode -> code; numbers are operands, `{offset}` is cycles since the block's start
    "dma.done.wait": "t = wait(t + {offset}, {0}, {1}, {address}) - {offset}",
    "vsyncadd": "add(t + {offset}, {0}, {1})",
    "vsyncpa": "reset({0})",
    "vsyncmov": "read({0}, {address})",
    "vdelay": "t += {0}",
}


class Memory:
    """SMEM as far as the program itself wrote it; all else in it is unknown."""

    def __init__(self) -> None:
        self._words: dict[int, object] = {}

    def load(self, address: object, unknown: Unknown) -> object:
        """What was stored at an address, else `unknown`."""
        return self._words.get(address, unknown) if isinstance(address, int) else unknown

    def store(self, address: object, value: object) -> None:
        """Store; at an unknown address, nothing in memory is known any more."""
        if isinstance(address, int):
            self._words[address] = value
        else:
            self._words.clear()

    def fill(self, address: object, words: Mapping[int, int]) -> None:
        """A copy brings known words, by their distance from an address."""
        for distance, word in words.items():
            self.store(address + distance if isinstance(address, int) else address, word)

    def overwrite(self, address: object) -> None:
        """A copy brings data into the allocation at an address."""
        allocation = address // _SYMBOL_SPACING if isinstance(address, int) else None
        for word in list(self._words):
            if allocation in {None, word // _SYMBOL_SPACING}:
                del self._words[word]


class Emitter:
    """Turns instructions into code that runs in `scope()`; time is the variable t, in cycles."""

    def __init__(self, schedule: Schedule, words: Mapping[int, Mapping[int, int]]) -> None:
        self._name = schedule.name
        self._words = words  # operand of the op -> its words in scalar memory, where known
        self._filled: list[Mapping[int, int]] = []
        self._needed = needed_names(schedule)
        self._places: dict[str, int] = {}
        self._symbols: dict[str, int] = {}
        self._unknowns: list[Unknown] = []
        self._pops: dict[str, Iterator[int]] = {}  # division -> number of its next result
        self._defined = {
            instruction.result: instruction
            for bundle in schedule.bundles
            for instruction in bundle.instructions
        }
        self._space = {
            name: match[1]
            for name, instruction in self._defined.items()
            if (match := _SPACE.fullmatch(instruction.opcode))
        }

    def scope(self, timeline: Timeline) -> dict[str, object]:
        """The names that the emitted code uses, all values not yet set."""
        memory = Memory()
        return {
            "r": [Unknown("a value used before it is set")] * len(self._places),
            "u": self._unknowns,
            "select": select,
            "divide": divide,
            "load": memory.load,
            "store": memory.store,
            "overwrite": memory.overwrite,
            "fill": memory.fill,
            "w": self._filled,
            "piece": _piece,
            "described": _described,
            "copy": timeline.copy,
            "wait": timeline.wait,
            "add": timeline.add,
            "reset": timeline.reset,
            "read": timeline.read,
            "stop": _stop,
        }

    def lines(self, instruction: Instruction, address: int, offset: int) -> list[str]:
        """Code for one instruction, `offset` cycles after its block's start; mostly none."""
        try:
            return self._lines(instruction, address, offset)
        except (IndexError, ValueError) as error:
            raise UnrecognisedDump(
                f"{self._name}: expected more operands of {instruction.opcode} at {address:#x}"
            ) from error

    def _lines(self, instruction: Instruction, address: int, offset: int) -> list[str]:
        opcode = instruction.opcode
        if instruction.result[:2] in {"%s", "%p"}:
            if opcode == "sphi" or not self.needs(instruction):
                return []
            return [f"{self.place(instruction.result)} = {self._value(instruction, address)}"]
        if opcode == "sst":
            return [self._store(instruction, address)]
        if opcode == "sdivrem.u32" and DIVIDE in instruction.operands:
            a, b = map(self.operand, instruction.operands[:2])
            self._pops[instruction.result] = itertools.count()
            results = (self.place(f"{instruction.result}/{pop}") for pop in (0, 1))
            return [f"{', '.join(results)} = divide({a}, {b})"]
        if opcode in _EFFECTS:
            operands = map(self.operand, instruction.operands)
            code = _EFFECTS[opcode].format(*operands, offset=offset, address=address)
        elif is_copy(opcode):
            code = self._copy(instruction, address, offset)
        elif opcode.startswith(_NOT_MODELLED):
            code = f"stop({f'{opcode} at bundle {address:#x} is not modelled'!r})"
        else:
            return []
        return [f"if {self.guard(instruction.guard)}: {code}" if instruction.guard else code]

    def needs(self, instruction: Instruction) -> bool:
        """Whether time can hang on an instruction's result."""
        return instruction.result in self._needed

    def guard(self, guard: str) -> str:
        """The condition under which a guarded instruction takes effect."""
        value = self.operand(guard.lstrip("!"))
        return f"not {value}" if guard.startswith("!") else value

    def operand(self, text: str) -> str:
        """`%name`, an integer, or a bracketed sum of allocations, names and integers."""
        terms = [self._term(*term) for term in _TERM.findall(text)]
        if not terms:
            raise UnrecognisedDump(f"{self._name}: expected an operand, found {text!r}")
        return f"({' + '.join(terms)})" if text.startswith("[") and len(terms) > 1 else terms[0]

    def place(self, name: str) -> str:
        """Where the value of a name is kept."""
        return f"r[{self._places.setdefault(name, len(self._places))}]"

    def unknown(self, origin: str) -> str:
        """A value that the dump does not tell."""
        self._unknowns.append(Unknown(origin))
        return f"u[{len(self._unknowns) - 1}]"

    def _value(self, instruction: Instruction, address: int) -> str:
        """The expression of an instruction that defines a scalar or a predicate."""
        opcode, operands = instruction.opcode, instruction.operands
        if operands and operands[0].startswith("("):  # `op (%p, %old), new`: new where p is true
            new = Instruction(instruction.result, opcode, None, operands[2:])
            return self._select(
                operands[0][1:], self._value(new, address), self.operand(operands[1])
            )
        if opcode == _SCALAR_OPERAND:  # not an address, but the one word itself
            origin = self._origin(instruction.result)
            words = self._words.get(origin, {}) if origin is not None else {}
            return str(words[0]) if 0 in words else self.unknown("a scalar argument")
        if opcode == "sld":
            return self._load(operands, address)
        if opcode == "spop.drf" and operands[0] in self._pops:  # first quotient, then remainder
            return self.place(f"{operands[0]}/{next(self._pops[operands[0]])}")
        template = EXPRESSIONS.get(opcode)
        if template is None:
            return self.unknown(f"the result of {opcode} at bundle {address:#x}")
        return template.format(*map(self.operand, operands))

    def _load(self, operands: Sequence[str], address: int) -> str:
        if CORE_ID in operands:
            return "0"  # cores share the work evenly: core 0 stands for all
        unknown = self.unknown(f"a value loaded from memory at bundle {address:#x}")
        return f"load({self._address(operands[0])}, {unknown})"

    def _store(self, instruction: Instruction, address: int) -> str:
        where, value = self._address(instruction.operands[0]), self.operand(instruction.operands[1])
        if instruction.guard:
            old = f"load({where}, {self.unknown(f'memory before bundle {address:#x}')})"
            value = self._select(instruction.guard, value, old)
        return f"store({where}, {value})"

    def _copy(self, instruction: Instruction, address: int, offset: int) -> str:
        source, size, target, flag, *rest = instruction.operands
        if instruction.opcode == "dma.general":  # which does not say between which memories
            ends = self._ends(source, target)
            piece = self._described(rest[1]) if len(rest) > 1 else "None"
        else:
            spaces = instruction.opcode.removeprefix("dma.").split("_to_")
            ends = "r" * (spaces[0] == "hbm") + "w" * (spaces[1] == "hbm")
            stride = 1 if ends == "w" else 0
            pieces = map(self.operand, (rest[stride], rest[2])) if len(rest) > 2 else ()
            piece = f"piece({', '.join(pieces)})"
        given = (self.operand(size), self.operand(flag), repr(ends), str(address), piece)
        code = f"copy(t + {offset}, {', '.join(given)})"
        if instruction.opcode.endswith("_to_smem"):
            code += f"; overwrite({self.operand(target)})"
            origin = self._origin(source)
            if origin is not None and (words := self._words.get(origin)) is not None:
                self._filled.append(words)
                code += f"; fill({self.operand(target)}, w[{len(self._filled) - 1}])"
        return code

    def _ends(self, source: str, target: str) -> str:
        reads, writes = (self._space.get(end, "hbm") == "hbm" for end in (source, target))
        return "r" * reads + "w" * writes

    def _described(self, descriptor: str) -> str:
        """Granules that lie together in HBM, from two strides and a length in scalar memory."""
        unknown = self.unknown("the strides of a copy")
        inner = [f"load({self.operand(descriptor)} + {word}, {unknown})" for word in (3, 4, 5)]
        return f"described({', '.join(inner)})"

    def _origin(self, name: str) -> int | None:
        """Which operand of the op an address is the start of."""
        for _ in range(len(self._defined)):
            instruction = self._defined.get(name)
            if instruction is None:
                return None
            if (match := _OPERAND.search(",".join(instruction.operands))) is not None:
                return int(match[1])
            if not _SAME_PLACE.fullmatch(instruction.opcode) or not instruction.operands:
                return None
            name = instruction.operands[0]
        return None

    def _select(self, guard: str, on_true: str, on_false: str) -> str:
        if guard.startswith("!"):
            on_true, on_false = on_false, on_true
        return f"select({self.operand(guard.lstrip('!'))}, {on_true}, {on_false})"

    def _address(self, operand: str) -> str:
        return self.operand(operand.removeprefix("[smem:"))

    def _term(self, name: str, symbol: str, number: str) -> str:
        if name:
            return self.place(name)
        if symbol:
            return str(self._symbols.setdefault(symbol, len(self._symbols) + 1) * _SYMBOL_SPACING)
        value = int(number, 0)
        return str(value - (1 << 32) if value >= 1 << 31 else value)


def _piece(stride: object = None, steps: object = None) -> object:
    """Granules that lie together in HBM, of a copy with a stride there; None for all of them."""
    if not (isinstance(stride, int) and isinstance(steps, int)):
        return None if stride is None else _GRANULES_A_STEP  # unknown: the smallest piece
    piece = steps * _GRANULES_A_STEP
    return None if stride == piece else piece


def _described(from_stride: object, to_stride: object, steps: object) -> object:
    """The same where it is not said on which side HBM is: the side that has gaps."""
    pieces = [_piece(stride, steps) for stride in (from_stride, to_stride)]
    return next((piece for piece in pieces if piece is not None), None)


def _stop(reason: str) -> None:
    raise CannotFollowError(reason)
