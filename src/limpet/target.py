"""What is sampled: pi_eps(x) ~ exp(l(x) - |q(x)/eps|^2 / 2), near the surface S = {q = 0}.

A `Target` holds the user's functions and checks them. Inside limpet q is always divided by eps
("whitened"), so that one constraint, several, and several tolerances are all the same case.
"""

import dataclasses
import os
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from limpet.engine.cache import keep_programs
from limpet.errors import InputError, PrecisionWarning, real_array, warn
from limpet.lanes.identity import fingerprint_of, programs_in, uses
from limpet.lanes.primitives import sparse
from limpet.layout import Layout
from limpet.shapes import Normals, Values, Vector

# Constraints whose gradients are taken one by one: fewer operations where many entries are zero.
ONE_BY_ONE = 8
SHORT_FLOATS = (jnp.float32, jnp.float16, jnp.bfloat16)
OWN_DERIVATIVES = {"custom_jvp_call", "custom_vjp_call", "call_hi_primitive"}
# what to do about a function that JAX cannot evaluate, or not differentiate
IN_JAX = (
    "Write it with jax.numpy instead of numpy or math, and jnp.where instead of if; the point has"
    " the shape of `start`."
)
UNFORCED = "kernel=limpet.SAS() does without, and so does limpet.SurfaceSampler(steps=1)."
SMALLEST_EPS, LARGEST_EPS = 1e-60, 1e60  # beyond these determinants have no room in a double


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
    ):
        for name, function in (("q", q), ("log_density", log_density), ("inside", inside)):
            if not callable(function) and not (function is None and name != "q"):
                raise InputError(f"{name}={function!r}: expected a function of one point.")
        self.q = q
        self.eps = _read_eps(eps)
        self.log_density = log_density
        self.inside = inside

    def __repr__(self):
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
        return (_traced_once if frozen else _values_and_normals)(self, x)

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

        def lifted(function):
            return None if function is None else _OnVectors(function, layout)

        return _rebuilt(
            (lifted(self.q), lifted(self.log_density), lifted(self.inside)), (self.eps,)
        )

    def plain(self) -> "Target":
        """The same target with eps = 1: its values and normals are those of q itself."""
        return _rebuilt((self.q, self.log_density, self.inside), (np.float64(1.0),))

    def fingerprint(self, x: Vector) -> dict[str, str | None]:
        """Digests of what the functions compute, the same in every process."""
        functions = {"q": self.q, "log_density": self.log_density, "inside": self.inside}
        programs = {name: f and _traced(name, f, x)[0] for name, f in functions.items()}
        return {name: p and _identity(p, functions[name], x) for name, p in programs.items()}

    def checked(self, x: Vector) -> "Target":
        """The same target, its functions frozen as they are now; refused if they cannot be used.

        JAX keeps compiled programs by function. A frozen function goes by what it computes: one
        that reads a variable which has changed since is another one, and compiled anew.
        """
        jaxpr, shape = _traced("q", self.q, x)
        _check_constraints(shape, len(x), np.shape(self.eps))
        _traced("the derivative of q", self.values_and_normals, x)
        jaxprs = {"q": jaxpr, "log_density": None, "inside": None}
        if self.log_density is not None:
            jaxprs["log_density"], shape = _traced("log_density", self.log_density, x)
            _check_scalar(shape)
        if self.inside is not None:
            jaxprs["inside"], shape = _traced("inside", self.inside, x)
            _check_walls(shape)
        frozen = []
        for name, jaxpr in jaxprs.items():
            function = getattr(self, name)
            if jaxpr is not None:
                if short := _short_floats(jaxpr):
                    warn(
                        f"{name} computes with {short} numbers, probably constants made before"
                        " limpet was imported: too few digits to hold a point on the surface."
                        " Make the constants after `import limpet`, or with dtype=float.",
                        PrecisionWarning,
                    )
                _check_indices(name, function, x)
                function = _Frozen(_identity(jaxpr, function, x), function)
            frozen.append(function)
        return _rebuilt(tuple(frozen), (self.eps,))

    def check_forces(self, x: Vector):
        """Refuse functions without the derivatives that trajectories follow."""
        normals = jax.grad(lambda x: jnp.sum(self.values_and_normals(x)[1]))
        _traced("the second derivative of q", normals, x, UNFORCED)
        _traced("the gradient of log_density", jax.grad(self.log_density_at), x, UNFORCED)


