"""Products of matrices."""

import functools
import itertools
import math

import numpy as np

from limpet.lanes.arithmetic import add, multiply
from limpet.lanes.code import FLAG, UnsupportedError
from limpet.lanes.loops.deferred import Deferred, computed, entries
from limpet.lanes.loops.memory import (
    Computed,
    Large,
    Stored,
    as_large,
    needed,
    new,
    over,
    plus,
    read_index,
    row_major,
    store,
    times,
)
from limpet.lanes.loops.program import LOOPS, one
from limpet.lanes.loops.sums import total

# Entries of a product at once: eight sums keep the processor's adders busy.
AT_ONCE = 8
ROWS, COLUMNS = 2, 4


class _Factor:
    """One side of a product: its axes of the batch, those that remain, and those summed over."""

    def __init__(self, value: Large, batch, summed):
        self.value, self.batch, self.summed = value, batch, summed
        self.free = [k for k in range(value.ndim) if k not in (*batch, *summed)]

    def index(self, batch, free, summed) -> list:
        """Where an entry is."""
        places = zip((*self.batch, *self.free, *self.summed), (*batch, *free, *summed), strict=True)
        at = dict(places)
        return [at[k] for k in range(self.value.ndim)]

    def at(self, code, batch, free, summed):
        """An entry."""
        return self.value.at(code, self.index(batch, free, summed))

    def shape(self, axes):
        """The lengths of some axes."""
        return [self.value.shape[k] for k in axes]


@one
def _product(code, out, a, b, dimension_numbers):
    (over_a, over_b), (batch_a, batch_b) = dimension_numbers
    a, b = as_large(code, a), as_large(code, b)
    if len({a.dtype, b.dtype, out.dtype}) > 1 or out.dtype == FLAG:
        raise UnsupportedError("a product of matrices of several types")
    left, right = _Factor(a, batch_a, over_a), _Factor(b, batch_b, over_b)
    if not over_a:
        return _outer(code, out, left, right)
    # what is read more than once is computed once
    repeated = math.prod(right.shape(right.free)) > COLUMNS, math.prod(left.shape(left.free)) > ROWS
    for side, often in zip((left, right), repeated, strict=True):
        if often and type(side.value) is Computed and side.value.zero is None:
            side.value = store(code, side.value)
    for first, second in ((left, right), (right, left)):
        if first.value.zero is not None:
            if _reads(first, second) >= second.value.size:
                second.value = computed(second.value)
            return _sparse_product(code, out, first, second, first is right)
    left.value, right.value = computed(left.value), computed(right.value)
    return Deferred(
        out.shape,
        out.dtype,
        lambda index: _sums(code, out, left, right, [index])[0],
        needed(left.value, right.value),
        several=functools.partial(_sums, code, out, left, right),
        stored=lambda: _dense_product(code, out, left, right),
    )


def _reads(first, second) -> int:
    """How often entries of `second` are read in a product with the sparse `first`."""
    return int(np.sum(~first.value.zero)) * math.prod(second.shape(second.free))


def _sums(code, out, left, right, indices) -> list:
    """Some entries of a product."""
    batch, rows = len(left.batch), len(left.free)

    def terms(place):
        pairs = (
            (
                left.at(code, index[:batch], index[batch : batch + rows], place),
                right.at(code, index[:batch], index[batch + rows :], place),
            )
            for index in indices
        )
        return [multiply(code, out.dtype, *pair) for pair in pairs]

    zero = out.dtype.type(0)
    return total(code, left.shape(left.summed), out.dtype, add, zero, terms, len(indices))


def _outer(code, out, left, right):
    """A product without sums: entry by entry."""
    batch, rows = len(left.batch), len(left.free)

    def number(index):
        of_left = left.at(code, index[:batch], index[batch : batch + rows], ())
        of_right = right.at(code, index[:batch], index[batch + rows :], ())
        return multiply(code, out.dtype, of_left, of_right)

    zero = None
    if left.value.zero is not None and right.value.zero is None:
        mask = np.transpose(left.value.zero, (*left.batch, *left.free))
        zero = np.broadcast_to(mask.reshape(*mask.shape, *[1] * len(right.free)), out.shape)
    elif right.value.zero is not None and left.value.zero is None:
        mask = np.transpose(right.value.zero, (*right.batch, *right.free))
        shape = (*mask.shape[:batch], *[1] * rows, *mask.shape[batch:])
        zero = np.broadcast_to(mask.reshape(shape), out.shape)
    return Computed(out.shape, out.dtype, number, needed(left.value, right.value), zero)


def _blocks(code, size, most, body, begin=0):
    """The body for blocks of an axis: the first index, and how many there are, known to Python.

    They begin with the one that has this index.
    """
    whole = size // most * most
    if whole and begin != 0:
        first = code.line(f"and i64 {begin}, -{most}")
        code.between(first, whole, lambda first: body(first, most), most)
    elif whole:
        code.count(whole, most, lambda first: body(first, most))
    if size > whole:
        body(whole, size - whole)


