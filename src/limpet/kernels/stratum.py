"""The surface of a label set: which constraints of a `Strata` hold, softly or rigidly.

A point is x and a number eta for each constraint, with a q/eps - s eta = 0:

    it holds softly       a = 1, s = 1: the lifted surface, see `limpet.kernels.lifted`
    it holds rigidly      a = 1, s = 0: q = 0, or another level; eta is 0, and stays
    it does not hold      a = 0, s = 1: eta is 0, and x is free of it

So whatever holds, there are as many constraints, with gradients that are independent if those of
the constraints that hold are: chains with other labels make the same steps side by side.

Where few of many hold at one time, as of all pairs of particles those in contact, those that do are
put into rooms, one after the other, and only rooms are constraints of the surface. Its gradients
are of coordinates alone then, without labels.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from limpet.geometry.linalg import along, factor, lengths, scaled
from limpet.geometry.projection import Surface
from limpet.kernels.lifted import NO_FACTOR, LiftedTarget, NormalsThere, Point
from limpet.kernels.states import State
from limpet.lanes.primitives import sparse
from limpet.shapes import Normals, Values, Vector
from limpet.sparse.normals import SparseNormals
from limpet.strata import PACKED_FROM, Strata

# of a surface: a point's numbers, and constraints
Here = Float[Array, " here"]
Rooms = Float[Array, " rooms"]
NormalsHere = Float[Array, "here rooms"] | SparseNormals
NormalsAbove = Float[Array, "above rooms"] | SparseNormals

# Rooms beside those for constraints that always hold, where there are as few as that: chains of
# spheres that hardly stick have no more contacts. A choice.
SPARE = 8


class Masked:
    """A target of which only some constraints hold; those that do not are walls, where they are."""

    def __init__(self, target: Strata, labels: Values, rigid: bool):
        self.target, self.labels, self.rigid = target, labels, rigid
        self.holds = labels  # of each constraint of the surface, whether it is one
        self.fits: Any = True  # whether there are rooms for all

    # From the numbers of a target to those of the surface, and back.

    def point(self, x: Vector) -> Here:
        """The point as one of the surface."""
        return x

    def whole(self, point: Here) -> Vector:
        """A point of the surface as one of the target, maybe with other labels."""
        return point

    def of_constraints(self, numbers: Values) -> Rooms:
        """Of a number for each constraint, those of the surface; zero for what is none."""
        return self.holds * numbers

    def of_all(self, numbers: Rooms) -> Values:
        """A number for each constraint; zero for what does not hold."""
        return numbers

    def of_normals(self, normals: Normals) -> NormalsHere:
        """The normals of the surface, of those of all constraints."""
        return scaled(normals, self.holds)

    # The surface, as a target.

    def values(self, x: Here) -> Rooms:
        """q(x) / eps, or zero."""
        return self.of_constraints(self.target.values(self.whole(x)))

    def values_and_normals(self, x: Here) -> tuple[Rooms, NormalsHere]:
        """The same, and its gradients."""
        values, normals = self.target.values_and_normals(self.whole(x))
        return self.of_constraints(values), self.of_normals(normals)

    def log_density_at(self, x: Here) -> Float[Array, ""]:
        """l(x), and what the label set adds to it."""
        level = self.target.log_density_at(self.whole(x))
        return level + self.target.log_weight(self.labels, self.rigid)

    def gradient(self, function: Callable[[Here], Array], x: Here) -> Here:
        """The gradient of a function that is made of this target's."""
        return self.target.gradient(function, x)

    def contains(self, x: Here) -> Bool[Array, ""]:
        """Whether x is inside the walls, and no constraint is violated that does not hold."""
        whole = self.whole(x)
        return self.target.contains(whole) & jnp.all(self.respected(self.target.values(whole)))

    def respected(self, values: Values) -> Bool[Array, " m"]:
        """Of every constraint, whether it holds, or is not violated."""
        return (values > 0) | (self.labels > 0) | ~self.target.walled


class Packed(Masked):
    """The same, where those that hold have rooms: the surface has no other constraints."""

    def __init__(self, target: Strata, labels: Values, rigid: bool, size: int, rooms: int):
        """For points of so many numbers, labels among them."""
        super().__init__(target, labels, rigid)
        self.rooms, self.free = rooms, np.flatnonzero(target.free(size))
        # those that do not hold are all in one room more, which is left out
        self.room = jnp.where(labels > 0, jnp.cumsum(labels).astype(int) - 1, self.rooms)
        self.holds = (jnp.arange(self.rooms) < jnp.sum(labels)) * 1.0

    def point(self, x: Vector) -> Here:
        """Its coordinates."""
        return x[self.free]

    def whole(self, point: Here) -> Vector:
        """Coordinates, and zeros for labels."""
        before, after = point[: self.target.place], point[self.target.place :]
        return jnp.concatenate([before, jnp.zeros(len(self.target.breakable)), after])

    def of_constraints(self, numbers: Values) -> Rooms:
        """Those of rooms."""
        return jnp.zeros(self.rooms + 1).at[self.room].add(numbers)[:-1]

    def of_all(self, numbers: Rooms) -> Values:
        """From rooms to constraints."""
        return jnp.append(numbers, 0.0)[self.room]

    def of_normals(self, normals: Normals) -> NormalsHere:
        """Those of rooms, by coordinate."""
        n, rooms = len(self.free), self.rooms + 1
        if isinstance(normals, SparseNormals):
            structure = normals.structure
            # of labels there are no entries
            rows = np.searchsorted(self.free, structure.unknowns)
            places = rows * rooms + self.room[structure.constraints]
            packed = jnp.zeros(n * rooms).at[places].add(normals.entries).reshape(n, rooms)
        else:
            packed = jnp.zeros((n, rooms)).at[:, self.room].add(normals[self.free])
        return packed[:, :-1]


