"""What a user's functions must be to be sampled: traced, checked, and known by what they compute.

Every refusal is in words: which function, what it returned, what was expected.
"""

import dataclasses
import hashlib
import os
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from limpet.engine.memory import in_words, spare_bytes
from limpet.errors import InputError, real_array
from limpet.lanes.identity import fingerprint_of, programs_in, uses
from limpet.layout import Layout
from limpet.shapes import Vector

# floats with too few digits to hold a point on a surface
SHORT_FLOATS = (jnp.float32, jnp.float16, jnp.bfloat16)
# operations of JAX that carry derivatives of their own, which the program itself does not show
OWN_DERIVATIVES = {"custom_jvp_call", "custom_vjp_call", "call_hi_primitive"}
# what to do about a function that JAX cannot evaluate, or not differentiate
IN_JAX = (
    "Write it with jax.numpy instead of numpy or math, and jnp.where instead of if; the point has"
    " the shape of `start`."
)
FIRST_REMEDY = (
    'derivatives="forward" (of limpet.Target, or of limpet.from_numpyro) takes forward derivatives'
    " only, which loops have;"
    ' "reverse" takes reverse ones only, which functions with a custom_vjp have.'
)
SECOND_REMEDY = (
    f"{FIRST_REMEDY} Of diffrax, use adjoint=diffrax.DirectAdjoint(), or diffrax.ForwardMode() with"
    ' derivatives="forward", and throw=False. '
)
CROWDED_UNFORCED = "kernel=limpet.Lifted(steps=1) does without second derivatives."
UNFORCED = "kernel=limpet.SAS() does without, and so does limpet.SurfaceSampler(steps=1)."
CHAINS_IN_WORK = 4  # at least: the lanes of a compiled step
# pivots of (G/eps)^T (G/eps) go as eps^-2, and the product of two of them must fit a double (1e308)
SMALLEST_EPS, LARGEST_EPS = 1e-60, 1e60


def read_eps(given: Any) -> np.ndarray:
    """The eps of a target: one number, or one per constraint."""
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


def read_data(given: Any) -> Any:
    """The data of a target: arrays of numbers, floats as doubles."""

    def read(path: Any, leaf: Any) -> np.ndarray:
        name = f"data{jax.tree_util.keystr(path)}"
        array = np.asarray(leaf)
        if array.dtype.kind not in "iufb":
            raise InputError(
                f"{name}={leaf!r}: expected an array of real numbers; data are arrays, or dicts,"
                " lists and tuples of them."
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            where = np.argwhere(~np.isfinite(array))[0].tolist()
            raise InputError(
                f"{name} is not finite: {array[tuple(where)]} at {where}. Leave out what was not"
                " measured, from the data and from what q returns."
            )
        return array.astype(float) if array.dtype.kind == "f" else array

    try:
        data = jax.tree_util.tree_map_with_path(read, given)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"data={given!r}: {error}.") from None
    if not jax.tree.leaves(data):
        raise InputError(f"data={given!r} has no arrays: leave it out if there are none.")
    return data


def digest_of_data(data: Any) -> str:
    """A digest of the numbers themselves, and how they are put together."""
    leaves, tree = jax.tree.flatten(data)
    parts = [(a.shape, a.dtype.str, a.tobytes()) for a in map(np.asarray, leaves)]
    return hashlib.sha256(repr((str(tree), parts)).encode()).hexdigest()


def check_constraints(shape: Any, eps_shape: tuple[int, ...]) -> int:
    """Refuse what q returned, unless it is a vector of real numbers, one per eps; their number."""
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
    if eps_shape not in ((), (m,)):
        raise InputError(
            f"eps has length {eps_shape[0]} but q returned m = {m} constraints: expected one number"
            " for all, or one per constraint."
        )
    return m


def _check_eps(shape: Any, m: int) -> None:
    """Refuse what a function eps returned, unless it is a number, or one per constraint."""
    if not isinstance(shape, jax.ShapeDtypeStruct) or shape.shape not in ((), (m,)):
        raise InputError(
            f"eps returned {_description(shape)} but q returned m = {m} constraints: expected one"
            " number for all, or one per constraint."
        )
    if shape.dtype.kind != "f":
        raise InputError(
            f"eps returned {shape.dtype}: expected real numbers above zero that vary smoothly with"
            " the point."
        )


def check_noise(eps: np.ndarray, where: str) -> None:
    """Refuse what a function eps is at a start, unless all of it is above zero."""
    for k, value in enumerate(eps.tolist()):
        if not 0 < value < np.inf:
            what = (
                "not a number"
                if np.isnan(value)
                else {0.0: "zero", np.inf: "infinite"}.get(value, "negative")
            )
            raise InputError(
                f"eps is {what} at the {where}: {value}, for constraint {k}. Expected a finite"
                " number above zero wherever chains may be; jnp.exp of an unknown is."
            )