def _dense_product(code, out, left, right):
    made, summed = new(code, out.shape, out.dtype), left.shape(left.summed)
    *rows, last_row = left.shape(left.free) or [1]
    *columns, last_column = right.shape(right.free) or [1]
    mirrored = _is_square(left, right)

    def block(batch, row, column, first_row, height, first_column, width):
        at_rows = [(*row, plus(code, first_row, i))[: len(left.free)] for i in range(height)]
        at_columns = [
            (*column, plus(code, first_column, j))[: len(right.free)] for j in range(width)
        ]

        def terms(place):
            of_left = [left.at(code, batch, at, place) for at in at_rows]
            of_right = [right.at(code, batch, at, place) for at in at_columns]
            pairs = itertools.product(of_left, of_right)
            return [multiply(code, out.dtype, *pair) for pair in pairs]

        zero = out.dtype.type(0)
        sums = total(code, summed, out.dtype, add, zero, terms, height * width)
        for (i, j), number in zip(itertools.product(at_rows, at_columns), sums, strict=True):
            made.put(code, (*batch, *i, *j), number)
            if mirrored and height == ROWS:
                made.put(code, (*j, *i), number)

    # a vector is read once for as many rows as there are sums
    most_rows = AT_ONCE if last_column == 1 else ROWS
    most_columns = AT_ONCE if last_row == 1 else COLUMNS

    def matrix(index):
        batch, row = index[: len(left.batch)], index[len(left.batch) : len(left.batch) + len(rows)]
        column = index[len(left.batch) + len(rows) :]

        def of_rows(first, height):
            then = functools.partial(block, batch, row, column, first, height)
            # a last row alone is summed in another order, and so as a whole
            begin = first if mirrored and height == ROWS else 0
            _blocks(code, last_column, most_columns, then, begin)

        _blocks(code, last_row, most_rows, of_rows)

    over(code, [*left.shape(left.batch), *rows, *columns], matrix)
    return made


def _is_square(left, right) -> bool:
    """Whether a matrix is multiplied by its own transpose, so that half of the entries will do."""
    a, b = left.value, right.value
    if left.batch or len(left.free) != 1 or len(right.free) != 1:
        return False
    if not isinstance(a, Stored) or not isinstance(b, Stored) or a.buffer is not b.buffer:
        return False
    rows, columns = (
        [(side.value.shape[k], side.value.strides[k]) for k in (*side.free, *side.summed)]
        for side in (left, right)
    )
    return rows == columns and a.offset == b.offset


def _sparse_product(code, out, first, second, swapped):
    """A product of which one side is sparse: for each of its rows, over what is not zero.

    What is zero must not depend on the batch. Of the axes it does not depend on, those that are
    summed over are loops inside.
    """
    value = first.value
    varying = [k for k in range(value.ndim) if _varies(value.zero, k)]
    if any(k in first.batch for k in varying):
        value.zero, second.value = None, computed(second.value)
        return _dense_product(code, out, *((second, first) if swapped else (first, second)))
    made = new(code, out.shape, out.dtype)
    rows = [k for k in varying if k in first.free]
    sums = [k for k in varying if k in first.summed]
    rest = [k for k in first.summed if k not in sums]
    mask = value.zero[tuple(slice(None) if k in varying else 0 for k in range(value.ndim))]
    mask = np.transpose(mask, [varying.index(k) for k in (*rows, *sums)])
    lengths = [value.shape[k] for k in rows], [value.shape[k] for k in sums]
    present = ~mask.reshape(math.prod(lengths[0]), math.prod(lengths[1]))
    ends = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    places_of = np.stack(np.unravel_index(np.nonzero(present)[1], lengths[1] or (1,)), -1)
    ends_at, entries_at = (code.table(table.astype(np.int64)) for table in (ends, places_of))
    others = [k for k in first.free if k not in rows]
    *outer, last = second.shape(second.free) or [1]

    def of_row(index):
        batch, index = index[: len(first.batch)], index[len(first.batch) :]
        row, index = index[: len(rows)], index[len(rows) :]
        other, column = index[: len(others)], index[len(others) :]
        number = row_major(code, lengths[0], row)
        begin, end = (read_index(code, ends_at, plus(code, number, k)) for k in range(2))
        at_first = dict(zip((*first.batch, *rows, *others), (*batch, *row, *other), strict=True))

        def block(first_column, width):
            places = [code.variable(out.dtype) for _ in range(width)]
            for place in places:
                code.put(place, out.dtype.type(0))
            columns = [
                (*column, plus(code, first_column, j))[: len(second.free)] for j in range(width)
            ]

            def take(t):
                at_sum = {
                    k: read_index(code, entries_at, plus(code, times(code, t, len(sums)), i))
                    for i, k in enumerate(sums)
                }

                def term(inner):
                    at = at_first | at_sum | dict(zip(rest, inner, strict=True))
                    a = value.at(code, [at[k] for k in range(value.ndim)])
                    summed = [at[k] for k in first.summed]
                    where = [second.index(batch, column, summed) for column in columns]
                    for place, b in zip(places, entries(code, second.value, where), strict=True):
                        product = multiply(code, out.dtype, a, b)
                        code.put(place, add(code, out.dtype, code.get(place, out.dtype), product))

                over(code, [value.shape[k] for k in rest], term)

            code.between(begin, end, take)
            free = dict(zip((*rows, *others), (*row, *other), strict=True))
            mine = [free[k] for k in first.free]
            for place, where in zip(places, columns, strict=True):
                at = (*batch, *where, *mine) if swapped else (*batch, *mine, *where)
                made.put(code, at, code.get(place, out.dtype))

        _blocks(code, last, AT_ONCE, block)

    shape = [first.shape(first.batch), lengths[0], first.shape(others), outer]
    over(code, list(itertools.chain(*shape)), of_row)
    return made


def _varies(mask, axis) -> bool:
    """Whether a mask depends on an axis."""
    if mask.shape[axis] == 1 or mask.strides[axis] == 0:
        return False
    return not np.array_equal(mask, np.broadcast_to(np.take(mask, [0], axis), mask.shape))


LOOPS["dot_general"] = _product
