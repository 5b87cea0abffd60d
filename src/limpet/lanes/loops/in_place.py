"""Arrays that are written over others, which nobody needs any more.

What was just read is in the cache, and fresh memory is not: where arrays are larger than a cache,
to write over one takes half of the time. And the workspace is smaller.
"""

from collections import Counter
from collections.abc import Sequence

from limpet.lanes.loops.memory import Computed, Large, Stored, fill, room, store, strides_of
from limpet.lanes.loops.workspace import Buffer


def store_over(code, value: Computed) -> Stored:
    """The array in the workspace, over one that nothing but its own entries needs."""
    for buffer in value.buffers:
        if buffer.users == 1 and _fits(value, buffer):
            made = _taken(code, value, buffer)
            fill(code, made, value)
            return made
    return store(code, value)


def last_needs(values: Sequence) -> Counter[Buffer]:
    """How often parts of the workspace are needed by values that are about to be let go."""
    return Counter(buffer for value in values for buffer in getattr(value, "buffers", ()))


def place_for(code, value, others: Sequence) -> Stored | None:
    """Where a loop may keep an array that begins as this value: where that is, or what it reads.

    None, if it is needed after the loop began: also by `others`, which the loop begins with, too.
    """
    if not isinstance(value, Stored | Computed):
        return None
    needed = {buffer for other in others for buffer in getattr(other, "buffers", ())}
    for buffer in value.buffers:
        last = code.dying.get(buffer) == buffer.users and buffer not in needed
        if last and _fits(value, buffer):
            return value if isinstance(value, Stored) else _taken(code, value, buffer)
    return None


def _fits(value: Large, buffer: Buffer) -> bool:
    """Whether the array can be where another is, each entry written where it is read."""
    if buffer.size != room(value.shape, value.dtype):
        return False
    if isinstance(value, Stored):
        return value.is_whole and not value.also
    return isinstance(value, Computed) and buffer not in value.elsewhere


def _taken(code, value: Large, buffer: Buffer) -> Stored:
    made = Stored(value.shape, value.dtype, code.workspace.take(buffer), strides_of(value.shape))
    made.zero = value.zero
    return made
