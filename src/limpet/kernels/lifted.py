"""Trajectories on the lifted surface of Au, Graham and Thiery: no time spent off pi_eps.

With eta = q(x) / eps, the points (x, eta) form a smooth surface, also where the gradients of q
vanish or S crosses itself. With density exp(l(x) - |eta|^2 / 2) det(K + I)^(-1/2) per unit of its
area (q, and so K, divided by eps), x has the law pi_eps: it is the soft measure of this surface.
So a Hard move there is a step of pi_eps as large as those along S, and every step is a draw.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from limpet.geometry.linalg import factor
from limpet.geometry.projection import Surface
from limpet.kernels.base import Tunable
from limpet.kernels.graph import make_graph_trajectory, start_on_graph
from limpet.kernels.moves import reach_of
from limpet.kernels.noise import Noise
from limpet.kernels.states import Info, State
from limpet.kernels.trajectory import TrajectoryKernel, make_trajectory
from limpet.lanes.primitives import sparse
from limpet.shapes import Normals, Values, Vector
from limpet.sparse.normals import SparseNormals
from limpet.target import Target

# it depends on the step size, so it is not kept from step to step; NumPy's, for an array of JAX's
# would start its backend on import
NO_FACTOR = np.zeros((0, 0))
FEWEST_TO_TURN = 3  # slides in which eta turns by a quarter: longer ones are rejected


Point = Float[Array, " n_and_m"]  # on the lifted surface
NormalsThere = Float[Array, "n_and_m m"] | SparseNormals


class Lifted(TrajectoryKernel):
    """Sample pi_eps by trajectories along the surface eps eta = q(x), in x and eta together.

    Parameters
    ----------
    steps : int, optional
        Slides per draw; None leaves it to warm-up. With more than one, they follow the gradient of
        the density, and `step_size` is varied a little from draw to draw.
    step_size : float
        Size of the slides, in x.
    newton_cap, tolerance, reverse_tolerance
        As in `limpet.SAS`.

    Examples
    --------
    >>> import limpet
    >>> limpet.Lifted(steps=8).step_size
    1.0
    """

    steps: int | None = None
    step_size: float = 1.0
    newton_cap: int = 8
    tolerance: float = 1e-12
    reverse_tolerance: float = 1e-8

    @property
    def crowded_tunables(self) -> tuple[Tunable, ...]:
        """Slides that go far: longer ones than the data allow may be as acceptable, but no use."""
        slides, *others = self.tunables
        return slides._replace(acceptance=None), *others

    def noise_size(self, state: State) -> int:
        """One for each entry of x and of eta; of x alone, where that is all of a point."""
        n, m = len(state.x), len(state.values)
        return n + m if m < n else n

    def is_draw(self, state: State) -> Bool[Array, ""]:
        """Every state is a draw."""
        return ~state.on

    def start(self, target: Target, x: Vector) -> State:
        """At x, which may be anywhere."""
        if target.is_crowded(x):
            return start_on_graph(target, x, self.step_size)
        values, normals = target.values_and_normals(x)
        off, reach = jnp.bool_(False), reach_of(x, self.step_size)
        return State(
            x, off, values, normals, jnp.asarray(NO_FACTOR), target.log_density_at(x), reach
        )

    def move(
        self, target: Target, tuned: dict[str, Any], noise: Noise, state: State
    ) -> tuple[State, Info]:
        """One trajectory on the lifted surface."""
        sizes = self.sizes(target) | tuned
        if len(state.values) >= len(state.x):
            return make_graph_trajectory(self, target, sizes, length_of(sizes), noise, state)
        return travel(self, target, sizes, noise, state)


def travel(
    kernel: TrajectoryKernel, target: Surface, sizes: dict[str, Any], noise: Noise, state: State
) -> tuple[State, Info]:
    """One trajectory on the surface lifted over S, from a state off S to another."""
    lifted = LiftedTarget(target, len(state.x), length_of(sizes))
    new, info = make_trajectory(kernel, lifted, sizes, noise, lifted.raise_state(state))
    return lifted.lower_state(new), info


def length_of(sizes: dict[str, Any]) -> Any:
    """How far in x eta changes by one: a trajectory then turns it by a quarter, about."""
    return jnp.maximum(sizes["steps"], FEWEST_TO_TURN) * sizes["step_size"] / (np.pi / 2)


class LiftedTarget:
    """The lifted surface of a target, as a target: a point is x and `length` times eta.

    The length says how far to go in x while eta changes by one.
    """

    def __init__(self, target: Surface, n: int, length: Any):
        self.target, self.n, self.length = target, n, length

    def point(self, x: Vector, eta: Values) -> Float[Array, " n+m"]:
        """The point with these parts."""
        return jnp.concatenate([x, self.length * eta])

    def parts(self, point: Point) -> tuple[Vector, Values]:
        """The parts, x and eta."""
        return point[: self.n], point[self.n :] / self.length

    def values(self, point: Point) -> Values:
        """q(x) / eps - eta."""
        x, eta = self.parts(point)
        return self.target.values(x) - eta

    def values_and_normals(self, point: Point) -> tuple[Values, NormalsThere]:
        """The same, and its gradients."""
        x, eta = self.parts(point)
        values, normals = self.target.values_and_normals(x)
        return values - eta, self.normals(normals)

    def normals(self, below: Normals) -> NormalsThere:
        """The normals over those of S."""
        if isinstance(below, SparseNormals):
            return below.lifted(-1 / self.length)
        return jnp.concatenate([below, -sparse(jnp.eye(below.shape[1])) / self.length])

    def log_density_at(self, point: Point) -> Float[Array, ""]:
        """l(x) - |eta|^2 / 2."""
        x, eta = self.parts(point)
        return self.target.log_density_at(x) - jnp.sum(eta**2) / 2

    def gradient(self, function: Callable[[Point], Array], point: Point) -> Point:
        """The gradient of a function that is made of this target's."""
        return self.target.gradient(function, point)

    def contains(self, point: Point) -> Bool[Array, ""]:
        """Whether x is on the allowed side of every wall."""
        return self.target.contains(point[: self.n])

    def raise_state(self, state: State) -> State:
        """The state on the lifted surface over one off S."""
        normals = self.normals(state.normals)
        return state._replace(
            x=self.point(state.x, state.values),
            on=jnp.bool_(True),
            values=jnp.zeros_like(state.values),
            normals=normals,
            factor=factor(normals),
            log_density=state.log_density - jnp.sum(state.values**2) / 2,
        )

    def _normals_below(self, normals: NormalsThere) -> Normals:
        if isinstance(normals, SparseNormals):
            return normals.lowered()
        return normals[: self.n]

    def lower_state(self, state: State) -> State:
        """The state off S under one on the lifted surface."""
        x, eta = self.parts(state.x)
        values = state.values + eta  # q(x) / eps, also where the projection left a rest
        return state._replace(
            x=x,
            on=jnp.bool_(False),
            values=values,
            normals=self._normals_below(state.normals),
            factor=jnp.asarray(NO_FACTOR),
            log_density=state.log_density + jnp.sum(eta**2) / 2,
        )