@dataclasses.dataclass(frozen=True)
class _Frozen:
    """A function that is equal to another if both compute the same."""

    fingerprint: str
    function: Callable = dataclasses.field(compare=False)

    def __call__(self, x):
        return self.function(x)


@dataclasses.dataclass(frozen=True)
class _OnVectors:
    """A user's function of a pytree, as a function of a vector; equal if both parts are."""

    function: Callable
    layout: Layout

    def __call__(self, x):
        return self.function(self.layout.point(x))


def _rebuilt(functions, numbers):
    target = object.__new__(Target)
    target.q, target.log_density, target.inside = functions
    (target.eps,) = numbers
    return target


def _values_and_normals(target, x):
    values, pull_back = jax.vjp(target.values, x)
    m = len(values)
    if m > ONE_BY_ONE:
        normals = jax.vmap(pull_back, out_axes=-1)(sparse(jnp.eye(m)))[0]
    else:
        normals = jnp.stack([pull_back(sparse(row))[0] for row in np.eye(m)], axis=-1)
    return values, sparse(normals)


_traced_once = jax.jit(_values_and_normals)

# eps is data, the functions are part of the program: another eps needs no new compilation.
jax.tree_util.register_pytree_node(
    Target,
    lambda target: ((target.eps,), (target.q, target.log_density, target.inside)),
    _rebuilt,
)


def check_target(target):
    """Refuse what is not a target, and a JAX without doubles; what follows may compile."""
    if not isinstance(target, Target):
        raise InputError(f"target={target!r}: expected a limpet.Target(q, eps).")
    if not jax.config.read("jax_enable_x64"):
        raise InputError(
            "JAX is set to single precision (jax_enable_x64 is False): limpet needs doubles."
            ' Leave it as `import limpet` sets it, or jax.config.update("jax_enable_x64", True).'
        )
    keep_programs()


def _read_eps(given):
    eps = real_array("eps", given, "a number, or one per constraint")
    if eps.ndim > 1:
        raise InputError(f"eps has shape {eps.shape}: expected a number, or one per constraint.")
    for value in np.atleast_1d(eps):
        if np.isnan(value):
            raise InputError(f"eps={given!r} is not a number: expected a finite eps above zero.")
        if value == 0:
            raise InputError(
                f"eps={given!r}: eps = 0 is the surface itself. For that, give any small eps and"
                ' sample with kernel=limpet.SurfaceSampler(measure="soft").'
            )
        if value < 0:
            raise InputError(f"eps={given!r} is negative: expected a number above zero.")
        if value < SMALLEST_EPS:
            raise InputError(
                f"eps={given!r} is below what doubles can work with: expected at least"
                f" {SMALLEST_EPS}."
            )
        if LARGEST_EPS < value < np.inf:
            raise InputError(
                f"eps={given!r} is above what doubles can work with: expected at most"
                f" {LARGEST_EPS}."
            )
        if np.isinf(value):
            raise InputError(f"eps={given!r} is infinite: expected a finite eps above zero.")
    return eps


def _check_constraints(shape, n, eps_shape):
    if not isinstance(shape, jax.ShapeDtypeStruct):
        raise InputError(
            f"q returned a {type(shape).__name__}: expected one array of m numbers;"
            " put them together with jnp.stack([...])."
        )
    if len(shape.shape) == 0:
        raise InputError(
            "q returned a scalar: expected a vector of m numbers, also when m = 1;"
            " return jnp.array([value])."
        )
    if len(shape.shape) > 1:
        raise InputError(
            f"q returned an array of shape {shape.shape}: expected a vector of m numbers;"
            " return it with .ravel() if every entry is a constraint. q is given one point,"
            " never a batch."
        )
    if shape.dtype.kind == "c":
        raise InputError(
            f"q returned complex numbers ({shape.dtype}): expected real ones; return the real and"
            " the imaginary part as two constraints."
        )
    if shape.dtype.kind != "f":
        raise InputError(
            f"q returned {shape.dtype}: expected real numbers that vary smoothly with the point."
        )
    m = shape.shape[0]
    if m == 0:
        raise InputError(
            "q returned no constraints (m = 0): there is no surface to be near. For a density"
            " without one, use a general sampler such as NUTS."
        )
    if m >= n:
        raise InputError(
            f"q returned m = {m} constraints for n = {n} unknowns: expected m < n, else the"
            " surface has no room to move in."
        )
    if eps_shape not in ((), (m,)):
        raise InputError(
            f"eps has length {eps_shape[0]} but q returned m = {m} constraints: expected one number"
            " for all, or one per constraint."
        )
    return m


