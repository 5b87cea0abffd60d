"""Constraints that come and go: bonds that vibrate, break and form.

A `Strata` is a target of which some constraints always hold, and others hold or not. Which of them
do is part of the point, its labels, so that whatever keeps, stores and shows points does it for
labels as well: to q and the other functions of a user they are coordinates that change nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Bool, Float

from limpet import errors
from limpet.errors import InputError
from limpet.layout import Layout
from limpet.shapes import Values, Vector
from limpet.strata_checks import check_fit, read_flags, read_indices, read_sets, read_sizes
from limpet.target import FUNCTIONS, Target
from limpet.target_checks import OnVectors, check_constraints, trace

LABELS = "bonds"  # the variable that says which constraints hold
POINT = "x"  # what a start that is a plain vector is called, as everywhere
BATCH = 4_096  # draws that are looked at at once: enough to vectorise, and little memory
# Times as many constraints as may hold at one time, from which on these have rooms (see
# `limpet.kernels.stratum`): of 15 spheres, 105 pairs with 42 rooms take 1.1 times as long as all of
# them over tables, with 30 rooms 0.7.
PACKED_FROM = 3
HALF_LOG_TWO_PI = np.log(2 * np.pi) / 2

Labels = Float[Array, " k"]  # of constraints that may break: 1 where one holds, else 0


class Strata(Target):
    """A distribution near surfaces that come and go: some constraints hold always, some at times.

    Its density is exp(l(x)) times a factor for each constraint. With phi the density of a Gaussian
    of width eps, that of a constraint which always holds is phi(q(x)); of another it is

        kappa phi(q(x)) + 1 where q(x) > 0        (nothing but kappa phi(q(x)) elsewhere).

    So a bond of two particles is a narrow well at their contact, of stickiness kappa, and beside it
    they may be anywhere apart. `limpet.sample` draws x together with which of these constraints
    hold, `bonds`: 1 or 0.

    Parameters
    ----------
    q : callable
        All constraints: one point in, a vector of m numbers out, written with `jax.numpy`.
    eps : float or sequence of float
        How far each constraint strays from zero where it holds.
    kappa : float or sequence of float
        The stickiness of constraints that may break, in units of q: one number, or one for each of
        them, in their order.
    always : sequence of int
        Which constraints always hold, counted from 0.
    reach : float or sequence of float
        From how far constraints that may break form, in units of q: one number, or one for each of
        them. What counts is how these compare to each other, since warm-up finds a factor for all.
    two_sided : bool or sequence of bool
        Whether q may have any sign where a constraint does not hold; else it is positive there. One
        for all, or one for each constraint that may break.
    allowed : sequence of sequences of int, optional
        The sets of constraints, of those that may break, which may hold at one time; any by
        default. Constraints are counted as q returns them.
    at_once : int, optional
        How many constraints may hold at one time, those that always do included; any number by
        default. Where few of very many ever do, as of all pairs of particles those in contact, the
        time of a step follows this number, not theirs.
    log_density, inside, data, derivatives
        As in `limpet.Target`.

    Examples
    --------
    Three disks in a row, of which the first and the last may stick together, too:

    >>> import jax.numpy as jnp
    >>> import limpet
    >>> def contacts(x):
    ...     a, b, c = x.reshape(3, 2)
    ...     gap = lambda r: (r @ r - 1) / 2
    ...     return jnp.stack([gap(b - a), gap(c - b), gap(c - a)])
    >>> near = lambda x: -x @ x
    >>> trimer = limpet.Strata(contacts, 0.01, kappa=2.0, always=[0, 1], log_density=near)
    >>> draws = limpet.sample(trimer, [-1.0, 0, 0, 0, 1.0, 0], draws=500, chains=32, progress=False)
    >>> draws.posterior["bonds"].shape
    (32, 500, 1)
    >>> bool(0.5 < draws.posterior["bonds"].mean() < 0.9)
    True
    """

    # with labels too there are more numbers than registers: six spheres, whose 15 pairs are sparse,
    # take a third of the time by tables
    fewest_sparse: ClassVar[int | None] = 9

    def __init__(
        self,
        q: Callable,
        eps: Any,
        kappa: Any,
        *,
        always: Iterable[int] = (),
        reach: Any = 1.0,
        two_sided: Any = False,
        allowed: Any = None,
        at_once: int | None = None,
        log_density: Callable | None = None,
        inside: Callable | None = None,
        data: Any = None,
        derivatives: str | None = None,
    ) -> None:
        if callable(eps):
            raise InputError(
                "eps is a function: expected numbers, for a constraint that comes and goes has no"
                " noise to be learned."
            )
        super().__init__(
            q, eps, log_density=log_density, inside=inside, data=data, derivatives=derivatives
        )
        self.kappa: Any = read_sizes("kappa", kappa, " One that never holds is left out of q.")
        self.reach: Any = read_sizes("reach", reach)
        self.always = read_indices("always", always)
        self.two_sided = read_flags(two_sided)
        self.allowed = None if allowed is None else read_sets(allowed)
        self.at_once = errors.count_or_none("at_once", at_once)
        self.pairs: tuple[tuple[int, int], ...] = ()  # of spheres that may stick
        self.m = 0  # constraints, and the place of their labels: known with a layout
        self.place = 0

    def __repr__(self) -> str:
        plain = super().__repr__().removeprefix("Target(").removesuffix(")")
        shown = [plain, f"kappa={np.asarray(self.kappa).tolist()}", f"always={list(self.always)}"]
        return f"Strata({', '.join(shown)})"

    def bond_probabilities(self, draws: Any) -> xr.DataArray:
        """How likely each constraint holds given x alone, at every draw.

        Their means are those of `bonds`, with less Monte Carlo error where eps is large.

        Parameters
        ----------
        draws : xarray.DataTree
            Of this target with constraints that stray by eps, from `limpet.sample`.

        Returns
        -------
        xarray.DataArray
            Of the shape of `draws.posterior["bonds"]`.

        Examples
        --------
        >>> import limpet
        >>> wall = limpet.Strata(lambda x: x[:1], 0.1, kappa=1.0, log_density=lambda x: -x @ x)
        >>> draws = limpet.sample(wall, [0.5], draws=500, chains=32, progress=False)
        >>> round(float(wall.bond_probabilities(draws).mean()), 1)
        0.5
        """
        posterior = draws["posterior"].to_dataset()
        names = [name for name in posterior.data_vars if name != LABELS]
        parts = {name: posterior[name].values for name in names}
        lead = posterior[LABELS].shape[:2]
        point = {name: part.reshape(-1, *part.shape[2:]) for name, part in parts.items()}
        first = with_labels({name: part[0] for name, part in point.items()}, [])
        flat = self.with_functions(self.functions)
        flat.m = flat.count_constraints(without_labels(first))

        def probabilities(row: Any) -> Values:
            q = flat.q(without_labels(row), *flat.more)
            return jax.nn.sigmoid(flat.log_odds(q / flat.widths))[np.array(flat.breakable)]

        found = jax.jit(lambda rows: jax.lax.map(probabilities, rows, batch_size=BATCH))(point)
        return posterior[LABELS].copy(data=np.asarray(found).reshape(*lead, -1))

    # What there is of labels.

    @property
    def breakable(self) -> tuple[int, ...]:
        """Which constraints may break."""
        return tuple(sorted(set(range(self.m)) - set(self.always)))

    @property
    def stickiness(self) -> Values:
        """Kappa of every constraint; of those that always hold it is one."""
        return self._spread(jnp.broadcast_to(self.kappa, (len(self.breakable),)), 1.0)

    @property
    def ranges(self) -> Values:
        """The reach of every constraint; of those that always hold it is one."""
        return self._spread(jnp.broadcast_to(self.reach, (len(self.breakable),)), 1.0)

    @property
    def widths(self) -> Values:
        """Eps of every constraint."""
        return jnp.broadcast_to(self.eps, (self.m,))

    @property
    def may_break(self) -> np.ndarray:
        """Of every constraint, whether it may."""
        return np.isin(np.arange(self.m), self.breakable)

    @property
    def walled(self) -> np.ndarray:
        """Of every constraint, whether q must be positive where it does not hold."""
        flags = np.broadcast_to(np.array(self.two_sided), (len(self.breakable),))
        walled = np.zeros(self.m, bool)
        walled[list(self.breakable)] = ~flags
        return walled

    def labels(self, x: Vector) -> Labels:
        """Those of a point."""
        return x[self.place : self.place + len(self.breakable)]

    def count_held(self, rows: np.ndarray) -> np.ndarray:
        """How many constraints hold, of those that may break, at points with labels, one a row."""
        return rows[:, self.place : self.place + len(self.breakable)].sum(axis=1)

    def holds(self, labels: Labels) -> Values:
        """Of every constraint, 1 where it holds and 0 where it does not."""
        return self._spread(labels, 1.0)

    def relabelled(self, x: Vector, holds: Values) -> Vector:
        """The same point with the labels of these constraints."""
        after = self.place + len(self.breakable)
        return jnp.concatenate([x[: self.place], holds[list(self.breakable),], x[after:]])

    def free(self, n: int) -> np.ndarray:
        """Of every number of a point, whether it is a coordinate: 1, or 0 if it is a label."""
        place = np.arange(n)
        return np.where((place < self.place) | (place >= self.place + len(self.breakable)), 1.0, 0)

    @property
    def rooms(self) -> int:
        """How many constraints may hold at one time."""
        return self.m if self.at_once is None else min(self.at_once, self.m)

    def has_room(self, count: Any) -> Bool[Array, ""]:
        """Whether so many constraints may hold."""
        return jnp.bool_(True) if self.rooms == self.m else count <= self.rooms

    def is_allowed(self, holds: Values) -> Bool[Array, ""]:
        """Whether these constraints may hold together."""
        if self.allowed is None:
            return self.has_room(jnp.sum(holds))
        sets = np.array([np.isin(np.arange(self.m), each) for each in self.allowed], float)
        chosen = jnp.where(self.may_break, holds, 0.0)
        is_one = jnp.any(jnp.sum(jnp.abs(sets - chosen), axis=1) == 0)
        return is_one & self.has_room(jnp.sum(holds))

    def log_odds(self, values: Values) -> Values:
        """The log of how much likelier each constraint holds than not, given q / eps alone."""
        weight = jnp.log(self.stickiness / self.widths) - HALF_LOG_TWO_PI - values**2 / 2
        return jnp.where(self.walled & (values <= 0), jnp.inf, weight)

    def log_weight(self, holds: Values, rigid: bool) -> Float[Array, ""]:
        """What the label set itself adds to the log density."""
        scale = 0.0 if rigid else jnp.log(self.widths) + HALF_LOG_TWO_PI
        return jnp.sum(jnp.where(self.may_break, holds * (jnp.log(self.stickiness) - scale), 0.0))

    def _spread(self, numbers: Array, otherwise: float) -> Values:
        """Numbers of those that may break, among all constraints."""
        place = np.maximum(np.cumsum(self.may_break) - 1, 0)
        return jnp.where(self.may_break, numbers[place], otherwise)

    # A target of vectors that have labels.

    def on_vectors(self, layout: Layout) -> "Strata":
        """The same target as a function of the vector of a point's numbers, labels among them."""
        if LABELS not in layout.names:
            raise InputError(
                f"target={self!r} has labels, and the point has none: expected a dict with"
                f" {LABELS!r} in it. limpet.sample takes points without, and finds them."
            )
        k = layout.names.index(LABELS)
        sizes = [int(np.prod(shape)) for shape in layout.shapes]
        wrapped = {
            name: OnVectors(Unlabelled(function), layout)
            for name, function in self.functions.items()
        }
        target = self.with_functions(wrapped)
        target.place = sum(sizes[:k])
        target.m = target.count_constraints(jnp.zeros(layout.size))
        return target

    def count_constraints(self, x: Any) -> int:
        """How many there are, at a point as q takes it; refused if other numbers do not fit."""
        _, shape = trace("q", self.q, x, *self.more)
        m = check_constraints(shape, np.shape(self.scale))
        check_fit(self, m)
        return m

    def with_functions(self, functions: dict[str, Any]) -> "Strata":
        """The same with other functions in the place of the user's."""
        return self._with(functions, None, self.scale)

    def _with(self, functions: Any, colouring: Any, scale: Any, symmetries: Any = None) -> "Strata":
        every = tuple(functions.get(name) for name in FUNCTIONS)
        aux = (every, colouring, self.derivatives), self._program
        return _rebuild(aux, (scale, self.data, self.kappa, self.reach))

    @property
    def _program(self) -> tuple[Any, ...]:
        return self.always, self.two_sided, self.allowed, self.at_once, self.m, self.place

    @property
    def numbers(self) -> dict[str, np.ndarray]:
        """What a target is recognised by, beside its functions and eps."""
        sets = [np.isin(np.arange(self.m), each) for each in self.allowed or ()]
        return {
            "kappa": np.asarray(self.stickiness),
            "reach": np.asarray(self.ranges),
            "always": ~self.may_break,
            "two_sided": ~self.walled,
            "allowed": np.array(sets, float),
            "at_once": np.array(self.rooms),
        }


