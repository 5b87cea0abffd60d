"""Isotropic Gaussian Metropolis on pi_eps: what the paper compares itself with."""

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
    check_fields,
    chosen,
    judge,
    obstacle,
    soft_log_ratio,
)


@dataclasses.dataclass(frozen=True)
class RandomWalk(Kernel):
    """Gaussian steps of one size in every direction: Soft moves only.

    Its steps must be about as small as eps, so it stops mixing as eps falls; it is here to compare
    with and to check against.

    Parameters
    ----------
    sigma : float, optional
        Size of the steps. Default 0.7 eps.

    Examples
    --------
    >>> import limpet
    >>> limpet.RandomWalk(sigma=0.1)
    RandomWalk(sigma=0.1)
    """

    sigma: float | None = None

    moves = (Move.SOFT,)
    knobs = (Knob(("sigma",), (Move.SOFT,), acceptance=0.4),)

    def __post_init__(self):
        check_fields(self, errors.positive, "sigma")

    def share_kept(self):
        """Every step is a draw."""
        return 1.0

    def is_draw(self, state):
        """Every state is a draw."""
        return ~state.on

    def defaults(self, target):
        """That of the paper's Soft moves."""
        return {"sigma": 0.7 * target.smallest_eps() if self.sigma is None else self.sigma}

    def start(self, target, x):
        """At x, which may be anywhere."""
        return self._state(target, x)

    def _state(self, target, x):
        nothing = jnp.zeros((len(x), 0)), jnp.zeros((0, 0))
        off, reach = jnp.bool_(False), jnp.zeros(())
        return State(x, off, target.values(x), *nothing, target.log_density_at(x), reach)

    def move(self, target, noise, state):
        """One Soft move (2.22)."""
        proposal = self._state(target, state.x + self.defaults(target)["sigma"] * noise.z)
        always = jnp.bool_(True)
        met = obstacle(
            known=always,
            inside=target.contains(proposal.x),
            finite=jnp.all(jnp.isfinite(proposal.values)),
            landed=always,
            returned=always,
        )
        outcome, acceptance = judge(noise, soft_log_ratio(state, proposal), met)
        new = chosen(outcome == Outcome.ACCEPTED, proposal, state)
        return new, Info(jnp.asarray(Move.SOFT), outcome, acceptance)
