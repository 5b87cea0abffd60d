"""Arrays that stay in memory, and the loops over them.

An array of few entries is numbers in registers. A larger one is in memory, each entry a vector of
lanes, so that code grows with operations and not with entries, and an entry at a computed place
costs no more than any other. There are three kinds:

    Stored      in the program's workspace, with strides: slices and transposes of it cost nothing
    Shared      the same for all lanes, an entry one number: a table (Known), what the program is
                given (Given), or made of these before the first chain (Once, in `shared.py`)
    Computed    not there yet: each entry is computed where it is read, so that chains of operations
                become one loop

`store` makes a Stored array of any. An index is a Python number where it is known, else the name of
a number of LLVM's.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from limpet.lanes.code import (
    FLAG,
    Code,
    Number,
    element,
    operand,
    vector,
)
from limpet.lanes.loops.workspace import Buffer
from limpet.lanes.rules import is_key, numbers
from limpet.lanes.width import lanes

REGISTERS = 16  # entries of an array that is kept in registers
UNROLLED = 4  # turns of a loop at once: sums side by side, for one alone waits for each addition

Index = int | str


class Large:
    """An array in memory; `zero` tells which entries are zeros of a sparse matrix, if any are."""

    shape: tuple[int, ...]
    dtype: np.dtype
    zero: np.ndarray | None
    buffers: tuple[Buffer, ...] = ()

    def at(self, code: Code, index: Sequence[Index]) -> Number:
        """The entry at an index."""
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many entries it has."""
        return math.prod(self.shape)


@dataclasses.dataclass(eq=False)
class Stored(Large):
    """An array in the workspace; entries of a place are `strides` apart, counted in entries."""

    shape: tuple[int, ...]
    dtype: np.dtype
    buffer: Buffer
    strides: tuple[int, ...]
    offset: Index = 0
    zero: np.ndarray | None = None
    also: tuple[Buffer, ...] = ()  # where it may be instead, if the offset leads there

    def __post_init__(self):
        self.buffers = (self.buffer, *self.also)

    @property
    def is_whole(self) -> bool:
        """Whether it is all that its part of the workspace has, row by row."""
        return self.offset == 0 and self.strides == strides_of(self.shape)

    def place(self, code, index) -> Index:
        """Where an entry is, counted in entries."""
        place = self.offset
        for k, stride in zip(index, self.strides, strict=True):
            place = plus(code, place, times(code, k, stride))
        return place

    def at(self, code, index, how=""):
        """The entry at an index."""
        address = self._address(code, self.place(code, index))
        name = code.line(f"load {how}{in_memory(self.dtype)}, ptr {address}")
        if self.dtype == FLAG:
            name = code.line(f"trunc {in_memory(FLAG)} {name} to {vector(FLAG)}")
        return Number(name, self.dtype)

    def put_where(self, code, index, flag, number):
        """Set the entry at an index in the lanes where the flag holds."""
        # A load that LLVM may not take away: else it makes one instruction of the choice and the
        # store, which takes some processors (AMD's Zen) ten times as long as both.
        self.put(code, index, code.select(flag, number, self.at(code, index, "volatile ")))

    def put(self, code, index, number):
        """Set the entry at an index."""
        text = operand(number)
        if self.dtype == FLAG:
            text = code.line(f"zext {vector(FLAG)} {text} to {in_memory(FLAG)}")
        address = self._address(code, self.place(code, index))
        code.lines.append(f"store {in_memory(self.dtype)} {text}, ptr {address}")

    def at_lanes(self, code, place: Number) -> Number:
        """The entries at places that differ from lane to lane, counted in entries."""
        kind, name = element_in_memory(self.dtype), "poison"
        for lane, address in enumerate(self._lanes(code, place)):
            part = code.line(f"load {kind}, ptr {address}")
            text = f"insertelement {in_memory(self.dtype)} {name}, {kind} {part}, i64 {lane}"
            name = code.line(text)
        if self.dtype == FLAG:
            name = code.line(f"trunc {in_memory(FLAG)} {name} to {vector(FLAG)}")
        return Number(name, self.dtype)

    def put_lanes(self, code, place: Number, number):
        """Set the entries at places that differ from lane to lane."""
        kind, text = element_in_memory(self.dtype), operand(number)
        if self.dtype == FLAG:
            text = code.line(f"zext {vector(FLAG)} {text} to {in_memory(FLAG)}")
        for lane, address in enumerate(self._lanes(code, place)):
            line = f"extractelement {in_memory(self.dtype)} {text}, i64 {lane}"
            part = code.line(line)
            code.lines.append(f"store {kind} {part}, ptr {address}")

    def _address(self, code, place):
        base = code.line(self.buffer.address())
        return code.line(f"getelementptr {in_memory(self.dtype)}, ptr {base}, i64 {place}")

    def _lanes(self, code, place):
        base = code.line(self.buffer.address())
        for lane in range(lanes()):
            entry = code.line(f"extractelement {vector(place.dtype)} {operand(place)}, i64 {lane}")
            first = code.line(f"mul i64 {entry}, {lanes()}")
            at = code.line(f"add i64 {first}, {lane}")
            yield code.line(f"getelementptr {element_in_memory(self.dtype)}, ptr {base}, i64 {at}")


