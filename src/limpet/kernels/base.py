"""What every sampler has in common: one chain, one step, and what it tells of itself.

A new sampler is one file: a subclass of `Kernel` with its numbers as fields, and `start` and
`move`. What moves are made of is in `limpet.kernels.moves`.
"""

import abc
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from limpet.errors import InputError, warn
from limpet.geometry.symmetry_checks import check_symmetries
from limpet.kernels.noise import Generator, Noise, draw, generator_from
from limpet.kernels.states import Info, Move, State
from limpet.kernels.symmetry import Tally, follow_symmetries
from limpet.layout import Layout, as_point
from limpet.shapes import Vector
from limpet.target import Target, check_target

# Moves by symmetries: a pivot of 30 beads takes a twentieth of the time of a slide. A choice: more
# would pay there, but not where a slide costs least.
SYMMETRIES_PER_SLIDE = 4


class Tunable(NamedTuple):
    """Sizes that warm-up changes together, and what it judges them by."""

    names: tuple[str, ...]
    moves: tuple[Move, ...]
    acceptance: float | None = None  # the largest size is wanted with this; if None, the farthest
    may_grow: bool = True  # beyond what was given
    whole: bool = False  # a number of slides: whole, and the most effective draws per slide wanted
    # no larger than the size that goes farthest: larger ones may be accepted for leading nowhere
    bounces: bool = False


