"""Trajectories on the lifted surface of Au, Graham and Thiery: no time spent off pi_eps.

With eta = q(x) / eps, the points (x, eta) form a smooth surface, also where the gradients of q
vanish or S crosses itself. With density exp(l(x) - |eta|^2 / 2) det(K + I)^(-1/2) per unit of its
area (q, and so K, divided by eps), x has the law pi_eps: it is the soft measure of this surface.
So a Hard move there is a step of pi_eps as large as those along S, and every step is a draw.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np

from limpet.kernels.base import State, reach_of
from limpet.kernels.travel import Traveller, leaps_of, slid
from limpet.linalg import factor
from limpet.native.primitives import sparse
from limpet.target import Target

NO_FACTOR = jnp.zeros((0, 0))  # it depends on the step size, so it is not kept from step to step


@dataclasses.dataclass(frozen=True)
class Lifted(Traveller):
    """Sample pi_eps by trajectories along the surface eps eta = q(x), in x and eta together.

    Parameters
    ----------
    trajectory : int, optional
        Slides per draw; None leaves it to warm-up. With more than one, they follow the gradient of
        the density, and `sigma_hrd` is varied a little from draw to draw.
    sigma_hrd : float
        Size of the slides, in x.
    newton_cap, tolerance, reverse_tolerance
        As in `limpet.SAS`.

    Examples
    --------
    >>> import limpet
    >>> limpet.Lifted(trajectory=8).sigma_hrd
    1.0
    """

    trajectory: int | None = None
    sigma_hrd: float = 1.0
    newton_cap: int = 8
    tolerance: float = 1e-12
    reverse_tolerance: float = 1e-8

    static = ("trajectory", "newton_cap")

    def noise_size(self, state):
        """One for each entry of x and of eta."""
        return len(state.x) + len(state.values)

    def is_draw(self, state):
        """Every state is a draw."""
        return ~state.on

    def start(self, target, x):
        """At x, which may be anywhere."""
        values, normals = target.values_and_normals(x)
        off, reach = jnp.bool_(False), reach_of(x, self.sigma_hrd)
        return State(x, off, values, normals, NO_FACTOR, target.log_density_at(x), reach)

    def move(self, target, noise, state):
        """One trajectory on the lifted surface."""
        lifted = self._lifted(target, state.x)
        new, info = slid(self, lifted, noise, lifted.raised(state))
        return lifted.lowered(new), info

    def _lifted(self, target, x):
        """Lengths are such that a trajectory turns eta by a quarter: a harmonic motion, about.

        A single leap turns it by a sixth of pi at most, for longer ones are rejected.
        """
        leaps = jnp.maximum(leaps_of(self), 3)
        return LiftedTarget(target, len(x), leaps * self.sigma_hrd / (np.pi / 2))


class LiftedTarget:
    """The lifted surface of a target, as a target: a point is x and `length` times eta.

    The length says how far to go in x while eta changes by one.
    """

    def __init__(self, target: Target, n: int, length):
        self.target, self.n, self.length = target, n, length

    def point(self, x, eta):
        """The point with these parts."""
        return jnp.concatenate([x, self.length * eta])

    def parts(self, point):
        """The parts, x and eta."""
        return point[: self.n], point[self.n :] / self.length

    def values(self, point):
        """q(x) / eps - eta."""
        x, eta = self.parts(point)
        return self.target.values(x) - eta

    def values_and_normals(self, point):
        """The same, and its gradients."""
        x, eta = self.parts(point)
        values, normals = self.target.values_and_normals(x)
        return values - eta, self.normals(normals)

    def normals(self, below):
        """The normals over those of S."""
        return jnp.concatenate([below, -sparse(jnp.eye(below.shape[1])) / self.length])

    def log_density_at(self, point):
        """l(x) - |eta|^2 / 2."""
        x, eta = self.parts(point)
        return self.target.log_density_at(x) - jnp.sum(eta**2) / 2

    def contains(self, point):
        """Whether x is on the allowed side of every wall."""
        return self.target.contains(point[: self.n])

    def raised(self, state):
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

    def lowered(self, state):
        """The state off S under one on the lifted surface."""
        x, eta = self.parts(state.x)
        values = state.values + eta  # q(x) / eps, also where the projection left a rest
        return state._replace(
            x=x,
            on=jnp.bool_(False),
            values=values,
            normals=state.normals[: self.n],
            factor=NO_FACTOR,
            log_density=state.log_density + jnp.sum(eta**2) / 2,
        )
