"""The surface sampler of Zappa, Holmes-Cerfon and Goodman (ZHG): Hard moves only."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from limpet.errors import InputError
from limpet.geometry.linalg import factor, half_log_det
from limpet.kernels.moves import start_on_surface
from limpet.kernels.noise import Noise
from limpet.kernels.states import Info, State
from limpet.kernels.trajectory import TrajectoryKernel, make_trajectory
from limpet.shapes import Vector
from limpet.target import Target

MEASURES = {"soft": 1.0, "hausdorff": 0.0}  # powers of det(K)^(-1/2) in the density


class SurfaceSampler(TrajectoryKernel):
    """Sample on the surface itself, by slides along it.

    Parameters
    ----------
    measure : {"soft", "hausdorff"}
        "soft": pi_s, with density exp(l) det(K)^(-1/2), the limit of pi_eps as eps falls.
        "hausdorff": density exp(l) per unit of the surface's area.
    step_size : float
        Size of the slides.
    steps : int, optional
        Slides per draw; None leaves it to warm-up. With more than one, they follow the gradient of
        the density, and `step_size` is varied a little from draw to draw.
    newton_cap, tolerance, reverse_tolerance
        As in `limpet.SAS`.

    Examples
    --------
    >>> import limpet
    >>> limpet.SurfaceSampler(measure="hausdorff").measure
    'hausdorff'
    """

    measure: str = "soft"
    step_size: float = 1.0
    steps: int | None = 1
    newton_cap: int = 8
    tolerance: float = 1e-12
    reverse_tolerance: float = 1e-8

    static = ("measure", "steps", "newton_cap")
    needs_surface = True

    def check(self) -> None:
        """Refuse a measure that there is not."""
        if self.measure not in tuple(MEASURES):
            raise InputError(
                f"measure={self.measure!r}: expected one of {', '.join(map(repr, MEASURES))}."
            )

    @property
    def takes_frames(self) -> bool:
        """Not for the surface's own area, which depends on what lengths are."""
        return self.measure == "soft"

    def is_draw(self, state: State) -> Bool[Array, ""]:
        """Every state is a draw."""
        return state.on

    def log_area_weight(self, target: Target, x: Vector) -> Float[Array, ""]:
        """Half of log det K for the surface's own area."""
        missing = 1 - MEASURES[self.measure]
        if not missing:
            return jnp.zeros(())
        return missing * half_log_det(factor(target.values_and_normals(x)[1]))

    def start(self, target: Target, x: Vector) -> State:
        """At x."""
        return start_on_surface(target, x, self.step_size)

    def move(
        self, target: Target, tuned: dict[str, Any], noise: Noise, state: State
    ) -> tuple[State, Info]:
        """One trajectory on S."""
        sizes = self.sizes(target) | tuned
        return make_trajectory(self, target, sizes, noise, state, MEASURES[self.measure])
