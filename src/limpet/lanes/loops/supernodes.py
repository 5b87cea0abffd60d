"""Factors by supernodes: dense blocks of columns, and tiles that they are taken from the rest by.

Either L with L L^T = K, or L and the transpose of U with L U = A, where the diagonal of L is one;
of diagonals the reciprocals. A matrix is one array with the entries on and below the diagonal, row
by row; a matrix that is not symmetric has those of its transpose behind them.
"""

import numpy as np

from limpet.lanes.arithmetic import add, multiply, subtract
from limpet.lanes.loops.deferred import Unwritten
from limpet.lanes.loops.memory import Stored, as_large, fill, new, plus, read, times
from limpet.lanes.loops.moves import part
from limpet.lanes.matrices import DOUBLE, inverse
from limpet.lanes.plans import Plan
from limpet.lanes.supernodes import COLUMNS, ROWS, TILE, Supernodes


def write_supernodes(code, plan: Plan, tables: Supernodes, matrix) -> Stored:
    """The factor of a matrix, which is changed step by step."""
    room = new(code, (plan.size + tables.spare,), DOUBLE)
    factor = part(code, room, (slice(0, plan.size),))
    if isinstance(matrix, Unwritten):
        matrix.into(factor)
    else:
        fill(code, factor, as_large(code, matrix))
    for k in range(tables.spare):
        room.put(code, (plan.size + k,), np.float64(0))
    _Elimination(code, plan, tables, room).write()
    return factor


class _Elimination:
    """The loop over supernodes. A product is one of a row and another: `shift`s tell of which."""

    def __init__(self, code, plan: Plan, tables: Supernodes, room: Stored):
        self.code, self.root, self.tables, self.room = code, plan.root, tables, room
        self.last = plan.size + tables.spare - 1
        # L and itself; or L and U, and U and L: what is multiplied from the left, and its result
        self.sides = ((0, tables.size), (tables.size, 0)) if tables.both else ((0, 0),)
        self.sums = [code.variable(DOUBLE) for _ in range(max(TILE, ROWS * len(self.sides)))]

    def write(self):
        """All supernodes, one after the other."""
        self.code.count(len(self.tables.nodes), 1, self._supernode)

    def _supernode(self, k):
        code, table = self.code, self.tables.nodes
        at = times(code, k, table.shape[1])
        first, columns, rows, targets = (
            read(code, table, plus(code, at, i)) for i in range(table.shape[1])
        )
        end = plus(code, first, rows)
        code.between(0, columns, lambda c: self._column(first, end, c))
        below = plus(code, first, columns)

        def group(a):
            """A tile's rows, with all columns up to the diagonal."""
            done = code.line(f"sub i64 {a}, {below}")
            # before it are those of 4, 8, 12, ... columns
            square = code.line(f"mul i64 {done}, {plus(code, done, ROWS)}")
            before = code.line(f"lshr i64 {square}, 1")
            left = self._rows(a, ROWS)

            def tile(b):
                within = code.line(f"sub i64 {b}, {below}")
                at = plus(code, targets, plus(code, before, times(code, within, ROWS)))
                self._tile(left, self._rows(b, COLUMNS), columns, at)

            code.between(below, plus(code, a, ROWS), tile, COLUMNS)

        code.between(below, end, group, ROWS)

    def _rows(self, first, count):
        """Where rows of a supernode begin."""
        return [read(self.code, self.tables.rows, plus(self.code, first, i)) for i in range(count)]

    def _at(self, row, column, shift):
        return self.room.at(self.code, (self._place(row, column, shift),))

    def _place(self, row, column, shift):
        return plus(self.code, plus(self.code, row, column), shift)

    def _take(self, place, left, right):
        """One product less."""
        code = self.code
        product = multiply(code, DOUBLE, left, right)
        code.put(place, subtract(code, DOUBLE, code.get(place, DOUBLE), product))

    def _column(self, first, end, c):
        """A column of a supernode: the diagonal, and all below."""
        code, (mine, other) = self.code, self.sides[-1]
        (pivot,) = self._rows(plus(code, first, c), 1)
        total = self.sums[0]
        code.put(total, self._at(pivot, c, mine))

        def square(k):
            self._take(total, self._at(pivot, k, mine), self._at(pivot, k, other))

        code.between(0, c, square)
        share = inverse(code, code.get(total, DOUBLE), self.root)
        self.room.put(code, (self._place(pivot, c, mine),), share)

        def rows(t):
            some = self._rows(t, ROWS)
            places = [(row, *side) for side in self.sides for row in some]
            sums = self.sums[: len(places)]
            for place, (row, side, _) in zip(sums, places, strict=True):
                code.put(place, self._at(row, c, side))

            def product(k):
                right = {other: self._at(pivot, k, other) for _, other in self.sides}
                for place, (row, side, other) in zip(sums, places, strict=True):
                    self._take(place, self._at(row, k, side), right[other])

            code.between(0, c, product)
            for place, (row, side, _) in zip(sums, places, strict=True):
                number = code.get(place, DOUBLE)
                if side == 0:  # the diagonal of U stays as it is
                    number = multiply(code, DOUBLE, number, share)
                self.room.put(code, (self._place(row, c, side),), number)

        code.between(plus(code, plus(code, first, c), 1), end, rows, ROWS)

    def _tile(self, left, right, columns, at):
        """Take the products of some rows and others from the entries at `at` of the table."""
        code, sums = self.code, self.sums[:TILE]
        targets = [read(code, self.tables.targets, plus(code, at, i)) for i in range(TILE)]
        for side, other in self.sides:
            for place in sums:
                code.put(place, np.float64(0))

            def products(c, side=side, other=other):
                a = [self._at(row, c, side) for row in left]
                b = [self._at(row, c, other) for row in right]
                for place, (x, y) in zip(sums, ((x, y) for x in a for y in b), strict=True):
                    product = multiply(code, DOUBLE, x, y)
                    code.put(place, add(code, DOUBLE, code.get(place, DOUBLE), product))

            code.between(0, columns, products)
            for place, target in zip(sums, targets, strict=True):
                if side:  # what is beyond the edge is there once
                    target = code.least(plus(code, target, side), self.last)
                before = self.room.at(code, (target,))
                rest = subtract(code, DOUBLE, before, code.get(place, DOUBLE))
                self.room.put(code, (target,), rest)