def _check_scalar(shape):
    if getattr(shape, "shape", None) != ():
        raise InputError(
            f"log_density returned {_described(shape)}: expected one number; sum over the terms."
        )
    if shape.dtype.kind != "f":
        raise InputError(
            f"log_density returned {shape.dtype}: expected a real number, such as 0.0 for 0."
        )


def _check_walls(shape):
    if not isinstance(shape, jax.ShapeDtypeStruct):
        raise InputError(f"inside returned {_described(shape)}: expected one array of numbers.")
    if shape.dtype.kind == "b":
        raise InputError(
            "inside returned True or False: expected numbers that are >= 0 inside the walls;"
            " return x[0] rather than x[0] > 0."
        )
    if shape.dtype.kind not in "fiu":
        raise InputError(f"inside returned {shape.dtype}: expected real numbers.")


def _described(shape):
    if isinstance(shape, jax.ShapeDtypeStruct):
        return f"an array of shape {shape.shape}"
    return f"a {type(shape).__name__}"


def _traced(name, function, x, remedy=IN_JAX):
    """The program JAX makes of a user's function, and the shape of what it returns."""
    try:
        # a function made here is unknown to JAX, which else would remember what it traced before
        return jax.make_jaxpr(lambda x: function(x), return_shape=True)(x)
    except Exception as error:
        ours = tuple(os.path.dirname(module) for module in (__file__, jax.__file__, np.__file__))
        library = os.path.dirname(os.__file__)
        frames = [
            f" at {frame.filename}:{frame.lineno} ({frame.line})"
            for frame in traceback.extract_tb(error.__traceback__)
            if os.path.dirname(frame.filename) != library and not frame.filename.startswith(ours)
        ]
        where = frames[-1] if frames else ""
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise InputError(
            f"{name} could not be evaluated by JAX at a point with {len(x)} numbers{where}:"
            f" {type(error).__name__}: {reason}. {remedy}"
        ) from None


def _check_indices(name, function, x):
    """Refuse an index beyond the end of a point, where JAX would quietly take the last entry."""
    if isinstance(x, Tracer):
        return
    try:
        # NumPy's arrays check their indices; inside make_jaxpr nothing is computed
        jax.make_jaxpr(lambda: function(np.asarray(x)))()
    except IndexError as error:
        raise InputError(
            f"{name} was given a point of {len(x)} numbers: {error}. Is that the point that it was"
            " written for?"
        ) from None
    except Exception:  # what only JAX's arrays can do is no mistake
        return


def _identity(jaxpr, function, x) -> str:
    """A digest of what a function computes, and of its derivative where that has its own rules."""
    digest = fingerprint_of(jaxpr)
    if uses(OWN_DERIVATIVES, jaxpr):
        try:
            digest += fingerprint_of(jax.make_jaxpr(jax.jacrev(function))(x))
        except Exception:  # there is none, so that none is used
            return digest
    return digest


def _short_floats(jaxpr):
    """The first type of floats shorter than doubles in a program, if there is one."""
    for part, _ in programs_in(jaxpr):
        atoms = [*part.constvars, *(a for e in part.eqns for a in (*e.invars, *e.outvars))]
        for atom in atoms:
            if getattr(atom.aval, "dtype", None) in SHORT_FLOATS:
                return str(atom.aval.dtype)
    return None


def _name(function):
    return getattr(function, "__name__", type(function).__name__)
