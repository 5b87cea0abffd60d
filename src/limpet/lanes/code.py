"""LLVM programs, written line by line: every number is a vector with one entry per lane."""

import ctypes
import dataclasses
import functools
import itertools
import os
import re
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from limpet.lanes.width import lanes

MOST = 300_000  # lines; a third of that takes ten seconds to compile, all of it a minute
FLOATS = {"float64": "double", "float32": "float"}
LINE = 64  # bytes of a line of the processor's cache
FLAG = np.dtype(bool)
NAME = re.compile(r"%\w+")


class UnsupportedError(Exception):
    """The program is left to XLA; the message says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """A number that the program computes; those known beforehand are NumPy's scalars."""

    name: str
    dtype: np.dtype


class StructuralZero(np.float64):
    """A zero of a sparse matrix: its products are zeros of that kind, whatever is beside it.

    Other zeros that are known multiply as IEEE's do: zero times infinity is NaN.
    """


STRUCTURAL_ZERO = StructuralZero(0)


def is_known(number) -> bool:
    """Whether the number is the same whatever the program is given."""
    return isinstance(number, np.generic)


def is_structural(number) -> bool:
    """Whether the number is a zero of a sparse matrix."""
    return isinstance(number, StructuralZero)


def is_zero(number) -> bool:
    """Whether the number is known to be zero."""
    return is_known(number) and number == 0


@functools.cache  # NumPy takes longer to name a type than all the rest of a line takes
def element(dtype) -> str:
    """LLVM's word for a type of number."""
    if dtype.kind in "iu":
        return f"i{8 * dtype.itemsize}"
    if dtype == FLAG:
        return "i1"
    if dtype.name not in FLOATS:
        raise UnsupportedError(f"numbers of type {dtype}")
    return FLOATS[dtype.name]


def vector(dtype) -> str:
    """LLVM's word for a number in every lane."""
    return f"<{lanes()} x {element(dtype)}>"


def operand(number) -> str:
    """A number as it stands in a line."""
    if isinstance(number, Number):
        return number.name
    if number.dtype.kind == "f":  # LLVM writes floats as the bits of a double
        value = f"0x{int(np.float64(number).view(np.uint64)):016X}"
    else:
        value = str(number.item()).lower()
    return "<" + ", ".join([f"{element(number.dtype)} {value}"] * lanes()) + ">"


@functools.cache
def locate(name) -> bool:
    """Tell LLVM where a function of the C library is, if it is there."""
    function = getattr(ctypes.CDLL("ucrtbase" if os.name == "nt" else None), name, None)
    if function is not None:
        llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    return function is not None


