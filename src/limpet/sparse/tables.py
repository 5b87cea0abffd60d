"""Plans for all algebra of normals of one structure: which constraint involves which unknown.

Normals are a vector of entries. Gram matrices K and their factors L have the entries on and below
the diagonal, row by row, with rows and columns in the order of elimination. A matrix A = G^T H of
two kinds of normals has the same twice: those of A, then those of its transpose. Of factors, the
diagonal has the reciprocals: it is all that is ever divided by.
"""

import dataclasses
import functools
import hashlib

import numpy as np
import scipy.sparse as sp

from limpet.lanes.plans import NONE, RESULT, Plan, plan_of
from limpet.lanes.supernodes import Supernodes, supernodes_of
from limpet.sparse.elimination import MANY_PRODUCTS, best_order, count_products, factor_rows

NOTHING = np.zeros(0, int)


@dataclasses.dataclass(frozen=True, eq=False)
class Structure:
    """Entries of normals, each of one unknown and one constraint, and what follows from them."""

    unknowns: np.ndarray
    constraints: np.ndarray
    n: int
    m: int
    under: "Structure | None" = None  # what it is the lifted one of: eliminated in the same order

    @functools.cached_property
    def digest(self) -> bytes:
        """What it is: structures of one digest are the same."""
        parts = self.unknowns, self.constraints, np.array([self.n, self.m])
        return hashlib.sha256(b"".join(part.astype(np.int64).tobytes() for part in parts)).digest()

    def __eq__(self, other) -> bool:
        return isinstance(other, Structure) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def size(self) -> int:
        """How many entries normals have."""
        return len(self.unknowns)

    @functools.cached_property
    def lifted(self) -> "Structure":
        """That of the lifted surface: each constraint also involves an unknown of its own."""
        every = np.arange(self.m)
        return Structure(
            np.concatenate([self.unknowns, self.n + every]),
            np.concatenate([self.constraints, every]),
            self.n + self.m,
            self.m,
            self,
        )

    @property
    def whole(self) -> "Structure":
        """That of what is factored: more than the normals where these are balanced."""
        return self

    @property
    def below(self) -> "Structure":
        """That of S, of the lifted surface over it."""
        if self.under is None:
            raise ValueError("there is no surface below")
        return self.under

    # Normals times vectors.

    @functools.cached_property
    def by_constraint(self) -> list[np.ndarray]:
        """Entries of each constraint, by unknown."""
        order = np.lexsort((self.unknowns, self.constraints))
        ends = np.searchsorted(self.constraints[order], np.arange(1, self.m))
        return np.split(order, ends)

    @functools.cached_property
    def by_unknown(self) -> list[np.ndarray]:
        """Entries of each unknown, by constraint."""
        order = np.lexsort((self.constraints, self.unknowns))
        return np.split(order, np.searchsorted(self.unknowns[order], np.arange(1, self.n)))

    @functools.cached_property
    def across(self) -> Plan:
        """G^T v, of G and v."""
        pairs = [(entries, self.unknowns[entries]) for entries in self.by_constraint]
        return plan_of(np.arange(self.m), pairs)

    @functools.cached_property
    def along(self) -> Plan:
        """G a, of G and a."""
        pairs = [(entries, self.constraints[entries]) for entries in self.by_unknown]
        return plan_of(np.arange(self.n), pairs)

    @functools.cached_property
    def less_along(self) -> Plan:
        """The point x - G a, of G, a and x."""
        return dataclasses.replace(self.along, sign=-1, start=2, starts=self.along.places)

    @functools.cached_property
    def squares(self) -> Plan:
        """The squared length of each normal, of G."""
        pairs = [(entries, entries) for entries in self.by_constraint]
        return plan_of(np.arange(self.m), pairs, right=0)

    # Gram matrices.

    @functools.cached_property
    def _gram(self) -> sp.csr_matrix:
        """Which constraints have unknowns in common."""
        shape = (self.m, self.n)
        involves = sp.csr_matrix((np.ones(self.size), (self.constraints, self.unknowns)), shape)
        gram = sp.csr_matrix(involves @ involves.T)
        gram.sort_indices()
        return gram

    @functools.cached_property
    def elimination(self) -> np.ndarray:
        """The constraints in the order of elimination."""
        return best_order(self._gram) if self.under is None else self.under.elimination

    @functools.cached_property
    def _rows(self) -> list[np.ndarray]:
        """The columns of the factor's entries, row by row."""
        return factor_rows(self._gram, self.elimination)

    @functools.cached_property
    def _first(self) -> np.ndarray:
        """Where each row of the factor begins; its last entry is the diagonal."""
        return np.concatenate([[0], np.cumsum([len(row) for row in self._rows])])

    @functools.cached_property
    def diagonal(self) -> np.ndarray:
        """Where the diagonal is among the entries of the factor."""
        return self._first[1:] - 1

    @property
    def factor_size(self) -> int:
        """How many entries a factor has."""
        return int(self._first[-1])

    @functools.cached_property
    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of each entry of the factor."""
        lengths = [len(row) for row in self._rows]
        return np.repeat(np.arange(self.m), lengths), np.concatenate(self._rows)

    @functools.cached_property
    def _shared(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each entry (i, j) of the factor, entries of constraints i and j of one unknown."""
        by_constraint = self.by_constraint
        position = np.full(self.n, NONE)
        pairs, row_before = [], NONE
        for row, column in zip(*self._entries, strict=True):
            mine = by_constraint[self.elimination[row]]
            if row != row_before:
                position[:], row_before = NONE, row
                position[self.unknowns[mine]] = mine
            other = by_constraint[self.elimination[column]]
            shared = position[self.unknowns[other]]
            pairs.append((shared[shared != NONE], other[shared != NONE]))
        return pairs

    @functools.cached_property
    def gram(self) -> Plan:
        """G^T G on and below the diagonal, of G; what the factor alone has is zero."""
        return plan_of(np.arange(self.factor_size), self._shared, right=0)

    @functools.cached_property
    def inner(self) -> Plan:
        """G^T H, and then its transpose, of G and H."""
        pairs = [*self._shared, *((b, a) for a, b in self._shared)]
        return plan_of(np.arange(2 * self.factor_size), pairs)

    # Factors. The products that an entry (i, j) of a factor is made of are those of row i and row j
    # before column j.

    @functools.cached_property
    def _products(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each entry (i, j), which entries of row i and row j are in one column before j."""
        position, pairs = np.full(self.m, NONE), []
        for i, columns in enumerate(self._rows):
            position[columns] = self._first[i] + np.arange(len(columns))
            for j in columns:
                others = self._rows[j][:-1]
                mine = position[others]
                theirs = self._first[j] + np.arange(len(others))
                pairs.append((mine[mine != NONE], theirs[mine != NONE]))
            position[columns] = NONE
        return pairs

    @functools.cached_property
    def _is_diagonal(self) -> np.ndarray:
        flags = np.zeros(self.factor_size, bool)
        flags[self.diagonal] = True
        return flags

    @functools.cached_property
    def factor(self) -> Plan:
        """L with L L^T = K, of K."""
        every, (_, columns) = np.arange(self.factor_size), self._entries
        return plan_of(
            every,
            self._products,
            left=RESULT,
            right=RESULT,
            sign=-1,
            starts=every,
            scale=RESULT,
            scales=np.where(self._is_diagonal, NONE, self.diagonal[columns]),
            inverses=self._is_diagonal,
            root=True,
            supernodes=self._supernodes(both=False),
        )

    def _supernodes(self, both: bool) -> Supernodes | None:
        """Those of the factor, if it has so many products that they pay."""
        worth = count_products(self._rows) > MANY_PRODUCTS * self.factor_size
        return supernodes_of(self._rows, both) if worth else None

    @functools.cached_property
    def elimination_of_any(self) -> Plan:
        """L and the transpose of U with L U = A, of A; the diagonal of L, one, is left out.

        Without exchanges of rows: A is near a Gram matrix wherever it is of use.
        """
        size, (_, columns) = self.factor_size, self._entries
        places, pairs, starts, scales, inverses = [], [], [], [], []

        def add(place, products, start, scale, inverse=False):
            places.append(place)
            pairs.append(products)
            starts.append(start)
            scales.append(scale)
            inverses.append(inverse)

        for e in range(size):
            mine, theirs = self._products[e]
            below, above = (mine, size + theirs), (theirs, size + mine)
            if self._is_diagonal[e]:
                add(e, (NOTHING, NOTHING), NONE, NONE)  # a place that nothing is read from
                add(size + e, above, size + e, NONE, inverse=True)
            else:
                add(e, below, e, size + self.diagonal[columns[e]])
                add(size + e, above, size + e, NONE)
        return plan_of(
            places,
            pairs,
            left=RESULT,
            right=RESULT,
            sign=-1,
            starts=starts,
            scale=RESULT,
            scales=scales,
            inverses=inverses,
            supernodes=self._supernodes(both=True),
        )

    # Substitution. Right sides and solutions are in the order of the constraints, what is between
    # the two substitutions in that of elimination.

    @functools.cached_property
    def _before(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each row, the entries before the diagonal, and their columns."""
        return [
            (self._first[i] + np.arange(len(row) - 1), row[:-1]) for i, row in enumerate(self._rows)
        ]

    @functools.cached_property
    def _below(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each column, the entries below the diagonal, and their rows."""
        rows, columns = self._entries
        order = np.lexsort((rows, columns))
        parts = np.split(order, np.searchsorted(columns[order], np.arange(1, self.m)))
        return [(entries[1:], rows[entries[1:]]) for entries in parts]

    def _substitution(self, upper: bool, shift: int, divides: bool) -> Plan:
        """The solution of a triangular matrix, of it and a right side; it begins at a shift."""
        steps = range(self.m)[::-1] if upper else range(self.m)
        every = np.array(steps)
        to = self.elimination if upper else np.arange(self.m)
        known = self._below if upper else self._before
        return plan_of(
            to[every],
            [(shift + known[i][0], to[known[i][1]]) for i in steps],
            left=0,
            right=RESULT,
            sign=-1,
            start=1,
            starts=every if upper else self.elimination[every],
            scale=0,
            scales=shift + self.diagonal[every] if divides else None,
        )

    @functools.cached_property
    def solve_lower(self) -> Plan:
        """L^-1 b, of L and b."""
        return self._substitution(upper=False, shift=0, divides=True)

    @functools.cached_property
    def solve_upper(self) -> Plan:
        """L^-T b, of L and b."""
        return self._substitution(upper=True, shift=0, divides=True)

    @functools.cached_property
    def solve_unit_lower(self) -> Plan:
        """L^-1 b, of L and U and b, where the diagonal of L is one."""
        return self._substitution(upper=False, shift=0, divides=False)

    @functools.cached_property
    def solve_other_upper(self) -> Plan:
        """U^-1 b, of L and U and b."""
        return self._substitution(upper=True, shift=self.factor_size, divides=True)

    # The inverse of K, where K or its factor has entries (Takahashi's equations), both sides of the
    # diagonal, column by column: Z_ij = (d_ij / L_jj - sum over k below j of Z_ik L_kj) / L_jj.

    @functools.cached_property
    def columns_of_factor(self) -> np.ndarray:
        """The entries of the factor, column by column."""
        rows, columns = self._entries
        return np.lexsort((rows, columns))

    @functools.cached_property
    def _whole_columns(self) -> list[np.ndarray]:
        """Of each column, its entries on both sides of the diagonal."""
        return [
            np.concatenate([row, below])
            for row, (_, below) in zip(self._rows, self._below, strict=True)
        ]

    @functools.cached_property
    def _whole_first(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum([len(column) for column in self._whole_columns])])

    @functools.cached_property
    def inverse(self) -> Plan:
        """Z, of the columns of L with -1 behind them, and of the entries of L."""
        first, whole = self._whole_first, self._whole_columns
        lengths = np.array([len(below) + 1 for _, below in self._below])
        column_first = np.concatenate([[0], np.cumsum(lengths)])
        minus_one = int(column_first[-1])

        def place(i, j):
            return first[j] + int(np.searchsorted(whole[j], i))

        places, pairs, starts, scales = [], [], [], []
        for j in reversed(range(self.m)):
            below = self._below[j][1]
            factors = column_first[j] + 1 + np.arange(len(below))
            for i in [*below[::-1], j]:
                places.append(place(i, j))
                pairs.append((first[i] + np.searchsorted(whole[i], below), factors))
                starts.append(self.diagonal[j] if i == j else NONE)
                scales.append(self.diagonal[j])
                if i != j:  # the same on the other side: one product, with -1
                    places.append(place(j, i))
                    pairs.append(([place(i, j)], [minus_one]))
                    starts.append(NONE)
                    scales.append(NONE)
        return plan_of(
            places,
            pairs,
            left=RESULT,
            right=0,
            sign=-1,
            start=1,
            starts=starts,
            scale=1,
            scales=scales,
        )

    @functools.cached_property
    def dual(self) -> Plan:
        """G K^-1 where G has entries, of G and Z."""
        position = np.empty(self.m, int)
        position[self.elimination] = np.arange(self.m)
        first, whole, pairs = self._whole_first, self._whole_columns, []
        for unknown, constraint in zip(self.unknowns, self.constraints, strict=True):
            entries, j = self.by_unknown[unknown], position[constraint]
            rows = position[self.constraints[entries]]
            pairs.append((entries, first[j] + np.searchsorted(whole[j], rows)))
        return plan_of(np.arange(self.size), pairs)
