"""The surface of a label set: which constraints of a `Strata` hold, softly or rigidly.

A point is x and a number eta for each constraint, with a q/eps - s eta = 0:

    it holds softly       a = 1, s = 1: the lifted surface, see `limpet.kernels.lifted`
    it holds rigidly      a = 1, s = 0: q = 0, or another level; eta is 0, and stays
    it does not hold      a = 0, s = 1: eta is 0, and x is free of it

So whatever holds, there are as many constraints, with gradients that are independent if those of
the constraints that hold are: chains with other labels make the same steps side by side.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from limpet.geometry.linalg import along, factor, lengths, scaled
from limpet.kernels.lifted import NO_FACTOR, LiftedTarget, NormalsThere, Point
from limpet.kernels.states import State
from limpet.lanes.primitives import sparse
from limpet.shapes import Normals, Values, Vector
from limpet.sparse.normals import SparseNormals
from limpet.strata import Strata


class Masked:
    """A target of which only some constraints hold; those that do not are walls, where they are."""

    def __init__(self, target: Strata, holds: Values, rigid: bool):
        self.target, self.holds, self.rigid = target, holds, rigid

    def values(self, x: Vector) -> Values:
        """q(x) / eps, or zero."""
        return self.holds * self.target.values(x)

    def values_and_normals(self, x: Vector) -> tuple[Values, Normals]:
        """The same, and its gradients."""
        values, normals = self.target.values_and_normals(x)
        return self.holds * values, scaled(normals, self.holds)

    def log_density_at(self, x: Vector) -> Float[Array, ""]:
        """l(x), and what the label set adds to it."""
        return self.target.log_density_at(x) + self.target.log_weight(self.holds, self.rigid)

    def gradient(self, function: Callable[[Vector], Array], x: Vector) -> Vector:
        """The gradient of a function that is made of this target's."""
        return self.target.gradient(function, x)

    def contains(self, x: Vector) -> Bool[Array, ""]:
        """Whether x is inside the walls, and no constraint is violated that does not hold."""
        return self.target.contains(x) & jnp.all(self.respected(self.target.values(x)))

    def respected(self, values: Values) -> Bool[Array, " m"]:
        """Of every constraint, whether it holds, or is not violated."""
        return (values > 0) | (self.holds > 0) | ~self.target.walled


class Bouncing(Masked):
    """The same, where trajectories bounce from constraints that do not hold."""

    def contains(self, x: Vector) -> Bool[Array, ""]:
        """Whether x is inside the user's walls."""
        return self.target.contains(x)

    def wall(self, point: Vector) -> tuple[Bool[Array, ""], Vector]:
        """Whether no constraint is violated, and the gradient of the one that is most.

        The point may be of the lifted surface.
        """
        x, eta = point[: -len(self.holds)], point[-len(self.holds) :]
        values, normals = self.target.values_and_normals(x)
        respected = self.respected(values)
        depths = jnp.where(respected, 0.0, -values / lengths(normals))
        deepest = ~respected & (depths >= jnp.max(depths))
        gradient = along(normals, jnp.where(deepest, 1.0, 0.0))
        return jnp.all(respected), jnp.concatenate([gradient, jnp.zeros_like(eta)])


class RigidStratum(LiftedTarget):
    """The surface where the constraints that hold are on a level, exactly."""

    def __init__(self, masked: Masked, n: int):
        super().__init__(masked, n, jnp.ones(()))
        self.holds, self.loose = masked.holds, 1 - masked.holds

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
        if isinstance(below, SparseNormals):
            return below.lifted(-self.loose)
        return jnp.concatenate([below, -sparse(jnp.eye(below.shape[1])) * self.loose])

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