@dataclass_transform(frozen_default=True)
class Kernel(abc.ABC):
    """A sampler: numbers, a first state, and a step for one chain.

    A subclass is a frozen dataclass. Its numbers are data to JAX, so that others compile nothing
    anew; fields named in `static` (whole numbers, words) are part of the program.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    static: ClassVar[tuple[str, ...]] = ()
    checks: ClassVar[dict[str, Callable[[str, Any], Any]]] = {}  # by field: what it must be
    renamed: ClassVar[dict[str, str]] = {}  # fields' names of earlier versions, and today's
    elsewhere: ClassVar[dict[str, str]] = {}  # what people look for here, and where it is
    known: ClassVar[dict[str, type["Kernel"]]] = {}  # by name, as a store says it
    needs_surface: ClassVar[bool] = False  # in x: fewer constraints than unknowns

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)
        cls.__init__ = _checking_init(cls)
        jax.tree_util.register_pytree_node(cls, _flatten, functools.partial(_unflatten, cls))
        Kernel.known[cls.__name__] = cls

    def __getattr__(self, name: str) -> Any:
        if name not in self.renamed:
            raise AttributeError(f"limpet.{type(self).__name__} has no {name}")
        return getattr(self, _current_name(type(self), name))

    @property
    @abc.abstractmethod
    def moves(self) -> tuple[Move, ...]:
        """What it does, of all that a chain can do."""

    @property
    @abc.abstractmethod
    def tunables(self) -> tuple[Tunable, ...]:
        """What warm-up finds for it."""

    @property
    def crowded_tunables(self) -> tuple[Tunable, ...]:
        """The same where constraints are as many as unknowns, or more; they have the same names."""
        return self.tunables

    @property
    def step_sizes(self) -> dict[Move, tuple[str, ...]]:
        """Which numbers make each move longer or shorter."""
        return {m: t.names for t in self.tunables if not t.whole for m in t.moves}

    @property
    def is_forced(self) -> bool:
        """Whether its moves follow the gradient of the density."""
        return False

    @property
    def takes_frames(self) -> bool:
        """Whether it may run in other linear coordinates: its law is the same in all of them."""
        return True

    @property
    def learns_frames(self) -> bool:
        """Whether warm-up is to find such coordinates for it."""
        return self.takes_frames

    def check(self) -> None:  # noqa: B027 (most have nothing more to check)
        """Refuse numbers that do not fit each other."""

    def fitted(self, target: Target) -> "Kernel":
        """The same sampler with numbers filled in that depend on the target, here none."""
        return self

    def check_room(self, target: Target, x: Vector) -> None:
        """Refuse a target without a surface, if this sampler moves on it."""
        if self.needs_surface and target.is_crowded(x):
            m, name = jax.eval_shape(Target.values, target, x).size, type(self).__name__
            raise InputError(
                f"q returned m = {m} constraints for n = {len(x)} unknowns: limpet.{name} expected"
                " m < n, else the surface has no room to move in. kernel=limpet.Lifted() takes any"
                " number of them."
            )

    @abc.abstractmethod
    def draw_share(self) -> float:
        """The share of steps that end in a draw, about."""

    @abc.abstractmethod
    def is_draw(self, state: State) -> Bool[Array, ""]:
        """Whether this state is one of the draws that the sampler is run for."""

    @abc.abstractmethod
    def sizes(self, target: Target) -> dict[str, Any]:
        """Step sizes and the like as they are used on this target: all that is tunable, at least.

        Warm-up gives others in their place.
        """

    @abc.abstractmethod
    def start(self, target: Target, x: Vector) -> State:
        """The first state, at a vector x on the surface."""

    @abc.abstractmethod
    def move(
        self, target: Target, tuned: dict[str, Any], noise: Noise, state: State
    ) -> tuple[State, Info]:
        """One step of one chain, given its random numbers; `state.x` is a vector.

        `tuned` has the sizes that warm-up found, in place of those in `sizes`.
        """

    def noise_size(self, state: State) -> int:
        """How many normal numbers a step takes."""
        return len(state.x)

    def slides(self, sizes: dict[str, Any]) -> Any:
        """How many slides a step has: the more, the more moves by symmetries follow."""
        return 1

    def log_area_weight(self, target: Target, x: Vector) -> Float[Array, ""]:
        """Of the law on S at x: log of its density by exp(l) delta(q/eps) dx, that of pi_s."""
        return jnp.zeros(())

    def make_step(
        self, target: Target, tuned: dict[str, Any], generator: Generator, state: State
    ) -> tuple[Generator, State, Info, Tally | None]:
        """One step, then moves by the target's symmetries; `state.x` is a vector."""
        generator, noise = draw(generator, self.noise_size(state))
        new, info = self.move(target, tuned, noise, state)
        if not target.symmetries:
            return generator, new, info, None
        travelled = jnp.sum((new.x - state.x) ** 2)
        count = SYMMETRIES_PER_SLIDE * self.slides(self.sizes(target) | tuned)
        generator, new, walk = follow_symmetries(self, target, generator, new, count)
        return generator, new, info, Tally(walk.outcomes, walk.acceptance, travelled)

    def parameters(self, target: Target) -> dict[str, Any]:
        """The numbers it runs with on this target, defaults filled in."""
        return dataclasses.asdict(self) | {
            name: np.asarray(value).tolist() for name, value in self.sizes(target).items()
        }

    def init(self, target: Target, x: Any) -> State:
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
        flat = target.on_vectors(layout).freeze(vector)
        self.check_room(flat, vector)
        if not isinstance(vector, Tracer):
            check_symmetries(flat, vector[None])
        return self.fitted(flat).start(flat, vector)._replace(x=layout.point(vector))

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
            The next state, and what was done: move, outcome, acceptance probability; of moves by
            the target's symmetries, which follow, nothing is told.
        """
        layout = Layout.of(state.x)
        flat = state._replace(x=layout.vector(state.x))
        flat_target = target.on_vectors(layout)
        kernel = self.fitted(flat_target)
        _, new, info, _ = kernel.make_step(flat_target, {}, generator_from(key), flat)
        return new._replace(x=layout.point(new.x)), info


def _checking_init(kind: type[Kernel]) -> Callable[..., None]:
    """The constructor of a sampler, which also knows old names, and refuses in words."""
    init, signature = kind.__init__, inspect.signature(kind.__init__)
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}

    @functools.wraps(init)
    def check_and_init(self: Kernel, *numbers: Any, **named: Any) -> None:
        named = {_current_name(kind, name): value for name, value in named.items()}
        if unknown := [name for name in named if name not in defaults]:
            hints = "".join(
                f" {kind.elsewhere[name]}" for name in unknown if name in kind.elsewhere
            )
            raise InputError(
                f"limpet.{kind.__name__} has no {', '.join(unknown)}: expected some of"
                f" {', '.join(defaults)}.{hints}"
            )
        given = signature.bind(self, *numbers, **named)
        given.apply_defaults()
        for name, check in kind.checks.items():
            value = given.arguments[name]
            if value is not None or defaults[name] is not None:
                given.arguments[name] = check(name, value)
        init(*given.args, **given.kwargs)
        self.check()

    return check_and_init


def _current_name(kind: type[Kernel], name: str) -> str:
    if name not in kind.renamed:
        return name
    today = kind.renamed[name]
    warn(f"{name} of limpet.{kind.__name__} is now called {today}.", DeprecationWarning)
    return today


def _flatten(kernel: Kernel) -> tuple[tuple[Any, ...], Any]:
    fields = {f.name: getattr(kernel, f.name) for f in dataclasses.fields(kernel)}
    program = tuple((name, fields.pop(name)) for name in kernel.static)
    return tuple(fields.values()), (tuple(fields), program)


def _unflatten(kind: type[Kernel], program: Any, numbers: Any) -> Kernel:
    # without the constructor, which would refuse what JAX puts in the place of numbers
    kernel = object.__new__(kind)
    vars(kernel).update(zip(program[0], numbers, strict=True))
    vars(kernel).update(program[1])
    return kernel