class Shared(Large):
    """An array that is the same for all lanes, an entry one number."""


@dataclasses.dataclass(eq=False)
class Known(Shared):
    """A table of numbers."""

    values: np.ndarray
    zero: np.ndarray | None = None

    def __post_init__(self):
        self.shape, self.dtype = self.values.shape, self.values.dtype
        self.name = None

    def at(self, code, index):
        """The entry at an index."""
        known = tuple(k for k in index if isinstance(k, int))
        if len(known) == self.ndim:
            return self.values[known]
        if self.name is None:
            self.name = code.table(self.values)
        return splat(code, self.dtype, self.name, row_major(code, self.shape, index))


@dataclasses.dataclass(eq=False)
class Given(Shared):
    """An array that the program is given, at an address."""

    shape: tuple[int, ...]
    dtype: np.dtype
    address: str
    zero: np.ndarray | None = None

    def at(self, code, index):
        """The entry at an index."""
        return splat(code, self.dtype, self.address, row_major(code, self.shape, index))


@dataclasses.dataclass(eq=False)
class Computed(Large):
    """An array whose entries are computed where they are read."""

    shape: tuple[int, ...]
    dtype: np.dtype
    entry: Callable
    buffers: tuple[Buffer, ...] = ()
    zero: np.ndarray | None = None
    by_entry: tuple[Large, ...] | None = None  # arrays of its shape, read at the same index alone

    def at(self, code, index):
        """The entry at an index."""
        return self.entry(index)

    @property
    def elsewhere(self) -> tuple[Buffer, ...]:
        """What is read at other places than that of the entry."""
        if self.by_entry is None:
            return self.buffers
        return tuple(buffer for value in self.by_entry for buffer in _read_elsewhere(value))


def _read_elsewhere(value: Large) -> tuple[Buffer, ...]:
    if isinstance(value, Computed):
        return value.elsewhere
    whole = not isinstance(value, Stored) or value.is_whole
    return () if whole else value.buffers


# Types and indices.


def element_in_memory(dtype) -> str:
    """LLVM's word for a number in memory, where a flag takes a byte."""
    return "i8" if dtype == FLAG else element(dtype)


def in_memory(dtype) -> str:
    """LLVM's word for a number of every lane in memory."""
    return f"<{lanes()} x {element_in_memory(dtype)}>"


def plus(code, a: Index, b: Index) -> Index:
    """The sum of two indices."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return a if b == 0 else b if a == 0 else code.line(f"add i64 {a}, {b}")


def times(code, a: Index, b: int) -> Index:
    """An index times a number."""
    if isinstance(a, int):
        return a * b
    return 0 if b == 0 else a if b == 1 else code.line(f"mul i64 {a}, {b}")


def row_major(code, shape, index) -> Index:
    """The number of an entry, counted row by row."""
    place: Index = 0
    for size, k in zip(shape, index, strict=True):
        place = plus(code, times(code, place, size), k)
    return place


def splat(code, dtype, address, place, how=", !invariant.load !0") -> Number:
    """One number of a table, in every lane."""
    kind = element_in_memory(dtype)
    at = code.line(f"getelementptr {kind}, ptr {address}, i64 {place}")
    part = code.line(f"load {kind}, ptr {at}{how}")
    if dtype == FLAG:
        part = code.line(f"trunc i8 {part} to i1")
    return spread(code, dtype, part)


def read_index(code, address, place) -> str:
    """One index of a table of indices."""
    at = code.line(f"getelementptr i64, ptr {address}, i64 {place}")
    return code.line(f"load i64, ptr {at}, !invariant.load !0")


def read(code, table: np.ndarray, place: Index) -> str:
    """A number of a table of short whole numbers, which becomes part of the program."""
    at = code.line(f"getelementptr i32, ptr {code.table(table)}, i64 {place}")
    return code.line(f"sext i32 {code.line(f'load i32, ptr {at}, !invariant.load !0')} to i64")


def spread(code, dtype, scalar: str) -> Number:
    """A number of LLVM's in every lane."""
    kind = vector(dtype)
    one = code.line(f"insertelement {kind} poison, {element(dtype)} {scalar}, i64 0")
    zeros = f"<{lanes()} x i32> zeroinitializer"
    return Number(code.line(f"shufflevector {kind} {one}, {kind} poison, {zeros}"), dtype)