class Code:
    """A program as it is written."""

    def __init__(self, run, most=2 * MOST):
        self.run = run  # writes the lines of one of JAX's programs
        self.workspace: Any = None  # where arrays are kept that are too large for registers
        self.registers = np.inf  # entries of an array that is kept in registers
        self.tables: dict[bytes, str] = {}  # names by contents
        self.most = most  # lines; some will turn out to be of no use
        self.lines: list[str] = []
        self.places: list[str] = []  # reserved at the top
        self.declared: set[str] = set()
        self.names = itertools.count()
        self.active = None  # the lanes that a loop is still at work for; None: all
        self.common: set[str] = set()  # names of numbers that all lanes share, known when called
        self.once: list[str] = []  # lines before those of any lanes
        self.filling = {}  # loops in which matrices lose zeros, by their places in memory

    def text(self) -> str:
        """The program, as a function of a table of arrays and of the arrays' two lengths.

        It returns the bytes that it needs and cannot have, or zero.
        """
        head = "define i64 @block(ptr %arrays, i64 %turns, i64 %chains) {"
        begin, end = self._workspace_lines()
        lines = self.used()
        if len(lines) > MOST:
            raise UnsupportedError(f"programs of more than {MOST} lines, as this: {len(lines)}")
        declared = [*sorted(self.declared), *self._table_lines()]
        body = [*self.places, *begin, *lines, *end, "ret i64 0"]
        return "\n".join([*declared, head, *body, "}", "!0 = !{}"])

    def _workspace_lines(self):
        """What reserves the workspace, and frees it."""
        if self.workspace is None or not self.workspace.size:
            return [], []
        for name in ("malloc", "free"):
            locate(name)
        self.declared |= {"declare ptr @malloc(i64)", "declare void @free(ptr)"}
        size = self.workspace.size + LINE
        begin = [
            f"%reserved = call ptr @malloc(i64 {size})",
            "%refused = icmp eq ptr %reserved, null",
            "br i1 %refused, label %without, label %with",
            f"without:\nret i64 {size}",
            "with:",
            "%address = ptrtoint ptr %reserved to i64",
            f"%beyond = add i64 %address, {LINE - 1}",
            f"%line = and i64 %beyond, -{LINE}",
            "%workspace = inttoptr i64 %line to ptr",
        ]
        return begin, ["call void @free(ptr %reserved)"]

    def used(self) -> list[str]:
        """The lines without those that compute what no other line needs."""
        needed, lines = set(), []
        for line in reversed(self.lines):
            name, computes, rest = line.partition(" = ")
            if not computes or name in needed:
                needed.update(NAME.findall(rest if computes else line))
                lines.append(line)
        return lines[::-1]

    # Lines.

    def line(self, text) -> str:
        """A line that computes something, and the name of what it computes."""
        if len(self.lines) >= self.most:
            raise UnsupportedError(f"programs of more than {self.most} lines")
        name = f"%v{next(self.names)}"
        self.lines.append(f"{name} = {text}")
        return name

    def __call__(self, dtype, instruction, *numbers) -> Number:
        """An instruction on numbers of one type."""
        operands = ", ".join(operand(number) for number in numbers)
        return Number(self.line(f"{instruction} {vector(numbers[0].dtype)} {operands}"), dtype)

    def cast(self, how, number, dtype) -> Number:
        """The number as one of another type."""
        text = f"{how} {vector(number.dtype)} {operand(number)} to {vector(dtype)}"
        return Number(self.line(text), dtype)

    def select(self, flag, yes, no):
        """`yes` where flag holds, else `no`."""
        if is_known(flag):
            return yes if flag else no
        if (is_structural(yes) and is_zero(no)) or (is_structural(no) and is_zero(yes)):
            return STRUCTURAL_ZERO
        if is_known(yes) and is_known(no) and yes.tobytes() == no.tobytes():
            return yes
        kind = vector(yes.dtype)
        text = f"select {vector(FLAG)} {flag.name}, {kind} {operand(yes)}, {kind} {operand(no)}"
        return Number(self.line(text), yes.dtype)

    def both(self, a, b):
        """Where both flags hold; None stands for everywhere."""
        return b if a is None else a if b is None else self(FLAG, "and", a, b)

    def intrinsic(self, name, *numbers, to=None) -> Number:
        """One of LLVM's own functions of vectors."""
        kinds = [vector(number.dtype) for number in numbers]
        dtype = numbers[0].dtype if to is None else to
        types = [each for each in (to, numbers[0].dtype) if each is not None]
        # LLVM's whole numbers have no sign
        short = [f"v{lanes()}{each.kind.replace('u', 'i')}{8 * each.itemsize}" for each in types]
        name = ".".join(["@llvm", name, *short])
        self.declared.add(f"declare {vector(dtype)} {name}({', '.join(kinds)})")
        given = ", ".join(f"{k} {operand(x)}" for k, x in zip(kinds, numbers, strict=True))
        return Number(self.line(f"call {vector(dtype)} {name}({given})"), dtype)

    def library(self, name, *numbers) -> Number:
        """A function of the C library, lane by lane."""
        dtype = np.dtype(float)
        if any(number.dtype != dtype for number in numbers):
            raise UnsupportedError(f"{name} of {numbers[0].dtype}")
        if not locate(name):
            raise UnsupportedError(f"{name}, which this system's C library does not have")
        kinds = ", ".join(["double"] * len(numbers))
        self.declared.add(f"declare double @{name}({kinds}) nounwind willreturn memory(none)")
        kind, result = vector(dtype), "poison"
        for lane in range(lanes()):
            parts = [
                self.line(f"extractelement {kind} {operand(number)}, i64 {lane}")
                for number in numbers
            ]
            value = self.line(f"call double @{name}({', '.join(f'double {p}' for p in parts)})")
            result = self.line(f"insertelement {kind} {result}, double {value}, i64 {lane}")
        return Number(result, dtype)

    def least(self, a, b) -> str:
        """The smaller of two indices."""
        smaller = self.line(f"icmp slt i64 {a}, {b}")
        return self.line(f"select i1 {smaller}, i64 {a}, i64 {b}")

    def mark(self):
        """How far the program has come."""
        return len(self.lines), len(self.places)

    def back_to(self, mark):
        """Forget what was written since."""
        del self.lines[mark[0] :], self.places[mark[1] :]

    def table(self, values: np.ndarray) -> str:
        """The address of numbers that are part of the program."""
        data = np.ascontiguousarray(values).tobytes()
        if data not in self.tables:
            self.tables[data] = f"@table{len(self.tables)}"
        return self.tables[data]

    def _table_lines(self):
        for data, name in self.tables.items():
            text = data.hex("\\").upper()
            yield f'{name} = private constant [{len(data)} x i8] c"\\{text}", align {LINE}'

    # Variables and loops.

    def variable(self, dtype) -> str:
        """A place for a number that a loop changes; LLVM makes a register of it."""
        name = f"%place{next(self.names)}"
        self.places.append(f"{name} = alloca {vector(dtype)}")
        return name

    def put(self, place, number):
        """Set a variable."""
        self.lines.append(f"store {vector(number.dtype)} {operand(number)}, ptr {place}")

    def get(self, place, dtype) -> Number:
        """A variable's value."""
        return Number(self.line(f"load {vector(dtype)}, ptr {place}"), dtype)

    def index(self, value: int) -> str:
        """A place for an index, the same in all lanes, that branches change."""
        name = f"%place{next(self.names)}"
        self.places.append(f"{name} = alloca i64")
        self.set_index(name, value)
        return name

    def set_index(self, place, value: int):
        """Set an index."""
        self.lines.append(f"store i64 {value}, ptr {place}")

    def get_index(self, place) -> str:
        """The index."""
        return self.line(f"load i64, ptr {place}")

    def repeat(self, body):
        """The body, again and again, until the flag it returns holds in no lane."""
        top, end = f"top{next(self.names)}", f"end{next(self.names)}"
        self.lines += [f"br label %{top}", f"{top}:"]
        bits = self.line(f"bitcast {vector(FLAG)} {operand(body())} to i{lanes()}")
        more = self.line(f"icmp ne i{lanes()} {bits}, 0")
        self.lines += [f"br i1 {more}, label %{top}, label %{end}", f"{end}:"]

    def count(self, limit, step, body):
        """The body for each index 0, step, 2 step, ... below the limit."""
        top, end = f"top{next(self.names)}", f"end{next(self.names)}"
        place = f"%place{next(self.names)}"
        self.places.append(f"{place} = alloca i64")
        self.lines += [f"store i64 0, ptr {place}", f"br label %{top}", f"{top}:"]
        self._turn(place, top, end, step, limit, body)

    def where_any(self, flag, body):
        """The body, if the flag holds in some lane."""
        bits = self.line(f"bitcast {vector(FLAG)} {operand(flag)} to i{lanes()}")
        self.when(self.line(f"icmp ne i{lanes()} {bits}, 0"), body)

    def when(self, holds, body):
        """The body, if a condition that all lanes share holds."""
        top, end = f"top{next(self.names)}", f"end{next(self.names)}"
        self.lines += [f"br i1 {holds}, label %{top}, label %{end}", f"{top}:"]
        body()
        self.lines += [f"br label %{end}", f"{end}:"]

    def between(self, first, limit, body, step=1):
        """The body for each index from the first to below the limit; there may be none."""
        top, end = f"top{next(self.names)}", f"end{next(self.names)}"
        place = f"%place{next(self.names)}"
        self.places.append(f"{place} = alloca i64")
        some = self.line(f"icmp slt i64 {first}, {limit}")
        self.lines += [
            f"store i64 {first}, ptr {place}",
            f"br i1 {some}, label %{top}, label %{end}",
        ]
        self.lines.append(f"{top}:")
        self._turn(place, top, end, step, limit, body)

    def _turn(self, place, top, end, step, limit, body):
        index = self.line(f"load i64, ptr {place}")
        body(index)
        following = self.line(f"add i64 {index}, {step}")
        more = self.line(f"icmp slt i64 {following}, {limit}")
        self.lines += [
            f"store i64 {following}, ptr {place}",
            f"br i1 {more}, label %{top}, label %{end}",
            f"{end}:",
        ]