class Unlabelled:
    """A user's function of a point, as one of a point with labels; equal if both are."""

    def __init__(self, function: Callable) -> None:
        self.function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unlabelled) and self.function == other.function

    def __hash__(self) -> int:
        return hash(self.function)

    def __call__(self, point: dict[str, Any], *data: Any) -> Any:
        """What the function is there."""
        return self.function(without_labels(point), *data)


def without_labels(point: dict[str, Any]) -> Any:
    """A point as the user has it."""
    rest = {name: part for name, part in point.items() if name != LABELS}
    return rest[POINT] if rest.keys() == {POINT} else rest


def with_labels(point: Any, labels: Any) -> dict[str, Any]:
    """A user's point, and labels; a dict with other names than x keeps them."""
    parts = point if isinstance(point, dict) else {POINT: point}
    return parts | {LABELS: labels}


def _rebuild(aux: tuple[Any, ...], numbers: tuple[Any, ...]) -> Strata:
    # without the constructor, which would refuse what JAX puts in the place of numbers
    (functions, colouring, derivatives), program = aux
    target = object.__new__(Strata)
    target.q, _, target.log_density, target.inside = functions
    target.colouring, target.derivatives, target.symmetries = colouring, derivatives, ()
    target.always, target.two_sided, target.allowed = program[:3]
    target.at_once, target.m, target.place = program[3:]
    target.scale, target.data, target.kappa, target.reach = numbers
    target.eps = target.scale
    return target


def _flatten(target: Strata) -> tuple[tuple[Any, ...], Any]:
    functions = tuple(target.functions.get(name) for name in FUNCTIONS)
    program = (functions, target.colouring, target.derivatives), target._program
    return (target.scale, target.data, target.kappa, target.reach), program


jax.tree_util.register_pytree_node(Strata, _flatten, _rebuild)
