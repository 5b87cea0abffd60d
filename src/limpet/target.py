"""What is sampled: pi_eps(x) ~ exp(l(x) - |q(x)/eps|^2 / 2), near the surface S = {q = 0}.

A `Target` holds the user's functions; `limpet.target_checks` says what they must be. Inside limpet
q is always divided by eps ("whitened"), so that one constraint, several, and several tolerances are
all the same case.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from limpet.engine.cache import keep_programs
from limpet.errors import InputError, PrecisionWarning, warn
from limpet.lanes.primitives import sparse
from limpet.layout import Layout
from limpet.shapes import Normals, Values, Vector
from limpet.target_checks import (
    UNFORCED,
    check_constraints,
    check_indices,
    check_scalar,
    check_walls,
    digest,
    read_eps,
    short_floats,
    trace,
)

# Most constraints whose gradients are taken one by one: fewer operations where many entries are
# zero, but code that grows with their number, as unrolled matrices do (limpet.geometry.linalg).
MOST_ONE_BY_ONE = 8


class Target:
    """A distribution concentrated near a surface, exp(l(x)) exp(-|q(x)/eps|^2 / 2).

    Parameters
    ----------
    q : callable
        The constraints: one point in, a vector of m numbers out, written with `jax.numpy`.
        The surface is where all of them are zero. m must be smaller than the number of unknowns.
    eps : float or sequence of float
        How far each constraint strays from zero; one number, or one per constraint.
    log_density : callable, optional
        l(x), a smooth log density that multiplies the whole distribution; zero by default.
    inside : callable, optional
        Hard walls: returns numbers that must all be >= 0 for a point to be allowed.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> circle
    Target(q=<lambda>, eps=0.01)
    """

    def __init__(
        self,
        q: Callable,
        eps: Any,
        *,
        log_density: Callable | None = None,
        inside: Callable | None = None,
    ) -> None:
        for name, function in (("q", q), ("log_density", log_density), ("inside", inside)):
            if not callable(function) and not (function is None and name != "q"):
                raise InputError(f"{name}={function!r}: expected a function of one point.")
        self.q = q
        self.eps = read_eps(eps)
        self.log_density = log_density
        self.inside = inside

    def __repr__(self) -> str:
        parts = [f"q={_name(self.q)}", f"eps={np.asarray(self.eps).tolist()}"]
        parts += [
            f"{name}={_name(function)}"
            for name, function in (("log_density", self.log_density), ("inside", self.inside))
            if function is not None
        ]
        return f"Target({', '.join(parts)})"

    # What the samplers ask, of vectors only.

    def values(self, x: Vector) -> Values:
        """q(x) / eps."""
        return self.q(x) / self.eps

    def values_and_normals(self, x: Vector) -> tuple[Values, Normals]:
        """q(x) / eps and its gradients, one a column."""
        # a frozen function is traced once, wherever it is used
        frozen = isinstance(self.q, _Frozen)
        return (_values_and_normals_once if frozen else _values_and_normals)(self, x)

    def log_density_at(self, x: Vector) -> Float[Array, ""]:
        """l(x)."""
        return jnp.zeros(()) if self.log_density is None else self.log_density(x) + 0.0

    def contains(self, x: Vector) -> Bool[Array, ""]:
        """Whether x is on the allowed side of every wall."""
        return jnp.bool_(True) if self.inside is None else jnp.all(self.inside(x) >= 0)

    def smallest_eps(self) -> Float[Array, ""]:
        """The length that a step off the surface may not exceed by much."""
        return jnp.min(self.eps)

    def on_vectors(self, layout: Layout) -> "Target":
        """The same target as a function of the vector of a point's numbers."""
        if layout.is_vector:
            return self

        functions = tuple(
            None if function is None else _OnVectors(function, layout)
            for function in (self.q, self.log_density, self.inside)
        )
        return _rebuild(functions, (self.eps,))

    def plain(self) -> "Target":
        """The same target with eps = 1: its values and normals are those of q itself."""
        return _rebuild((self.q, self.log_density, self.inside), (np.float64(1.0),))

    def fingerprint(self, x: Vector) -> dict[str, str | None]:
        """Digests of what the functions compute, the same in every process."""
        functions = {"q": self.q, "log_density": self.log_density, "inside": self.inside}
        programs = {name: f and trace(name, f, x)[0] for name, f in functions.items()}
        return {name: p and digest(p, functions[name], x) for name, p in programs.items()}

    def freeze(self, x: Vector) -> "Target":
        """The same target, its functions kept as they are now; refused if they cannot be used.

        JAX keeps compiled programs by function. A frozen function goes by what it computes: one
        that reads a variable which has changed since is another one, and compiled anew.
        """
        jaxpr, shape = trace("q", self.q, x)
        check_constraints(shape, len(x), np.shape(self.eps))
        trace("the derivative of q", self.values_and_normals, x)
        jaxprs = {"q": jaxpr, "log_density": None, "inside": None}
        if self.log_density is not None:
            jaxprs["log_density"], shape = trace("log_density", self.log_density, x)
            check_scalar(shape)
        if self.inside is not None:
            jaxprs["inside"], shape = trace("inside", self.inside, x)
            check_walls(shape)
        frozen = []
        for name, jaxpr in jaxprs.items():
            function = getattr(self, name)
            if jaxpr is not None:
                if short := short_floats(jaxpr):
                    warn(
                        f"{name} computes with {short} numbers, probably constants made before"
                        " limpet was imported: too few digits to hold a point on the surface."
                        " Make the constants after `import limpet`, or with dtype=float.",
                        PrecisionWarning,
                    )
                check_indices(name, function, x)
                function = _Frozen(digest(jaxpr, function, x), function)
            frozen.append(function)
        return _rebuild(tuple(frozen), (self.eps,))

    def check_forces(self, x: Vector) -> None:
        """Refuse functions without the derivatives that trajectories follow."""
        normals = jax.grad(lambda x: jnp.sum(self.values_and_normals(x)[1]))
        trace("the second derivative of q", normals, x, UNFORCED)
        trace("the gradient of log_density", jax.grad(self.log_density_at), x, UNFORCED)