class Array:
    """One of the arrays that the program is given, by address and strides.

    Chains come first, then turns if there are any, then the entries, which lie side by side. A
    stride of zero makes all turns the same.
    """

    def __init__(self, code: Code, index: int, aval):
        self.code, self.dtype = code, aval.dtype
        self.size = int(np.prod(aval.shape))
        # NumPy keeps a flag in a byte
        self.kind = "i8" if self.dtype == FLAG else element(self.dtype)
        self.base, self.chain_stride, self.turn_stride = (
            code.line(f"load {kind}, ptr {code.line(f'getelementptr i64, ptr %arrays, i64 {at}')}")
            for kind, at in (("ptr", 3 * index), ("i64", 3 * index + 1), ("i64", 3 * index + 2))
        )

    def constant(self, entry) -> Number:
        """An entry that is the same for all chains."""
        address = self.code.line(f"getelementptr {self.kind}, ptr {self.base}, i64 {entry}")
        return self._number([self.code.line(f"load {self.kind}, ptr {address}")] * lanes())

    def load(self, entry, chains, turn="0") -> Number:
        """An entry of the chains in the lanes, at a turn."""
        return self._number(
            [
                self.code.line(f"load {self.kind}, ptr {self._address(entry, chain, turn)}")
                for chain in chains
            ]
        )

    def store(self, number, entry, chains, turn="0"):
        """Set an entry."""
        text = operand(number)
        if self.dtype == FLAG:
            text = self.code.line(f"zext {vector(FLAG)} {text} to {self._vector}")
        for lane, chain in enumerate(chains):
            part = self.code.line(f"extractelement {self._vector} {text}, i64 {lane}")
            address = self._address(entry, chain, turn)
            self.code.lines.append(f"store {self.kind} {part}, ptr {address}")

    @property
    def _vector(self):
        return f"<{lanes()} x {self.kind}>"

    def _address(self, entry, chain, turn):
        row = self.code.line(f"mul i64 {chain}, {self.chain_stride}")
        column = self.code.line(f"mul i64 {turn}, {self.turn_stride}")
        start = self.code.line(f"add i64 {row}, {column}")
        index = self.code.line(f"add i64 {start}, {entry}")
        return self.code.line(f"getelementptr {self.kind}, ptr {self.base}, i64 {index}")

    def _number(self, parts):
        name = "poison"
        for lane, part in enumerate(parts):
            text = f"insertelement {self._vector} {name}, {self.kind} {part}, i64 {lane}"
            name = self.code.line(text)
        if self.dtype == FLAG:
            name = self.code.line(f"trunc {self._vector} {name} to {vector(FLAG)}")
        return Number(name, self.dtype)
