"""The Surface Augmented Sampler: Magnani, arXiv 2206.05644, section 2.

The chain has law pi_eps + pi_s: off the surface S it follows pi_eps, on it pi_s. On S it slides
(Hard) or lets go (Off); off S it wanders (Soft) or lands (On). Hard, Off and On are each two Newton
projections of one form, so one pipeline serves a whole batch of chains; its two branches spare a
chain that goes alone what its move does not need:

    move   first projection                        second projection
    Hard   from x + slide, along G(x), to y        from y + back, along G(y): must return to x
    Off    from y = x + kick, along G(y), to foot  from foot + back, along G(foot): must return to x
    On     from x, along G(x), to foot             from foot + slide, along G(foot), to y
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jax.lax import cond

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
    soft_log_ratio,
)
from limpet.linalg import (
    across,
    along,
    factor,
    half_log_det,
    inner,
    log_abs_det,
    solve_lower,
    solve_upper,
    tangent,
)
from limpet.projection import landing


class Scales(NamedTuple):
    """The step sizes in use; `prp` is in units of eps, since q is whitened by it."""

    hrd: float
    prp: float
    tan: float
    on: float
    sft: float


@dataclasses.dataclass(frozen=True)
class SAS(Kernel):
    """The paper's sampler for pi_eps, with a cost that does not grow as eps falls.

    Parameters
    ----------
    sigma_hrd : float
        Size of the slides along the surface (Hard).
    sigma_prp, sigma_tan : float, optional
        Size of the kick that leaves the surface (Off): across, in units of q, and along it, in
        units of x. Default eps (the smallest, if there are several; each its own for `sigma_prp`).
    sigma_on : float, optional
        Size of the slide after landing (On). Default eps.
    sigma_sft : float, optional
        Size of the steps off the surface (Soft). Default 0.7 eps.
    off_probability, on_probability : float
        How often a chain on the surface tries to leave (else Hard), and one off it tries to land
        (else Soft): the paper's lambda_21 and lambda_12.
    newton_cap : int
        Most Newton updates of a projection; the paper used 5.
    tolerance : float
        A point is on the surface when |q_i| <= tolerance |grad q_i| (|x| + |x_0|), where x_0 is
        where the chain began.
    reverse_tolerance : float
        A way back has returned when it ends within this times (|x| + |x_0|).

    Examples
    --------
    >>> import limpet
    >>> limpet.SAS(sigma_hrd=0.5).off_probability
    0.2
    """

    sigma_hrd: float = 1.0
    sigma_prp: float | None = None
    sigma_tan: float | None = None
    sigma_on: float | None = None
    sigma_sft: float | None = None
    off_probability: float = 0.2
    on_probability: float = 0.8
    newton_cap: int = 8
    tolerance: float = 1e-12
    reverse_tolerance: float = 1e-8

    static = ("newton_cap",)
    moves = (Move.HARD, Move.OFF, Move.ON, Move.SOFT)
    knobs = (
        Knob(("sigma_hrd",), (Move.HARD,)),
        Knob(("sigma_tan", "sigma_on"), (Move.OFF, Move.ON), acceptance=0.5, may_grow=False),
        Knob(("sigma_sft",), (Move.SOFT,), acceptance=0.4),
    )

    def __post_init__(self):
        check_fields(
            self,
            errors.positive,
            "sigma_hrd",
            "sigma_prp",
            "sigma_tan",
            "sigma_on",
            "sigma_sft",
            "tolerance",
            "reverse_tolerance",
        )
        check_fields(self, errors.probability, "off_probability", "on_probability")
        check_fields(self, errors.count, "newton_cap")

    def share_kept(self):
        """The share of steps off S, from the constants of equation (3.10)."""
        return self.off_probability / (self.off_probability + self.on_probability)

    def is_draw(self, state):
        """A state off S is a draw from pi_eps."""
        return ~state.on

    def defaults(self, target):
        """The step sizes that default to eps (section 3.1 of the paper)."""
        eps = target.smallest_eps()
        return {
            "sigma_prp": target.eps if self.sigma_prp is None else self.sigma_prp,
            "sigma_tan": eps if self.sigma_tan is None else self.sigma_tan,
            "sigma_on": eps if self.sigma_on is None else self.sigma_on,
            "sigma_sft": 0.7 * eps if self.sigma_sft is None else self.sigma_sft,
        }

    def scales(self, target):
        """The step sizes on this target."""
        prp, tan, on, sft = self.defaults(target).values()
        return Scales(self.sigma_hrd, prp / target.eps, tan, on, sft)

    def start(self, target, x):
        """On S, at x."""
        return on_surface(target, x, self.sigma_hrd)

    def move(self, target, noise, state):
        """One step: the proposals of section 2.2, accepted with probability (2.2)."""
        sigma, x, z, reach = self.scales(target), state.x, noise.z, state.reach
        leaves, lands = noise.choice < self.off_probability, noise.choice < self.on_probability
        hard, off = state.on & ~leaves, state.on & leaves
        on, soft = ~state.on & lands, ~state.on & ~lands

        # one z serves every move: r and the tangent part of z are independent
        r = solve_lower(state.factor, across(state.normals, z))
        along_surface = z - along(state.normals, solve_upper(state.factor, r))
        slide = sigma.hrd * along_surface
        kick = sigma.tan * along_surface + pushed(state, sigma.prp * r)  # (2.7)

        away = landing(target, x + jnp.where(off, kick, sigma.sft * z))
        base, normals = chosen(off, (away.x, away.normals), (x, state.normals))
        start = jnp.where(hard, x + slide, base)
        first = project_from(self, target, base, normals, start, reach=reach, active=~soft)
        L = factor(first.normals)
        second_slide = tangent(first.normals, L, jnp.where(on, sigma.on * z, x - first.x))
        start = first.x + second_slide
        active = first.landed & ~soft
        second = project_from(
            self, target, first.x, first.normals, start, reach=reach, active=active
        )

        end = chosen(hard, first, chosen(on, second, away))
        proposal = State(
            x=end.x,
            on=hard | on,
            values=end.values,
            normals=end.normals,
            factor=cond(on, lambda: factor(second.normals), lambda: L),
            log_density=target.log_density_at(end.x),
            reach=reach,
        )
        on_s, off_s = chosen(off, state, proposal), chosen(off, proposal, state)
        E = cond(
            off | on,
            lambda: off_log_ratio(sigma, on_s, off_s, first.normals, L, second_slide),
            lambda: jnp.nan,
        )
        log_ratio = jnp.select(
            [hard, off, on],
            [hard_log_ratio(state, proposal, slide, second_slide, sigma.hrd), E, -E],
            soft_log_ratio(state, proposal),
        )

        landed = off | soft | (first.landed & (hard | second.landed))
        outcome, acceptance = judge(
            noise,
            log_ratio,
            known=landed,
            inside=target.contains(proposal.x),
            finite=end.finite & (soft | (first.finite & (second.finite | ~first.landed))),
            landed=landed,
            returned=on | soft | (first.landed & came_back(self, second, state)),
        )
        move = jnp.select([hard, off, on], [Move.HARD, Move.OFF, Move.ON], Move.SOFT)
        new = chosen(outcome == Outcome.ACCEPTED, proposal, state)
        return new, Info(move, outcome, acceptance)


def pushed(state, r):
    """N_x r = G K^-1 r: off the surface so that q changes by r, to first order."""
    return along(state.normals, solve_upper(state.factor, solve_lower(state.factor, r)))


def off_log_ratio(sigma, s, a, foot_normals, foot_factor, slide):
    """E(a, f, s): log of the Off ratio from s on S to a off S; minus it is that of On.

    (2.2) with (2.19), (2.21) and the constants (3.10): Gram determinants and lambda cancel.
    `slide` is the tangent step at the foot f that leads from f to s.
    """
    m, n = len(s.values), len(s.x)
    step = a.x - s.x
    across_s = across(s.normals, step) / sigma.prp
    along_s = tangent(s.normals, s.factor, step)
    density = a.log_density - s.log_density - jnp.sum(a.values**2) / 2
    off = -(jnp.sum(across_s**2) + jnp.sum(along_s**2) / sigma.tan**2) / 2
    on = -jnp.sum(slide**2) / sigma.on**2 / 2
    jacobian = (
        log_abs_det(inner(foot_normals, s.normals))
        - half_log_det(foot_factor)
        - half_log_det(s.factor)
    )
    constants = jnp.sum(jnp.log(jnp.broadcast_to(sigma.prp, (m,))))
    constants += (n - m) * jnp.log(sigma.tan / sigma.on)
    return density + on + jacobian - off + constants
