"""What is sampled: pi_eps(x) ~ exp(l(x) - |q(x)/eps|^2 / 2), near the surface S = {q = 0}.

A `Target` holds the user's functions; `limpet.target_checks` says what they must be. Inside limpet
q is always divided by eps ("whitened"), so that one constraint, several, and several tolerances are
all the same case.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from limpet import symmetries as moves
from limpet.derivatives import paired, values_and_normals, values_and_normals_once
from limpet.engine.cache import keep_programs
from limpet.errors import InputError, PrecisionWarning, warn
from limpet.frame import Frame, InFrame, to_coordinates, to_point
from limpet.layout import Layout
from limpet.shapes import Normals, Values, Vector
from limpet.sparse.colours import Colouring, find_colouring
from limpet.sparse.forest import ForestColouring
from limpet.sparse.split import split_colouring
from limpet.target_checks import (
    CHECKS,
    CROWDED_UNFORCED,
    FIRST_REMEDY,
    SECOND_REMEDY,
    UNFORCED,
    Frozen,
    OnVectors,
    Whitened,
    check_constraints,
    check_indices,
    check_room,
    digest,
    digest_of_data,
    read_data,
    read_eps,
    short_floats,
    trace,
)

MODES = ("forward", "reverse")
FUNCTIONS = ("q", "eps", "log_density", "inside")  # the user's; eps may be numbers


class Target:
    """A distribution concentrated near a surface, exp(l(x)) exp(-|q(x)/eps|^2 / 2).

    Parameters
    ----------
    q : callable
        The constraints: one point in, a vector of m numbers out, written with `jax.numpy`.
        The surface is where all of them are zero. With as many as there are unknowns, or more (data
        to be fitted), there is none: `limpet.Lifted` and `limpet.RandomWalk` need none.
    eps : float, sequence of float, or callable
        How far each constraint strays from zero; one number, or one per constraint. A function of
        the point makes noise that is unknown: the density is divided by it, once per constraint.
    log_density : callable, optional
        l(x), a smooth log density that multiplies the whole distribution; zero by default.
    inside : callable, optional
        Hard walls: returns numbers that must all be >= 0 for a point to be allowed.
    data : array or pytree of arrays, optional
        What all of these functions are given as a second argument: q(x, data). Other data of the
        same shapes need no new compilation.
    derivatives : {"forward", "reverse"}, optional
        How derivatives are taken. By default whatever is cheaper: forward where constraints are as
        many as unknowns, or more, else reverse. "forward" is forward throughout, for functions that
        allow nothing else.
    symmetries : list of callables, optional
        Moves y = move(x, z), with 8 standard normals z, that keep |q / eps| and volume; from y, -z
        must lead back to x. `limpet.pivot` and `limpet.crankshaft` are some.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> circle
    Target(q=<lambda>, eps=0.01)

    A line through four data, with noise of unknown size:

    >>> def misfit(x, data):
    ...     return x["slope"] * data["at"] - data["y"]
    >>> data = {"at": jnp.arange(4.0), "y": jnp.array([0.1, 0.9, 2.2, 2.9])}
    >>> line = limpet.Target(misfit, lambda x, data: jnp.exp(x["log_noise"]), data=data)
    >>> draws = limpet.sample(line, {"slope": 0.0, "log_noise": 0.0}, draws=500, chains=16)
    >>> round(float(draws.posterior["slope"].mean()), 1)
    1.0
    """

    def __init__(
        self,
        q: Callable,
        eps: Any,
        *,
        log_density: Callable | None = None,
        inside: Callable | None = None,
        data: Any = None,
        derivatives: str | None = None,
        symmetries: Any = (),
    ) -> None:
        for name, function in (("q", q), ("log_density", log_density), ("inside", inside)):
            if not callable(function) and not (function is None and name != "q"):
                raise InputError(f"{name}={function!r}: expected a function of one point.")
        if derivatives not in (None, *MODES):
            raise InputError(
                f"derivatives={derivatives!r}: expected one of {', '.join(map(repr, MODES))}, or"
                " None for whatever is cheaper."
            )
        self.q = q
        self.eps: Any = eps if callable(eps) else read_eps(eps)
        self.log_density = log_density
        self.inside = inside
        self.data: Any = None if data is None else read_data(data)
        self.derivatives = derivatives
        self.symmetries = moves.read_symmetries(symmetries)
        # eps, or what it is where chains start, if it is a function: see `freeze`
        self.scale: Any = None if callable(eps) else self.eps
        # how sparse normals are computed: see `freeze` and `in_frame`
        self.colouring: Colouring | ForestColouring | None = None

    start: Any = None  # where to begin; targets made of models know it
    fewest_sparse: ClassVar[int | None] = None  # constraints from which only entries are kept

    def translate(self, draws: Any) -> Any:
        """Draws in the words of whoever made the target: here as they are."""
        return draws

    @property
    def functions(self) -> dict[str, Callable]:
        """The user's functions, by name."""
        given = {"q": self.q, "eps": None if self.has_fixed_eps else self.eps}
        given |= {"log_density": self.log_density, "inside": self.inside}
        return {name: function for name, function in given.items() if function is not None}

    def __repr__(self) -> str:
        names = {name: _name(function) for name, function in self.functions.items()}
        names |= {"eps": np.asarray(self.eps).tolist()} if self.has_fixed_eps else {}
        shown = [f"{name}={names[name]}" for name in FUNCTIONS if name in names]
        shown += ["data=..."] if self.data is not None else []
        names = ", ".join(symmetry.name for symmetry in self.symmetries)
        shown += [f"symmetries=[{names}]"] if names else []
        shown += [f"derivatives={self.derivatives!r}"] if self.derivatives else []
        return f"Target({', '.join(shown)})"

    @property
    def more(self) -> tuple[Any, ...]:
        """What the user's functions are given after the point: the data, if there are any."""
        return () if self.data is None else (self.data,)

    @property
    def has_fixed_eps(self) -> bool:
        """Whether eps is known, and no function of the point."""
        return not callable(self.eps)

    # What the samplers ask, of vectors only.

    def eps_at(self, x: Vector) -> Any:
        """Eps at x: one number, or one per constraint."""
        return self.eps if self.has_fixed_eps else self.eps(x, *self.more)

    def values(self, x: Vector) -> Values:
        """q(x) / eps."""
        return self.q(x, *self.more) / self.eps_at(x)

    def values_and_normals(self, x: Vector) -> tuple[Values, Normals]:
        """q(x) / eps and its gradients, one a column."""
        # a frozen function is traced once, wherever it is used
        frozen = isinstance(self.q, Frozen | InFrame)
        return (values_and_normals_once if frozen else values_and_normals)(self, x)

    def values_and_dense_normals(self, x: Vector) -> tuple[Values, Float[Array, "n m"]]:
        """The same, where constraints are so many that all entries are kept."""
        values, normals = self.values_and_normals(x)
        return values, cast(Array, normals)

    def values_normals_and_pull_back(
        self, x: Vector
    ) -> tuple[Values, Float[Array, "n m"], Callable[[Array], Vector]]:
        """The same, and W -> the gradient of the sum of W * normals, for a fixed W."""
        normals_at = self.values_and_dense_normals
        if self.derivatives == "forward":
            values, normals = normals_at(x)
            return values, normals, lambda W: self.gradient(lambda x: paired(W, normals_at(x)), x)
        (values, normals), pull_back = jax.vjp(normals_at, x)
        nothing = jnp.zeros_like(values)
        return values, normals, lambda W: pull_back((nothing, W))[0]

    def gradient(self, function: Callable[[Vector], Array], x: Vector) -> Vector:
        """The gradient of a function that is made of this target's."""
        if self.derivatives != "forward":
            return jax.grad(function)(x)
        return jax.vmap(lambda t: jax.jvp(function, (x,), (t,))[1])(jnp.eye(len(x)))

    def log_density_and_gradient(self, x: Vector, forced: bool) -> tuple[Float[Array, ""], Vector]:
        """The log density at x, and its gradient if a sampler follows that; else zero."""
        constant = self.log_density is None and self.has_fixed_eps
        if constant or not forced:
            return self.log_density_at(x), jnp.zeros_like(x)
        return self.log_density_at(x), self.gradient(self.log_density_at, x)

    def log_density_at(self, x: Vector) -> Float[Array, ""]:
        """l(x), less the sum of log eps if that is a function, which Gaussians are divided by."""
        given = jnp.zeros(()) if self.log_density is None else self.log_density(x, *self.more) + 0.0
        if self.has_fixed_eps:
            return given
        m = jax.eval_shape(Target.values, self, x).shape
        return given - jnp.sum(jnp.log(jnp.broadcast_to(self.eps_at(x), m)))

    def is_crowded(self, x: Vector | jax.ShapeDtypeStruct) -> bool:
        """Whether constraints are as many as unknowns, or more: there is no surface in x then."""
        return jax.eval_shape(Target.values, self, x).size >= len(x)

    def contains(self, x: Vector) -> Bool[Array, ""]:
        """Whether x is on the allowed side of every wall."""
        inside = self.inside
        return jnp.bool_(True) if inside is None else jnp.all(inside(x, *self.more) >= 0)

    def typical_eps(self) -> Any:
        """Eps, or what it is where chains start."""
        if self.scale is None:
            raise InputError(
                "eps is a function, and step sizes that follow from it are known to limpet.sample"
                " only: give the kernel all of them."
            )
        return self.scale

    def smallest_eps(self) -> Float[Array, ""]:
        """The length that a step off the surface may not exceed by much."""
        return jnp.min(self.typical_eps())

    def on_vectors(self, layout: Layout) -> "Target":
        """The same target as a function of the vector of a point's numbers."""
        if layout.is_vector:
            return self
        wrapped = {name: OnVectors(function, layout) for name, function in self.functions.items()}
        return self._with(wrapped, None, self.scale, moves.on_vectors(self.symmetries, layout))

    def plain(self) -> "Target":
        """The same target with eps = 1: its values and normals are those of q itself."""
        functions = {name: f for name, f in self.functions.items() if name != "eps"}
        # entries of normals that only eps depends on are not q's, but zero
        return self._with(functions, self.colouring, np.float64(1.0))

    def coloured(self, colouring: Colouring | None) -> "Target":
        """The same target, with the entries of its normals that this has; all if it is None."""
        return self._with(self.functions, colouring, self.scale)

    def with_eps(self, eps: Any) -> "Target":
        """The same target with other numbers for eps."""
        functions = {name: f for name, f in self.functions.items() if name != "eps"}
        return self._with(functions, None, read_eps(eps))

    def in_frame(self, frame: Frame, through: ForestColouring | None) -> "Target":
        """The same target as a function of the coordinates of a frame, and maybe of a forest."""
        forest = None if through is None else through.forest
        functions = {name: InFrame(f, forest) for name, f in self.functions.items()}
        symmetries = moves.in_frame(self.symmetries, forest)
        target = self._with(functions, through or self.colouring, self.scale, symmetries)
        target.data = (frame, *self.more)
        return target

    def point(self, x: Vector) -> Vector:
        """The point of which these are the coordinates: itself, unless the target has a frame."""
        return to_point(self.data[0], self.q.forest, x) if isinstance(self.q, InFrame) else x

    def coordinates(self, x: Any) -> Any:
        """The coordinates for which `point` gives x; of NumPy's arrays also of many points."""
        if not isinstance(self.q, InFrame):
            return x
        return to_coordinates(self.data[0], self.q.forest, x)

    def _with(self, functions: Any, colouring: Any, scale: Any, symmetries: Any = None) -> "Target":
        every = tuple(functions.get(name) for name in FUNCTIONS)
        symmetries = self.symmetries if symmetries is None else symmetries
        return _rebuild((every, colouring, self.derivatives, symmetries), (scale, self.data))

    def fingerprint(self, x: Vector) -> dict[str, str | None]:
        """Digests of what the functions compute and of their data, the same in every process."""
        found: dict[str, str | None] = dict.fromkeys(("q", "log_density", "inside"))
        for name, function in self.functions.items():
            program = trace(name, function, x, *self.more)[0]
            found[name] = digest(program, function, x, *self.more)
        found |= moves.fingerprints(self.symmetries, x, *self.more)
        return found | ({} if self.data is None else {"data": digest_of_data(self.data)})

    def freeze(self, x: Vector) -> "Target":
        """The same target, its functions kept as they are now; refused if they cannot be used.

        JAX keeps compiled programs by function. A frozen function goes by what it computes: one
        that reads a variable which has changed since is another one, and compiled anew.
        """
        frozen: dict[str, Callable] = {}
        # a program made inside another's tracing may hold numbers that end with that
        fixed = not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((x, self.more)))
        m = 0
        for name, function in self.functions.items():
            jaxpr, shape = trace(name, function, x, *self.more)
            if name == "q":
                m = check_constraints(shape, np.shape(self.scale))
            else:
                CHECKS[name](shape, m)
            if short := short_floats(jaxpr):
                warn(
                    f"{name} computes with {short} numbers, probably constants made before"
                    " limpet was imported: too few digits to hold a point on the surface."
                    " Make the constants after `import limpet`, or with dtype=float.",
                    PrecisionWarning,
                )
            check_indices(name, function, x, *self.more)
            fingerprint = digest(jaxpr, function, x, *self.more)
            frozen[name] = Frozen(fingerprint, function, jaxpr if fixed else None)
        trace("the derivative of q", self.values_and_normals, x, remedy=FIRST_REMEDY)
        scale = self.scale if self.has_fixed_eps or isinstance(x, Tracer) else self.eps_at(x)
        kept = moves.freeze(self.symmetries, x, *self.more)
        target = self._with(frozen, None, scale if scale is None else np.asarray(scale), kept)
        # what data there are decides which entries are zero, and other data need the same program
        if self.data is None and not self.is_crowded(x):
            r = frozen["q"] if self.has_fixed_eps else Whitened(frozen["q"], frozen["eps"])
            colouring = find_colouring(r, len(x), self.fewest_sparse)
            if colouring is not None and self.derivatives is not None:
                reverse = self.derivatives == "reverse"
                colouring = dataclasses.replace(colouring, reverse=reverse)
            elif colouring is not None and self.has_fixed_eps:
                colouring = split_colouring(r, colouring)
            target.colouring = colouring
            if colouring is None:
                check_room(m, len(x))
        return target

    def check_forces(self, x: Vector) -> None:
        """Refuse functions without the derivatives that trajectories follow."""

        def total(x: Vector) -> Array:
            return jnp.sum(jax.tree.leaves(self.values_and_normals(x)[1])[0])

        def slope(x: Vector) -> Vector:
            return self.gradient(self.log_density_at, x)

        remedy = SECOND_REMEDY + (CROWDED_UNFORCED if self.is_crowded(x) else UNFORCED)
        trace("the second derivative of q", lambda x: self.gradient(total, x), x, remedy=remedy)
        trace("the gradient of log_density", slope, x, remedy=remedy)


