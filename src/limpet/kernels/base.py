"""What every sampler has in common: one chain, one step, and the verdict on a proposal.

A new sampler is one file: a frozen dataclass of numbers with `init` and `move`.
"""

import abc
import copy
import dataclasses
import enum
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from limpet.errors import InputError
from limpet.layout import Layout, as_point
from limpet.linalg import Normals, Square, Values, Vector, factor, half_log_det
from limpet.noise import Noise
from limpet.projection import Landing, project
from limpet.target import Target, check_target


class Move(enum.IntEnum):
    """What a chain can do in a step; the first four are the paper's (section 2.1)."""

    HARD = 0
    OFF = 1
    ON = 2
    SOFT = 3
    SLIDE = 4  # along a level set of q, off the surface: not in the paper


class Outcome(enum.IntEnum):
    """What became of a proposal; every proposal ends as exactly one of these."""

    ACCEPTED = 0
    FORWARD = 1  # the projection did not reach the surface
    REVERSE = 2  # the way back does not lead to where it came from
    WALL = 3  # outside the walls
    METROPOLIS = 4  # the coin said no
    NOT_FINITE = 5  # q, its gradient or the log density was NaN or infinite


class State(NamedTuple):
    """Where a chain is, and what was computed there.

    A sampler that never projects has no columns of normals.
    """

    x: Any
    on: Bool[Array, ""]
    values: Values
    normals: Normals
    factor: Square
    log_density: Float[Array, ""]
    reach: Float[Array, ""]  # how far from the origin the chain began: the scale of its x


class Info(NamedTuple):
    """What one step did."""

    move: Int[Array, ""]
    outcome: Int[Array, ""]
    acceptance: Float[Array, ""]


class Knob(NamedTuple):
    """Step sizes that warm-up turns together, and what it judges them by."""

    names: tuple[str, ...]
    moves: tuple[Move, ...]
    acceptance: float | None = None  # the largest size is wanted with this; if None, the farthest
    may_grow: bool = True  # beyond what was given
    whole: bool = False  # a number of slides: whole, and the most effective draws per slide wanted


