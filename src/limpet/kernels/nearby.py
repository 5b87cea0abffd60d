"""The surface near one constraint: where it forms or breaks, only few unknowns move.

A slide of everything fails as soon as it fails somewhere, so that in a large system hardly any bond
would form. But what a bond does, it does where it is. So a try moves the particles of the bond, and
those that bonds connect them to, while all others stay: given these, the law of those that move is
that of a small system, whose constraints are those that they take part in. It has few rooms and few
unknowns, whatever the size of the whole.

A particle is a group of unknowns that take part in the same constraints. Which groups move follows
from the constraint, and from what holds beside it: it is the same for the way back.
"""

import dataclasses
import functools
from typing import cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from limpet.kernels.stratum import Here, Masked, NormalsHere, Rooms
from limpet.shapes import Normals, Values, Vector
from limpet.sparse.normals import SparseNormals
from limpet.sparse.tables import Structure
from limpet.strata import Strata

# Constraints and unknowns that a try may involve; where it would take more, nothing is tried. Of 20
# spheres that have collapsed, 36 and 48 make no more changes of bonds in a second.
MOST_CONSTRAINTS, MOST_UNKNOWNS = 24, 36


@dataclasses.dataclass(frozen=True)
class Tables:
    """Which entries, unknowns and groups each constraint has, padded; and one row of padding."""

    entries: np.ndarray
    unknowns: np.ndarray
    groups: np.ndarray
    group_of: np.ndarray  # each unknown; those of no constraint have one of their own
    count: int  # of groups


@functools.lru_cache(maxsize=16)
def tables_of(structure: Structure) -> Tables:
    """Those of normals of this structure."""
    by_unknown = [frozenset(structure.constraints[e].tolist()) for e in structure.by_unknown]
    names: dict[frozenset[int], int] = {}
    group_of = np.array([names.setdefault(each, len(names)) for each in by_unknown])
    by_constraint = structure.by_constraint
    entries = _padded(by_constraint, structure.size)
    unknowns = _padded([structure.unknowns[e] for e in by_constraint], structure.n)
    groups = [np.unique(group_of[structure.unknowns[e]]) for e in by_constraint]
    return Tables(entries, unknowns, _padded(groups, len(names)), group_of, len(names))


def _padded(rows: list[np.ndarray], padding: int) -> np.ndarray:
    width = max(len(row) for row in rows)
    table = np.full((len(rows) + 1, width), padding)
    for k, row in enumerate(rows):
        table[k, : len(row)] = row
    return table


class Nearby(Masked):
    """The surface where few constraints hold, those near one; of the other unknowns none moves."""

    def __init__(
        self,
        target: Strata,
        x: Vector,
        labels: Values,
        rigid: bool,
        structure: Structure,
        chosen: Values,
    ):
        """Near the chosen constraint, which is among those with a label."""
        super().__init__(target, labels, rigid)
        tables = tables_of(structure)
        at_it = _groups_of(tables, chosen)
        moves = _groups_of(tables, labels * _touched(tables, at_it))
        near = labels * _touched(tables, moves)
        moving = moves[tables.group_of]
        self.x, self.tables = x, tables
        self.fits = (jnp.sum(near) <= MOST_CONSTRAINTS) & (jnp.sum(moving) <= MOST_UNKNOWNS)
        # which constraint has each room, and which unknown each place: padding where there is none
        self.constraint, _ = _places(near, MOST_CONSTRAINTS)
        self.unknown, self.place = _places(moving, MOST_UNKNOWNS)
        self.holds = (self.constraint < len(labels)) * 1.0

    def point(self, x: Vector) -> Here:
        """What moves."""
        return jnp.append(x, 0.0)[self.unknown]

    def whole(self, point: Here) -> Vector:
        """With what does not."""
        return jnp.where(self.place < MOST_UNKNOWNS, jnp.append(point, 0.0)[self.place], self.x)

    def of_constraints(self, numbers: Values) -> Rooms:
        """Those near."""
        return jnp.append(numbers, 0.0)[self.constraint]

    def of_normals(self, normals: Normals) -> NormalsHere:
        """Those near, by what moves."""
        every, tables = cast(SparseNormals, normals).entries, self.tables
        entries = jnp.append(every, 0.0)[jnp.asarray(tables.entries)[self.constraint]]
        unknowns = jnp.asarray(tables.unknowns)[self.constraint]
        rows = jnp.append(self.place, MOST_UNKNOWNS)[unknowns]
        columns = np.arange(MOST_CONSTRAINTS)[:, None]
        shape = MOST_UNKNOWNS + 1, MOST_CONSTRAINTS
        return jnp.zeros(shape).at[rows, columns].add(entries)[:-1]


Groups = Float[Array, " groups"]  # 1 for those that move


def _groups_of(tables: Tables, flags: Values) -> Groups:
    """Those of constraints with a flag."""
    rows = tables.groups[:-1]
    each = jnp.broadcast_to(flags[:, None], rows.shape)
    return jnp.minimum(jnp.zeros(tables.count + 1).at[rows].add(each)[:-1], 1.0)


def _touched(tables: Tables, moves: Groups) -> Values:
    """Of every constraint, 1 if something of it moves."""
    return jnp.max(jnp.append(moves, 0.0)[tables.groups[:-1]], axis=1)


def _places(flags: Float[Array, " k"], most: int) -> tuple[Int[Array, " most"], Int[Array, " k"]]:
    """What is in each place, of those with a flag, and the place of each; padding for none."""
    k = len(flags)
    place = jnp.minimum(jnp.where(flags > 0, jnp.cumsum(flags) - 1, most), most).astype(int)
    return jnp.full(most + 1, k).at[place].add(np.arange(k) - k)[:-1], place
