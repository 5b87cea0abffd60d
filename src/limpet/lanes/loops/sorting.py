"""Sorting: the same exchanges for all lanes, by Batcher's network.

Which entries are compared does not depend on what they are, so lanes stay together. Of equal ones
the first stays first, for places count where keys do not differ.
"""

import functools

import numpy as np

from limpet.lanes.arithmetic import compare
from limpet.lanes.code import FLAG
from limpet.lanes.loops.matrices import one_of_batch
from limpet.lanes.loops.memory import as_large, fill, new, over, plus, read_index, spread, times
from limpet.lanes.loops.moves import view
from limpet.lanes.loops.places import INDEX
from limpet.lanes.loops.program import LOOPS
from limpet.lanes.rules import RULES, in_memory


@functools.cache
def network(size: int) -> np.ndarray:
    """Pairs of places to be put in order, one after the other: Knuth's algorithm 5.2.2M."""
    pairs = [
        (k, k + gap)
        for power in _powers(size)
        for gap in (power >> shift for shift in range(power.bit_length()))
        for first in range(gap % power, size - gap, 2 * gap)
        for k in range(first, min(first + gap, size - gap))
        if k // (2 * power) == (k + gap) // (2 * power)
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _powers(size):
    return [2**k for k in range((size - 1).bit_length())] if size > 1 else []


def _sort(code, equation, values, dimension, num_keys):
    if not values[0].size:
        return values
    made = []
    for value, variable in zip(values, equation.invars, strict=True):
        room = new(code, variable.aval.shape, variable.aval.dtype)
        fill(code, room, as_large(code, value))
        made.append(room)
    last = [view(code, room, lambda a: np.moveaxis(a, dimension, -1)) for room in made]
    *outer, size = last[0].shape
    place = new(code, (size,), INDEX)
    pairs = network(size)
    if not len(pairs):
        return made
    table = code.table(pairs)

    def row(index):
        arrays = [*(one_of_batch(code, array, index) for array in last), place]
        over(code, (size,), lambda k: place.put(code, k, _number(code, *k)))

        def exchange(p):
            twice = times(code, p, 2)
            at = [(read_index(code, table, plus(code, twice, k)),) for k in range(2)]
            numbers = [[array.at(code, k) for k in at] for array in arrays]
            swap = _wrong(code, [*numbers[:num_keys], numbers[-1]])
            for array, (first, second) in zip(arrays, numbers, strict=True):
                array.put(code, at[0], code.select(swap, second, first))
                array.put(code, at[1], code.select(swap, first, second))

        code.count(len(pairs), 1, exchange)

    over(code, outer, row)
    return made


def _number(code, k):
    return np.int64(k) if isinstance(k, int) else spread(code, INDEX, k)


def _wrong(code, keys):
    """Whether the second comes before the first, by the first keys that differ."""
    wrong = np.False_
    for first, second in reversed(keys):
        before, after = _before(code, second, first), _before(code, first, second)
        not_after = code(FLAG, "xor", after, np.True_)
        wrong = code(FLAG, "or", before, code(FLAG, "and", not_after, wrong))
    return wrong


def _before(code, a, b):
    """Whether a comes before b; NaN comes last."""
    less = compare("lt")(code, FLAG, a, b)
    if a.dtype.kind != "f":
        return less
    number, none = code(FLAG, "fcmp ord", a, a), code(FLAG, "fcmp uno", b, b)
    return code(FLAG, "or", less, code(FLAG, "and", number, none))


RULES["sort"] = in_memory(honours=("dimension", "num_keys"), ignores=("is_stable",))
LOOPS["sort"] = _sort
