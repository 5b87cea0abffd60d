"""The surface sampler of Zappa, Holmes-Cerfon and Goodman (ZHG): Hard moves only."""

import dataclasses

import jax.numpy as jnp

from limpet import errors
from limpet.kernels.base import (
    Info,
    Kernel,
    Knob,
    Move,
    Outcome,
    State,
    came_back,
    check_fields,
    chosen,
    hard_log_ratio,
    judge,
    on_surface,
    project_from,
)
from limpet.linalg import factor, tangent

MEASURES = {"soft": 1.0, "hausdorff": 0.0}


@dataclasses.dataclass(frozen=True)
class SurfaceSampler(Kernel):
    """Sample on the surface itself, by slides along it.

    Parameters
    ----------
    measure : {"soft", "hausdorff"}
        "soft": pi_s, with density exp(l) det(K)^(-1/2), the limit of pi_eps as eps falls.
        "hausdorff": density exp(l) per unit of the surface's area.
    sigma_hrd : float
        Size of the slides.
    newton_cap, tolerance, reverse_tolerance
        As in `limpet.SAS`.

    Examples
    --------
    >>> import limpet
    >>> limpet.SurfaceSampler(measure="hausdorff").measure
    'hausdorff'
    """

    measure: str = "soft"
    sigma_hrd: float = 1.0
    newton_cap: int = 8
    tolerance: float = 1e-12
    reverse_tolerance: float = 1e-8

    static = ("measure", "newton_cap")
    moves = (Move.HARD,)
    knobs = (Knob(("sigma_hrd",), (Move.HARD,)),)

    def __post_init__(self):
        if self.measure not in tuple(MEASURES):
            raise errors.InputError(
                f"measure={self.measure!r}: expected one of {', '.join(map(repr, MEASURES))}."
            )
        check_fields(self, errors.positive, "sigma_hrd", "tolerance", "reverse_tolerance")
        check_fields(self, errors.count, "newton_cap")

    def share_kept(self):
        """Every step is a draw."""
        return 1.0

    def is_draw(self, state):
        """Every state is a draw."""
        return state.on

    def defaults(self, target):
        """None."""
        return {}

    def start(self, target, x):
        """At x."""
        return on_surface(target, x, self.sigma_hrd)

    def move(self, target, noise, state):
        """One Hard move: slide, project, and make sure that the way back leads back."""
        x, reach = state.x, state.reach
        slide = self.sigma_hrd * tangent(state.normals, state.factor, noise.z)
        first = project_from(self, target, x, state.normals, x + slide, reach=reach, active=True)
        L = factor(first.normals)
        back = tangent(first.normals, L, x - first.x)
        start, active = first.x + back, first.landed
        second = project_from(
            self, target, first.x, first.normals, start, reach=reach, active=active
        )

        log_density = target.log_density_at(first.x)
        proposal = State(first.x, state.on, first.values, first.normals, L, log_density, reach)
        outcome, acceptance = judge(
            noise,
            hard_log_ratio(state, proposal, slide, back, self.sigma_hrd, MEASURES[self.measure]),
            known=first.landed,
            inside=target.contains(first.x),
            finite=first.finite & (second.finite | ~first.landed),
            landed=first.landed,
            returned=came_back(self, second, state),
        )
        new = chosen(outcome == Outcome.ACCEPTED, proposal, state)
        return new, Info(jnp.asarray(Move.HARD), outcome, acceptance)