def strides_of(shape) -> tuple[int, ...]:
    """Strides of an array whose rows are side by side."""
    return tuple(int(math.prod(shape[k + 1 :])) for k in range(len(shape)))


# Loops.


def over(code, shape: Sequence[int], body: Callable, index: tuple[Index, ...] = ()):
    """The body for each index of a shape, the last axis fastest."""
    if len(index) == len(shape):
        body(index)
    elif shape[len(index)] == 1 or (len(index) == len(shape) - 1 and shape[-1] <= UNROLLED):
        for k in range(shape[len(index)]):
            over(code, shape, body, (*index, k))
    elif shape[len(index)] > 0:
        code.count(shape[len(index)], 1, lambda k: over(code, shape, body, (*index, k)))


# Values of either kind: arrays of numbers, or Large.


def is_large(value) -> bool:
    """Whether the array is in memory."""
    return isinstance(value, Large)


def fits(code, shape) -> bool:
    """Whether an array of this shape is kept in registers."""
    return math.prod(shape) <= max(1, code.registers)


def entry(code, value, index):
    """An entry of an array; a single number is every entry."""
    if not is_large(value):
        return value.item() if value.size == 1 else value[tuple(index)]
    return value.at(code, index)


def new(code, shape, dtype) -> Stored:
    """Room for an array."""
    size = math.prod(shape) * lanes() * (1 if dtype == FLAG else dtype.itemsize)
    shape = tuple(int(length) for length in shape)
    return Stored(shape, dtype, code.workspace.allocate(size), strides_of(shape))


def store(code, value) -> Stored:
    """The array in the workspace."""
    if isinstance(value, Stored):
        return value
    made = new(code, value.shape, value_dtype(value))
    made.zero = getattr(value, "zero", None)
    fill(code, made, value)
    return made


def fill(code, made: Stored, value):
    """Write an array into room for it."""
    if not is_large(value):
        for index in np.ndindex(*value.shape):
            made.put(code, index, value[index])
    else:
        over(code, made.shape, lambda index: made.put(code, index, value.at(code, index)))


def value_dtype(value) -> np.dtype:
    """The type of an array's numbers."""
    return value.dtype if is_large(value) else value.flat[0].dtype


def as_large(code, value) -> Large:
    """The array as one in memory; one that is known needs no room."""
    if is_large(value):
        return value
    if all(isinstance(number, np.generic) for number in value.flat):
        dtype = value_dtype(value)
        return Known(np.array([number.item() for number in value.flat], dtype).reshape(value.shape))
    return store(code, value)


def stored_or_known(code, value) -> Stored | Known:
    """The array as one whose entries are there, to be read more than once."""
    value = as_large(code, value)
    return value if isinstance(value, Known) else store(code, value)


def settle(code, value):
    """The array in registers if it is small enough, else as it is."""
    if not is_large(value) or not fits(code, value.shape):
        return value
    return numbers(value.shape, [value.at(code, index) for index in np.ndindex(*value.shape)])


def settle_known(code, values):
    """A table, or numbers if these are few."""
    if is_key(values):
        return values
    values = np.asarray(values)
    if fits(code, values.shape):
        return numbers(values.shape, values.ravel())
    return Known(values)


def needed(*values) -> tuple[Buffer, ...]:
    """The parts of the workspace that values need."""
    return tuple(dict.fromkeys(b for value in values for b in getattr(value, "buffers", ())))
