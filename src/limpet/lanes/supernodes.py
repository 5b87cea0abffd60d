"""Supernodes: columns of a factor that are eliminated together, for they have the same rows below.

Most products of a factor are between rows of one supernode. They are computed in tiles of a few
rows by a few columns: an entry that is read serves several products, and what a tile takes from the
rest of the matrix is taken once for all columns of the supernode.
"""

import dataclasses
import itertools

import numpy as np

ROWS, COLUMNS = 4, 2  # of a tile: its sums, and what they are made of, fit 16 registers
TILE = ROWS * COLUMNS
# Columns of a supernode; wider ones are parted. Not measured: with fewer, more is taken from the
# rest; with more, there are fewer tiles, and more is left to the columns themselves.
WIDEST = 8


@dataclasses.dataclass(frozen=True, eq=False)
class Supernodes:
    """Tables of the supernodes of a factor, in their order.

    The array that they are worked on in has `spare` more entries than the factor, for what tiles
    have beyond the edge of a supernode.
    """

    # of each: where it begins among `rows`, its columns, all its rows, and where it begins among
    # `targets`
    nodes: np.ndarray
    # of each row, its entry in the first column: of the diagonal block, then those below; the last
    # is there several times, so that tiles of the last rows are like others
    rows: np.ndarray
    targets: np.ndarray  # of each tile on or below the diagonal, row by row: what it is taken from
    size: int  # entries of the matrix on and below the diagonal
    both: bool  # that is followed by its transpose: L and U, not L alone

    spare = TILE

    @property
    def key(self) -> bytes:
        """What it is: supernodes of one key are the same."""
        tables = self.nodes, self.rows, self.targets
        shape = np.array([len(table) for table in tables] + [self.size, self.both])
        return b"".join(table.tobytes() for table in (shape, *tables))


def supernodes_of(rows: list[np.ndarray], both: bool) -> Supernodes:
    """Those of a factor, given the columns of each row, the diagonal last."""
    m, lengths = len(rows), np.array([len(row) for row in rows])
    size, total = int(lengths.sum()), int(lengths.sum()) * (2 if both else 1)
    row_of, column_of = np.repeat(np.arange(m), lengths), np.concatenate(rows)
    entries = row_of * m + column_of  # in order
    by_column = np.lexsort((row_of, column_of))
    ends = np.searchsorted(column_of[by_column], np.arange(m + 1))
    columns = [row_of[by_column[i:j]] for i, j in itertools.pairwise(ends)]

    def entry(row, column):
        return np.searchsorted(entries, row * m + column)

    nodes, bases, targets = [], [], []
    begin = 0
    while begin < m:
        end = begin + 1
        while end < min(m, begin + WIDEST) and _continues(columns[end - 1], columns[end]):
            end += 1
        mine = columns[begin]
        below = mine[end - begin :]
        nodes.append((len(bases), end - begin, len(mine), len(targets)))
        bases.extend(entry(mine, begin))
        bases.extend([bases[-1]] * (ROWS - 1))
        targets.extend(_tiles(below, entry, total))
        begin = end
    targets.append(total)  # no table is empty
    nodes, bases, targets = (np.asarray(table, np.int32) for table in (nodes, bases, targets))
    return Supernodes(nodes, bases, targets, size, both)


def _continues(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether a column has the rows of the one before it, but for that one's diagonal."""
    return len(before) == len(after) + 1 and before[1] == after[0]


def _tiles(rows: np.ndarray, entry, total: int) -> np.ndarray:
    """The entries that the tiles of some rows are taken from, tile by tile."""
    found = [np.zeros(0, int)]
    for first in range(0, len(rows), ROWS):
        for side in range(0, first + ROWS, COLUMNS):
            a = first + np.repeat(np.arange(ROWS), COLUMNS)
            b = side + np.tile(np.arange(COLUMNS), ROWS)
            inside = (b <= a) & (a < len(rows))
            tile = total + np.arange(TILE)
            tile[inside] = entry(rows[a[inside]], rows[b[inside]])
            found.append(tile)
    return np.concatenate(found)