def _check_scalar(shape: Any, m: int) -> None:
    """Refuse what log_density returned, unless it is one real number."""
    if getattr(shape, "shape", None) != ():
        raise InputError(
            f"log_density returned {_description(shape)}: expected one number; sum over the terms."
        )
    if shape.dtype.kind != "f":
        raise InputError(
            f"log_density returned {shape.dtype}: expected a real number, such as 0.0 for 0."
        )


def _check_walls(shape: Any, m: int) -> None:
    """Refuse what inside returned, unless it is an array of real numbers."""
    if not isinstance(shape, jax.ShapeDtypeStruct):
        raise InputError(f"inside returned {_description(shape)}: expected one array of numbers.")
    if shape.dtype.kind == "b":
        raise InputError(
            "inside returned True or False: expected numbers that are >= 0 inside the walls;"
            " return x[0] rather than x[0] > 0."
        )
    if shape.dtype.kind not in "fiu":
        raise InputError(f"inside returned {shape.dtype}: expected real numbers.")


# what each function but q must return
CHECKS = {"eps": _check_eps, "log_density": _check_scalar, "inside": _check_walls}


def _description(shape: Any) -> str:
    if isinstance(shape, jax.ShapeDtypeStruct):
        return f"an array of shape {shape.shape}"
    return f"a {type(shape).__name__}"


def trace(
    name: str, function: Callable, x: Vector, *data: Any, remedy: str = IN_JAX
) -> tuple[Any, Any]:
    """The program JAX makes of a user's function, and the shape of what it returns."""
    try:
        # a function made here is unknown to JAX, which else would remember what it traced before
        return jax.make_jaxpr(lambda *a: function(*a), return_shape=True)(x, *data)
    except InputError as error:  # of limpet's own moves, in words
        raise InputError(f"{name}: {error}.") from None
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


def check_room(m: int, n: int) -> None:
    """Refuse normals that do not fit into memory, each constraint on most of the unknowns."""
    # with their Gram matrix, of the few chains that are in work at a time
    need, spare = 8.0 * CHAINS_IN_WORK * m * (n + m), spare_bytes()
    if need > spare:
        raise InputError(
            f"q has {m:,} constraints on {n:,} unknowns, of which each involves many: their"
            f" derivatives take {in_words(need)} of memory at least, and this machine has"
            f" {in_words(spare)} to spare. Expected fewer of them, or constraints that involve few"
            " unknowns each, of which limpet keeps only these."
        )


def check_indices(name: str, function: Callable, x: Vector, *data: Any) -> None:
    """Refuse an index beyond the end of a point, where JAX would quietly take the last entry."""
    if isinstance(x, Tracer):
        return
    try:
        # NumPy's arrays check their indices; inside make_jaxpr nothing is computed
        jax.make_jaxpr(lambda: function(np.asarray(x), *data))()
    except IndexError as error:
        raise InputError(
            f"{name} was given a point of {len(x)} numbers: {error}. Is that the point that it was"
            " written for?"
        ) from None
    except Exception:  # what only JAX's arrays can do is no mistake
        return


def digest(jaxpr: Any, function: Callable, x: Vector, *data: Any) -> str:
    """A digest of what a function computes, and of its derivative where that has its own rules."""
    digest = fingerprint_of(jaxpr)
    if uses(OWN_DERIVATIVES, jaxpr):
        try:
            digest += fingerprint_of(jax.make_jaxpr(jax.jacrev(function))(x, *data))
        except Exception:  # without a derivative, there are no rules for it
            return digest
    return digest


def short_floats(jaxpr: Any) -> str | None:
    """The first type of floats shorter than doubles in a program, if there is one."""
    for part, _ in programs_in(jaxpr):
        atoms = [*part.constvars, *(a for e in part.eqns for a in (*e.invars, *e.outvars))]
        for atom in atoms:
            if getattr(atom.aval, "dtype", None) in SHORT_FLOATS:
                return str(atom.aval.dtype)
    return None


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A function that is equal to another if both compute the same.

    Whoever uses it is given the program that JAX made of it once: to go through a model of
    NumPyro's takes long, and a run does it dozens of times. Programs do not travel to other
    processes, which go through the function itself.
    """

    fingerprint: str
    function: Callable = dataclasses.field(compare=False)
    program: Any = dataclasses.field(default=None, compare=False, repr=False)

    def __call__(self, x: Vector, *data: Any) -> Any:
        """What the function is there."""
        if self.program is None:
            return self.function(x, *data)
        return jaxpr_as_fun(self.program)(*jax.tree.leaves((x, data)))[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return Frozen, (self.fingerprint, self.function)


@dataclasses.dataclass(frozen=True)
class OnVectors:
    """A user's function of a pytree, as a function of a vector; equal if both parts are."""

    function: Callable
    layout: Layout

    def __call__(self, x: Vector, *data: Any) -> Any:
        """What the function is there."""
        return self.function(self.layout.point(x), *data)


@dataclasses.dataclass(frozen=True)
class Whitened:
    """A function q over a function eps; equal if both are."""

    q: Callable
    eps: Callable

    def __call__(self, x: Vector) -> Any:
        """Their ratio there."""
        return self.q(x) / self.eps(x)
