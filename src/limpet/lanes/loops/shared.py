"""Arrays that all lanes share, though they depend on what the program is given.

Such are the data of a model, and what is made of them alone: the gradients of a linear model, and
products of these. They are computed once, before the first chain, and have one number for each
entry, so that they take an eighth of the room that arrays of lanes do.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from limpet.lanes.code import FLAG, operand, vector
from limpet.lanes.loops.memory import (
    Shared,
    element_in_memory,
    is_large,
    over,
    row_major,
    splat,
)
from limpet.lanes.loops.workspace import Buffer
from limpet.lanes.rules import is_key

# Entries of an array that is kept from the beginning to the end: of doubles, the second cache of
# many processors (2 MB). Larger ones are computed as they are read, if they can be.
MOST_ENTRIES = 2**18


@dataclasses.dataclass(eq=False)
class Once(Shared):
    """An array in a part of the workspace that nothing else will ever have."""

    shape: tuple[int, ...]
    dtype: np.dtype
    room: Buffer
    zero: np.ndarray | None = None

    def at(self, code, index):
        """The entry at an index."""
        # no load that LLVM may move before what writes it
        return splat(code, self.dtype, self._base(code), row_major(code, self.shape, index), "")

    def put(self, code, index, number):
        """Set the entry at an index."""
        kind, base = element_in_memory(self.dtype), self._base(code)
        text = code.line(f"extractelement {vector(self.dtype)} {operand(number)}, i64 0")
        if self.dtype == FLAG:
            text = code.line(f"zext i1 {text} to i8")
        place = row_major(code, self.shape, index)
        at = code.line(f"getelementptr {kind}, ptr {base}, i64 {place}")
        code.lines.append(f"store {kind} {text}, ptr {at}")

    def _base(self, code):
        return code.line(f"getelementptr i8, ptr %workspace, i64 {self.room.offset}")


@contextlib.contextmanager
def beforehand(code) -> Iterator[None]:
    """Lines that are written inside are computed once, before those of any lanes."""
    code.lines, code.once = code.once, code.lines
    try:
        yield
    finally:
        code.lines, code.once = code.once, code.lines


def are_shared(code, values) -> bool:
    """Whether all lanes have the same arrays, some of them large."""
    return any(map(is_large, values)) and all(_is_shared(code, value) for value in values)


def _is_shared(code, value) -> bool:
    if is_large(value) or is_key(value):
        return isinstance(value, Shared)
    return all(isinstance(x, np.generic) or x.name in code.common for x in value.flat)


def share(code, value):
    """What was computed beforehand, for all lanes."""
    if not is_large(value):
        code.common.update(x.name for x in value.flat if not isinstance(x, np.generic))
        return value
    if isinstance(value, Shared):
        return value
    room = code.workspace.keep(math.prod(value.shape) * value.dtype.itemsize)
    made = Once(value.shape, value.dtype, room, value.zero)
    over(code, made.shape, lambda index: made.put(code, index, value.at(code, index)))
    code.workspace.retain(value)
    code.workspace.release(value)
    return made