@dataclasses.dataclass(frozen=True)
class _Frozen:
    """A function that is equal to another if both compute the same."""

    fingerprint: str
    function: Callable = dataclasses.field(compare=False)

    def __call__(self, x: Vector) -> Any:
        return self.function(x)


@dataclasses.dataclass(frozen=True)
class _OnVectors:
    """A user's function of a pytree, as a function of a vector; equal if both parts are."""

    function: Callable
    layout: Layout

    def __call__(self, x: Vector) -> Any:
        return self.function(self.layout.point(x))


def _rebuild(functions: tuple[Any, ...], numbers: tuple[Any, ...]) -> Target:
    # without the constructor, which would refuse what JAX puts in the place of numbers
    target = object.__new__(Target)
    target.q, target.log_density, target.inside = functions
    (target.eps,) = numbers
    return target


def _values_and_normals(target: Target, x: Vector) -> tuple[Values, Normals]:
    values, pull_back = jax.vjp(target.values, x)
    m = len(values)
    if m > MOST_ONE_BY_ONE:
        normals = jax.vmap(pull_back, out_axes=-1)(sparse(jnp.eye(m)))[0]
    else:
        normals = jnp.stack([pull_back(sparse(row))[0] for row in np.eye(m)], axis=-1)
    return values, sparse(normals)


_values_and_normals_once = jax.jit(_values_and_normals)

# eps is data, the functions are part of the program: another eps needs no new compilation.
jax.tree_util.register_pytree_node(
    Target,
    lambda target: ((target.eps,), (target.q, target.log_density, target.inside)),
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