def _rebuild(program: tuple[Any, ...], numbers: tuple[Any, ...]) -> Target:
    # without the constructor, which would refuse what JAX puts in the place of numbers
    target = object.__new__(Target)
    (target.q, eps, target.log_density, target.inside), *rest = program
    target.colouring, target.derivatives, target.symmetries = rest
    target.scale, target.data = numbers
    target.eps = target.scale if eps is None else eps
    return target


# eps and data are numbers, the functions are part of the program: others of the former need no new
# compilation.
jax.tree_util.register_pytree_node(
    Target,
    lambda target: (
        (target.scale, target.data),
        (
            tuple(target.functions.get(name) for name in FUNCTIONS),
            target.colouring,
            target.derivatives,
            target.symmetries,
        ),
    ),
    _rebuild,
)


def check_target(target: Target) -> None:
    """Refuse what is not a target, and a JAX without doubles; what follows may compile."""
    if not isinstance(target, Target):
        raise InputError(f"target={target!r}: expected a limpet.Target(q, eps).")
    if not jax.config.read("jax_enable_x64"):
        raise InputError(
            "JAX is set to single precision (jax_enable_x64 is False): limpet needs doubles."
            ' Leave it as `import limpet` sets it, or jax.config.update("jax_enable_x64", True).'
        )
    keep_programs()


def _name(function: Callable) -> str:
    return getattr(function, "__name__", type(function).__name__)