def has_rooms(target: Strata) -> bool:
    """Whether so few constraints hold at one time that these have rooms."""
    return target.m >= PACKED_FROM * target.rooms


def sorts_of_rooms(
    target: Strata, count: Float[Array, ""]
) -> list[tuple[int | None, Bool[Array, ""]]]:
    """How many rooms a surface may have, and of each number whether it is that for `count`.

    It is the smallest that will do, since empty rooms cost as much as others. None: there are
    none.
    """
    if not has_rooms(target):
        return [(None, jnp.bool_(True))]
    fewest = len(target.always) + SPARE
    middle = round((fewest * target.rooms) ** 0.5)
    found, below = [], -1
    for number in sorted({min(n, target.rooms) for n in (fewest, middle, target.rooms)}):
        found.append((number, (below < count) & (count <= number)))
        below = number
    return found


def surface_of(target: Strata, labels: Values, rigid: bool, size: int, rooms: int | None) -> Masked:
    """The surface where these constraints hold, with so many rooms, for points of so many numbers.

    Without rooms all of the target's are its constraints.
    """
    if rooms is None:
        return Masked(target, labels, rigid)
    return Packed(target, labels, rigid, size, rooms)


class Bouncing:
    """A surface where trajectories bounce from constraints that do not hold."""

    def __init__(self, surface: Masked):
        self.surface, self.holds = surface, surface.holds
        self.values, self.values_and_normals = surface.values, surface.values_and_normals
        self.log_density_at, self.gradient = surface.log_density_at, surface.gradient

    def contains(self, x: Here) -> Bool[Array, ""]:
        """Whether x is inside the user's walls."""
        return self.surface.target.contains(self.surface.whole(x))

    def wall(self, point: Point) -> tuple[Bool[Array, ""], Point]:
        """Whether no constraint is violated, and the gradient of the one that is most.

        The point may be of the lifted surface.
        """
        x, eta = point[: -len(self.holds)], point[-len(self.holds) :]
        values, normals = self.surface.target.values_and_normals(self.surface.whole(x))
        respected = self.surface.respected(values)
        depths = jnp.where(respected, 0.0, -values / lengths(normals))
        deepest = ~respected & (depths >= jnp.max(depths))
        gradient = self.surface.point(along(normals, jnp.where(deepest, 1.0, 0.0)))
        return jnp.all(respected), jnp.concatenate([gradient, jnp.zeros_like(eta)])


class RigidStratum(LiftedTarget):
    """The surface where the constraints that hold are on a level, exactly."""

    def __init__(self, below: Masked, n: int, target: Surface | None = None):
        """Below is the surface, which may bounce as a target."""
        super().__init__(below if target is None else target, n, jnp.ones(()))
        self.below, self.loose = below, 1 - below.holds

    def values(self, point: Point) -> Values:
        """q(x) / eps, or -eta."""
        x, eta = self.parts(point)
        return self.target.values(x) - self.loose * eta

    def values_and_normals(self, point: Point) -> tuple[Values, NormalsThere]:
        """The same, and its gradients."""
        x, eta = self.parts(point)
        values, normals = self.target.values_and_normals(x)
        return values - self.loose * eta, self.normals(normals)

    def normals(self, below: Normals) -> NormalsThere:
        """The normals over those of the constraints that hold."""
        return _over(below, self.loose)

    def without(self, its_room: Rooms, normals: Normals) -> NormalsAbove:
        """The normals here where one constraint fewer holds, of those of all of the target's."""
        others = scaled(self.below.of_normals(normals), 1 - its_room)
        return _over(others, self.loose + its_room)

    def log_density_at(self, point: Point) -> Float[Array, ""]:
        """l(x), and what the label set adds to it."""
        return self.target.log_density_at(point[: self.n])

    def raise_state(self, state: State) -> State:
        """The state here over one of x."""
        normals = self.normals(state.normals)
        nothing = jnp.zeros_like(state.values)
        return state._replace(
            x=self.point(state.x, nothing), normals=normals, factor=factor(normals)
        )

    def lower_state(self, state: State) -> State:
        """The state of x under one here."""
        return state._replace(x=state.x[: self.n], factor=jnp.asarray(NO_FACTOR))


def _over(below: NormalsHere, loose: Rooms) -> NormalsAbove:
    """Normals over others, with a number of its own for each constraint that is loose."""
    if isinstance(below, SparseNormals):
        return below.lifted(-loose)
    return jnp.concatenate([below, -sparse(jnp.eye(below.shape[1])) * loose])
