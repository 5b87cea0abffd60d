"""Two points of a ladder change places: each goes to the eps of the other.

First they try to swap, and keep their x:

    log ratio = |q|^2 (1 / eps_lower^2 - 1 / eps_upper^2) / 2, of the lower less of the upper point.

This costs nothing, and is for rungs where layers are so thick that there are no levels to slide to.
It leads no farther than a few times eps, less where constraints are many. Then they try to slide,
and keep their eta = q / eps: each goes to the level of q that has this eta at its new eps, by two
projections and with a reverse check, as in a Hard move. With v the part of a slide along the level,
normal with size sigma = spread times the distance of the levels,

    log ratio = sum over both of [l - log det(K) / 2 + log N(v; sigma)] there - the same here.

Energies |eta|^2 / 2 stay, and what the two changes of level do to volume cancels. So eps is not in
the ratio, and nothing in it grows with the number of constraints while layers are thin: one hop
then leads from any eps to any other.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from limpet.geometry.linalg import half_log_det, scaled, solve_lower, tangent
from limpet.kernels.moves import log_normal, sooner, start_on_surface
from limpet.kernels.states import Outcome
from limpet.kernels.trajectory import slide_once
from limpet.shapes import Factor, Normals, Randoms, Values, Vector
from limpet.target import Target

Widths = Float[Array, " m_or_one"]  # eps of a rung, in units of the target's


class Pair(NamedTuple):
    """Something of two neighbouring rungs."""

    upper: Any
    lower: Any


class Slide(NamedTuple):
    """Where a slide to another eps ended."""

    x: Vector
    log_ratio: Float[Array, ""]  # its part of that of an exchange
    obstacle: Int[Array, ""]  # what it met, if anything: an Outcome


class Rung:
    """A target with another eps, so many times its own."""

    def __init__(self, target: Target, width: Widths):
        self.target, self.width = target, width
        self.log_density_at, self.contains = target.log_density_at, target.contains
        self.gradient = target.gradient

    def values(self, x: Vector) -> Values:
        """q(x) / eps."""
        return self.target.values(x) / self.width

    def values_and_normals(self, x: Vector) -> tuple[Values, Normals]:
        """The same, and its gradients."""
        values, normals = self.target.values_and_normals(x)
        return values / self.width, scaled(normals, jnp.broadcast_to(1 / self.width, values.shape))


def swap_log_ratio(widths: Pair, values: Pair) -> Float[Array, ""]:
    """Of two points in each other's place; `widths` and `values` are in units of one eps."""
    stiffer = 1 / widths.lower**2 - 1 / widths.upper**2
    return jnp.sum(stiffer * (values.lower**2 - values.upper**2)) / 2


def exchange(
    kernel: Any, target: Target, widths: Pair, z: Randoms, points: Pair, reach: Float[Array, ""]
) -> tuple[Pair, Float[Array, ""], Int[Array, ""]]:
    """Points that slid to each other's rung, log ratio, and obstacle.

    `widths` are the eps of the two rungs, and `z` the random numbers of two slides.
    """
    n, ratio = len(points.lower), widths.lower / widths.upper
    up = slide_to_eps(kernel, target, 1 / ratio, z[:n], points.lower, reach)
    go = up.obstacle == Outcome.ACCEPTED
    down = slide_to_eps(kernel, target, ratio, z[n:], points.upper, reach, go)
    met = sooner(up.obstacle, down.obstacle)
    return Pair(up.x, down.x), up.log_ratio + down.log_ratio, met


def slide_to_eps(
    kernel: Any,
    target: Target,
    ratio: Widths,
    z: Vector,
    x: Vector,
    reach: Float[Array, ""],
    active: Bool[Array, ""] | bool = True,
) -> Slide:
    """A slide to the level with the same q / eps, where eps is so many times as large."""
    here = start_on_surface(target, x, 1.0)._replace(reach=reach)
    level = ratio * here.values
    apart = level - here.values
    size = _size(kernel, here.factor, apart)
    slide = size * tangent(here.normals, here.factor, z)
    there, back, met = slide_once(
        kernel, target, here, slide, level, back_level=here.values, active=active
    )
    size_back, d = _size(kernel, there.factor, apart), len(x) - len(level)
    change = there.log_density - here.log_density
    change -= half_log_det(there.factor) - half_log_det(here.factor)
    change += log_normal(back, size_back, d) - log_normal(slide, size, d)
    return Slide(there.x, change, met)


def _size(kernel: Any, L: Factor, apart: Values) -> Float[Array, ""]:
    """The standard deviation of a slide, from how far it is to the other level."""
    return kernel.spread * jnp.linalg.norm(solve_lower(L, apart))
