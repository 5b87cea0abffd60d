"""The Surface Augmented Sampler: Magnani, arXiv 2206.05644, section 2.

The chain has law pi_eps + pi_s: off the surface S it follows pi_eps, on it pi_s. On S it slides
(Hard) or lets go (Off); off S it wanders (Soft) or lands (On). Beyond the paper, it may slide off
S, too (Slide), along the level set {q = q(x)}: as a Hard move does along {q = 0}, and with the same
acceptance, since |q| stays. All but Soft are two Newton projections of one form, so one pipeline
serves a whole batch of chains; its two branches spare a chain that goes alone what its move does
not need:

    move   first projection                        second projection
    Hard   from x + slide, along G(x), to y        from y + back, along G(y): must return to x
    Slide  the same, to the level of x             the same
    Off    from y = x + kick, along G(y), to foot  from foot + back, along G(foot): must return to x
    On     from x, along G(x), to foot             from foot + slide, along G(foot), to y

A Hard or Slide move of several slides (`limpet.kernels.travel`) makes the last of them here.
"""

import dataclasses
from functools import partial
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
    obstacle,
    on_surface,
    project_from,
    soft_log_ratio,
    sooner,
)
from limpet.kernels.travel import check_trajectory, jittered, knobs_of, leaps_of, push_of, travel
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
    slide_probability : float
        How often a chain off the surface slides along the level set of q that it is on; zero in the
        paper.
    trajectory : int, optional
        Slides in one Hard move, or along a level set; one in the paper, None leaves it to warm-up.
        With more, they follow the gradient of the density, and `sigma_hrd` is varied a little from
        move to move.
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
    slide_probability: float = 0.0
    trajectory: int | None = 1
    newton_cap: int = 8
    tolerance: float = 1e-12
    reverse_tolerance: float = 1e-8

    static = ("trajectory", "newton_cap")

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
        check_fields(self, errors.probability_or_zero, "slide_probability")
        check_fields(self, errors.count, "newton_cap")
        check_trajectory(self)
        if (total := self.on_probability + self.slide_probability) > 1:
            raise errors.InputError(
                f"on_probability={self.on_probability} and slide_probability="
                f"{self.slide_probability} add up to {total:.4g}: expected at most 1, for both are"
                " shares of what a chain does off the surface."
            )

    @property
    def knobs(self):
        """Slides go far; the others are to be accepted."""
        return (
            *knobs_of(self, Move.HARD, Move.SLIDE),
            Knob(("sigma_tan", "sigma_on"), (Move.OFF, Move.ON), acceptance=0.5, may_grow=False),
            Knob(("sigma_sft",), (Move.SOFT,), acceptance=0.4),
        )

    @property
    def moves(self):
        """The paper's four, and Slide if there is any."""
        paper = (Move.HARD, Move.OFF, Move.ON, Move.SOFT)
        return (*paper, Move.SLIDE) if self.slide_probability else paper

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
            "trajectory": leaps_of(self),
        }

    def scales(self, target):
        """The step sizes on this target."""
        prp, tan, on, sft, _ = self.defaults(target).values()
        return Scales(self.sigma_hrd, prp / target.eps, tan, on, sft)

    def start(self, target, x):
        """On S, at x."""
        return on_surface(target, x, self.sigma_hrd)

    def move(self, target, noise, state):
        """One step: the proposals of section 2.2, accepted with probability (2.2)."""
        sigma, z, reach, choice = self.scales(target), noise.z, state.reach, noise.choice
        leaves, lands = choice < self.off_probability, choice < self.on_probability
        hard, off, on = state.on & ~leaves, state.on & leaves, ~state.on & lands
        aside = ~state.on & ~lands & (choice < self.on_probability + self.slide_probability)
        soft, slides = ~(hard | off | on | aside), hard | aside

        # one z serves every move: r and the tangent part of z are independent
        r = solve_lower(state.factor, across(state.normals, z))
        along_surface = z - along(state.normals, solve_upper(state.factor, r))
        h = jittered(self, sigma.hrd, self._rest(state.on, choice))
        slide, level = h * along_surface, jnp.where(aside, state.values, 0.0)
        kick = sigma.tan * along_surface + pushed(state, sigma.prp * r)  # (2.7)

        way = travel(self, target, state, slide, h, level, leaps_of(self) - 1, active=slides)
        here, x = way.state, way.state.x
        away = landing(target, x + jnp.where(off, kick, sigma.sft * z))
        base, normals = chosen(off, (away.x, away.normals), (x, here.normals))
        land = partial(project_from, self, target, level=level, reach=reach)
        start = jnp.where(slides, x + way.slide + way.push, base)
        first = land(base, normals, start, active=~soft)
        L = factor(first.normals)
        second_slide = tangent(first.normals, L, jnp.where(on, sigma.on * z, x - first.x))
        active = first.landed & ~soft
        second = land(first.x, first.normals, first.x + second_slide, active=active)

        end = chosen(slides, first, chosen(on, second, away))
        proposal = State(
            x=end.x,
            on=hard | on,
            values=end.values,
            normals=end.normals,
            factor=cond(slides, lambda: L, lambda: factor(end.normals)),
            log_density=target.log_density_at(end.x),
            reach=reach,
        )
        back = second_slide - push_of(self, target, proposal, h)
        on_s, off_s = chosen(off, state, proposal), chosen(off, proposal, state)
        E = cond(
            off | on,
            lambda: off_log_ratio(sigma, on_s, off_s, first.normals, L, second_slide),
            lambda: jnp.nan,
        )
        log_ratio = jnp.select(
            [slides, off, on],
            [hard_log_ratio(state, proposal, slide, back, h), E, -E],
            soft_log_ratio(state, proposal),
        )

        landed = off | soft | (first.landed & (slides | second.landed))
        met = obstacle(
            known=landed,
            inside=target.contains(proposal.x),
            finite=end.finite & (soft | (first.finite & (second.finite | ~first.landed))),
            landed=landed,
            returned=on | soft | (first.landed & came_back(self, second, here)),
        )
        outcome, acceptance = judge(noise, log_ratio, sooner(way.obstacle, met))
        move = jnp.select(
            [hard, off, on, soft], [Move.HARD, Move.OFF, Move.ON, Move.SOFT], Move.SLIDE
        )
        new = chosen(outcome == Outcome.ACCEPTED, proposal, state)
        return new, Info(move, outcome, acceptance)

    def _rest(self, on, choice):
        """What is left to chance after the choice of a slide: uniform on [0, 1)."""
        least = jnp.where(on, self.off_probability, self.on_probability)
        return (choice - least) / jnp.where(on, 1 - self.off_probability, self.slide_probability)


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
