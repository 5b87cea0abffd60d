"""Isotropic Gaussian Metropolis on pi_eps: what the paper compares itself with."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool

from limpet import errors
from limpet.kernels.base import Kernel, Tunable
from limpet.kernels.moves import choose, judge, obstacle, soft_log_ratio
from limpet.kernels.noise import Noise
from limpet.kernels.states import Info, Move, Outcome, State
from limpet.shapes import Vector
from limpet.target import Target


class RandomWalk(Kernel):
    """Gaussian steps of one size in every direction: Soft moves only.

    Its steps must be about as small as eps, so it stops mixing as eps falls; it is here to compare
    with and to check against.

    Parameters
    ----------
    step_size : float, optional
        Size of the steps. Default 0.7 eps.

    Examples
    --------
    >>> import limpet
    >>> limpet.RandomWalk(step_size=0.1)
    RandomWalk(step_size=0.1)
    """

    step_size: float | None = None

    checks: ClassVar = {"step_size": errors.positive}
    renamed: ClassVar = {"sigma": "step_size"}

    @property
    def moves(self) -> tuple[Move, ...]:
        """Soft moves only."""
        return (Move.SOFT,)

    @property
    def tunables(self) -> tuple[Tunable, ...]:
        """Its one size; the acceptance is about the best for Gaussian steps in few dimensions."""
        return (Tunable(("step_size",), (Move.SOFT,), acceptance=0.4),)

    @property
    def takes_frames(self) -> bool:
        """No: it is plain Metropolis, to compare with."""
        return False

    def draw_share(self) -> float:
        """Every step is a draw."""
        return 1.0

    def is_draw(self, state: State) -> Bool[Array, ""]:
        """Every state is a draw."""
        return ~state.on

    def sizes(self, target: Target) -> dict[str, Any]:
        """That of the paper's Soft moves."""
        if self.step_size is not None:
            return {"step_size": self.step_size}
        return {"step_size": 0.7 * target.smallest_eps()}

    def start(self, target: Target, x: Vector) -> State:
        """At x, which may be anywhere."""
        return _state(target, x)

    def move(
        self, target: Target, tuned: dict[str, Any], noise: Noise, state: State
    ) -> tuple[State, Info]:
        """One Soft move (2.16)."""
        sizes = self.sizes(target) | tuned
        proposal = _state(target, state.x + sizes["step_size"] * noise.z)
        always = jnp.bool_(True)
        met = obstacle(
            known=always,
            inside=target.contains(proposal.x),
            finite=jnp.all(jnp.isfinite(proposal.values)),
            landed=always,
            returned=always,
        )
        outcome, acceptance = judge(noise, soft_log_ratio(state, proposal), met)
        new = choose(outcome == Outcome.ACCEPTED, proposal, state)
        return new, Info(jnp.asarray(Move.SOFT), outcome, acceptance)


def _state(target: Target, x: Vector) -> State:
    nothing = jnp.zeros((len(x), 0)), jnp.zeros((0, 0))
    off, reach = jnp.bool_(False), jnp.zeros(())
    return State(x, off, target.values(x), *nothing, target.log_density_at(x), reach)