@dataclasses.dataclass(frozen=True)
class Kernel(abc.ABC):
    """A sampler: numbers, a first state, and a step for one chain.

    Numbers are data to JAX, so that tuning them compiles nothing anew; fields named in `static`
    (whole numbers, words) are part of the program.
    """

    static: ClassVar[tuple[str, ...]] = ()
    moves: ClassVar[tuple[Move, ...]]
    knobs: ClassVar[tuple[Knob, ...]]
    known: ClassVar[dict[str, type["Kernel"]]] = {}  # by name, as a store says it

    def __new__(cls, *_, **given):
        """Refuse a number that it does not have, in words."""
        known = [field.name for field in dataclasses.fields(cls)]
        if unknown := [name for name in given if name not in known]:
            slides = " Slides off the surface are moves of limpet.SAS(...)."
            raise InputError(
                f"limpet.{cls.__name__} has no {', '.join(unknown)}: expected some of"
                f" {', '.join(known)}.{slides if 'slide_probability' in unknown else ''}"
            )
        return super().__new__(cls)

    def __init_subclass__(cls):
        def flatten(kernel):
            fields = {f.name: getattr(kernel, f.name) for f in dataclasses.fields(kernel)}
            program = tuple((name, fields.pop(name)) for name in cls.static)
            return tuple(fields.values()), (tuple(fields), program)

        def unflatten(program, numbers):
            kernel = object.__new__(cls)
            for name, value in (*zip(program[0], numbers, strict=True), *program[1]):
                object.__setattr__(kernel, name, value)
            return kernel

        jax.tree_util.register_pytree_node(cls, flatten, unflatten)
        Kernel.known[cls.__name__] = cls

    @abc.abstractmethod
    def share_kept(self) -> float:
        """The share of steps that end in a draw, about."""

    @abc.abstractmethod
    def is_draw(self, state: State) -> Bool[Array, ""]:
        """Whether this state is one of the draws that the sampler is run for."""

    def noise_size(self, state: State) -> int:
        """How many normal numbers a step takes."""
        return len(state.x)

    def parameters(self, target: Target) -> dict:
        """The numbers it runs with on this target, defaults filled in."""
        return dataclasses.asdict(self) | {
            name: np.asarray(value).tolist() for name, value in self.defaults(target).items()
        }

    def with_numbers(self, numbers: dict) -> "Kernel":
        """The same sampler with other numbers, which may be JAX's; nothing is checked."""
        kernel = copy.copy(self)
        for name, value in numbers.items():
            object.__setattr__(kernel, name, value)
        return kernel

    @abc.abstractmethod
    def defaults(self, target: Target) -> dict:
        """The step sizes that depend on the target, as they are used."""

    @abc.abstractmethod
    def start(self, target: Target, x: Vector) -> State:
        """The first state, at a vector x on the surface."""

    @abc.abstractmethod
    def move(self, target: Target, noise: Noise, state: State) -> tuple[State, Info]:
        """One step of one chain, given its random numbers; `state.x` is a vector."""

    def init(self, target: Target, x) -> State:
        """The first state of one chain, at a point on the surface.

        Parameters
        ----------
        target : Target
            What to sample.
        x : vector or pytree
            A point on the surface, such as `limpet.find_start` gives.

        Returns
        -------
        State
            Fit for `step`, `jax.vmap` and `jax.lax.scan`.
        """
        check_target(target)
        x = as_point(x)
        layout = Layout.of(x)
        vector = layout.vector(x)
        flat = target.on_vectors(layout).checked(vector)
        return self.start(flat, vector)._replace(x=layout.point(vector))

    def step(self, target: Target, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """One step of one chain: a pure function, fit for `jax.jit`, `vmap` and `lax.scan`.

        Parameters
        ----------
        target : Target
            What to sample.
        key : jax.random.key
            The source of this step's random numbers.
        state : State
            From `init` or the last step.

        Returns
        -------
        state, info
            The next state, and what was done: move, outcome, acceptance probability.
        """
        layout = Layout.of(state.x)
        flat = state._replace(x=layout.vector(state.x))
        noise = draw_noise(key, self.noise_size(flat))
        new, info = self.move(target.on_vectors(layout), noise, flat)
        return new._replace(x=layout.point(new.x)), info


def draw_noise(key: PRNGKeyArray, n: int) -> Noise:
    """The random numbers of one step of one chain."""
    for_z, for_rest = jax.random.split(key)
    choice, coin = jax.random.uniform(for_rest, (2,))
    return Noise(jax.random.normal(for_z, (n,)), choice, coin)


def project_from(kernel, target, x, normals, start, *, level, reach, active) -> Landing:
    """Project `start` along the normals at x to where q = level, to the tolerance that x sets.

    The tolerance is relative: it means the same when q or x is counted in other units.
    """
    tolerance = kernel.tolerance * jnp.linalg.norm(normals, axis=0) * _length(x, reach)
    return project(target, start, normals, level, tolerance, kernel.newton_cap, active)


def came_back(kernel, landing: Landing, state: State):
    """The reverse check: whether a projection landed where the chain is."""
    miss = jnp.linalg.norm(landing.x - state.x)
    return landing.landed & (miss <= kernel.reverse_tolerance * _length(state.x, state.reach))


def _length(x, reach):
    # the reach keeps the tolerance from vanishing where the surface passes the origin
    return jnp.linalg.norm(x) + reach


def obstacle(*, known, inside, finite, landed, returned) -> Int[Array, ""]:
    """What is in the way of a proposal, as an Outcome: ACCEPTED if nothing is.

    `known`: whether there is a point to hold against the walls. The other flags say whether it is
    inside them, whether q was finite all the way, and whether the projections succeeded.
    """
    return jnp.select(
        [known & ~inside, ~finite, ~landed, ~returned],
        [Outcome.WALL, Outcome.NOT_FINITE, Outcome.FORWARD, Outcome.REVERSE],
        Outcome.ACCEPTED,
    )


def sooner(first, then):
    """The obstacle that was met first."""
    return jnp.where(first == Outcome.ACCEPTED, then, first)


def judge(noise, log_ratio, met: Int[Array, ""]):
    """The outcome of a proposal that met this obstacle, or none, and its acceptance probability."""
    unknown = jnp.isnan(log_ratio) | (log_ratio == jnp.inf)
    met = sooner(met, jnp.where(unknown, Outcome.NOT_FINITE, Outcome.ACCEPTED))
    likely = jnp.exp(jnp.minimum(0.0, log_ratio))
    acceptance = jnp.where(met == Outcome.ACCEPTED, likely, 0.0)
    refused = jnp.where(noise.coin < acceptance, Outcome.ACCEPTED, Outcome.METROPOLIS)
    return sooner(met, refused), acceptance


def on_surface(target: Target, x: Vector, step_size) -> State:
    """The first state of a chain that makes steps of this size, at a point of the surface."""
    values, normals = target.values_and_normals(x)
    on, reach = jnp.bool_(True), reach_of(x, step_size)
    return State(x, on, values, normals, factor(normals), target.log_density_at(x), reach)


def reach_of(x: Vector, step_size) -> Float[Array, ""]:
    """How far from the origin a chain begins; at the origin itself, its step size will do."""
    distance = jnp.linalg.norm(x)
    return jnp.where(distance > 1e-8 * step_size, distance, step_size)


def hard_log_ratio(state: State, proposal: State, slide, back, sigma, gradient_factor=1.0):
    """Log of the Hard move's acceptance ratio: (2.2) with (2.6), whose Jacobians cancel.

    The density on the surface is exp(l) det(K)^(-1/2), or exp(l) where gradient_factor is 0.
    """
    change = proposal.log_density - state.log_density
    change -= gradient_factor * (half_log_det(proposal.factor) - half_log_det(state.factor))
    return change + (jnp.sum(slide**2) - jnp.sum(back**2)) / (2 * sigma**2)


def soft_log_ratio(state: State, proposal: State):
    """Log of the Soft move's acceptance ratio: (2.2) with a symmetric proposal."""
    change = proposal.log_density - state.log_density
    return change - (jnp.sum(proposal.values**2) - jnp.sum(state.values**2)) / 2


def chosen(flag, yes, no):
    """`yes` where flag holds, else `no`, for whole states."""
    return jax.tree.map(lambda a, b: jnp.where(flag, a, b), yes, no)


def check_fields(kernel, check, *names):
    """Refuse numbers that `check` refuses; None stands for a default, where there is one."""
    defaults = {field.name: field.default for field in dataclasses.fields(kernel)}
    for name in names:
        value = getattr(kernel, name)
        if value is not None or defaults[name] is not None:
            object.__setattr__(kernel, name, check(name, value))
