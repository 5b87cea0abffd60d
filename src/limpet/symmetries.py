"""Symmetries of a target: functions that keep its constraints, and some ready-made for chains.

What a sampler does with them is in `limpet.kernels.symmetry`; that they are what they must be is
checked in `limpet.geometry.symmetry_checks`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from limpet import errors
from limpet.errors import InputError
from limpet.frame import to_coordinates, to_point
from limpet.layout import Layout
from limpet.shapes import Randoms, Vector
from limpet.sparse.forest import Forest
from limpet.target_checks import Frozen, check_indices, digest, trace

NORMALS = 8  # that a symmetry is given, unless the user says how many
MOST_NORMALS = 100_000  # a choice: far more than any move takes, and few enough to be drawn
EXPECTED = (
    "expected a list of functions (x, z) -> y of a point and standard normal numbers, each alone or"
    " in a pair with how many numbers it is given: [move, (other, 20)]"
)

Beads = Float[Array, "beads 3"]


class Symmetry(NamedTuple):
    """A user's function, and how many normal numbers it is given."""

    move: Callable[..., Any]
    normals: int

    @property
    def name(self) -> str:
        """The name of the user's function."""
        move = self.move
        while isinstance(move, Frozen | MoveOnVectors | MoveInFrame):
            move = move.function
        return getattr(move, "__name__", type(move).__name__)


class MoveOnVectors(NamedTuple):
    """A symmetry of pytrees, as one of vectors; equal if both parts are."""

    function: Callable[..., Any]
    layout: Layout

    def __call__(self, x: Vector, z: Randoms, *data: Any) -> Vector:
        """Where it leads."""
        y = self.function(self.layout.point(x), z, *data)
        if (found := Layout.of(y)) != self.layout:
            raise InputError(f"returned {found}: expected a point like x, {self.layout}")
        return self.layout.vector(y)


class MoveInFrame(NamedTuple):
    """A symmetry of x as one of z, given the frame and whatever else it is given."""

    function: Callable[..., Any]
    forest: Forest | None

    def __call__(self, z: Vector, normals: Randoms, given: tuple[Any, ...]) -> Vector:
        """Where it leads."""
        frame, *data = given
        y = self.function(to_point(frame, self.forest, z), normals, *data)
        return to_coordinates(frame, self.forest, y)


def read_symmetries(given: Any) -> tuple[Symmetry, ...]:
    """What a user gave as symmetries."""
    if not isinstance(given, list | tuple):
        raise InputError(f"symmetries={given!r}: {EXPECTED}.")
    return tuple(_read(f"symmetries[{k}]", each) for k, each in enumerate(given))


def _read(name: str, given: Any) -> Symmetry:
    move, normals = given if isinstance(given, tuple) and len(given) == 2 else (given, NORMALS)
    if not callable(move):
        raise InputError(f"{name}={given!r}: {EXPECTED}.")
    normals = errors.whole(f"{name}[1]", normals, 1)
    if normals > MOST_NORMALS:
        raise InputError(f"{name}[1]={normals}: expected at most {MOST_NORMALS} normal numbers.")
    return Symmetry(move, normals)


def on_vectors(symmetries: tuple[Symmetry, ...], layout: Layout) -> tuple[Symmetry, ...]:
    """The same as functions of vectors."""
    return tuple(s._replace(move=MoveOnVectors(s.move, layout)) for s in symmetries)


def in_frame(symmetries: tuple[Symmetry, ...], forest: Forest | None) -> tuple[Symmetry, ...]:
    """The same as functions of the coordinates of a frame."""
    return tuple(s._replace(move=MoveInFrame(s.move, forest)) for s in symmetries)


def freeze(symmetries: tuple[Symmetry, ...], x: Vector, *data: Any) -> tuple[Symmetry, ...]:
    """The same, kept as they are now; refused if they cannot be used."""
    frozen = []
    for k, symmetry in enumerate(symmetries):
        name, z = f"symmetries[{k}] ({symmetry.name})", jnp.zeros(symmetry.normals)
        program, shape = trace(name, symmetry.move, x, z, *data)
        if getattr(shape, "shape", None) != x.shape or shape.dtype.kind != "f":
            raise InputError(
                f"{name} returned {_description(shape)}: expected a point like x, an array of shape"
                f" {x.shape} of real numbers."
            )
        check_indices(name, symmetry.move, x, z, *data)
        of_program = digest(program, symmetry.move, x, z, *data)
        frozen.append(symmetry._replace(move=Frozen(of_program, symmetry.move)))
    return tuple(frozen)


def fingerprints(symmetries: tuple[Symmetry, ...], x: Vector, *data: Any) -> dict[str, str]:
    """Digests of what they compute."""
    frozen = freeze(symmetries, x, *data)
    return {f"symmetry {k}": symmetry.move.fingerprint for k, symmetry in enumerate(frozen)}


def _description(shape: Any) -> str:
    if isinstance(shape, jax.ShapeDtypeStruct):
        return f"{shape.dtype} of shape {shape.shape}"
    return f"a {type(shape).__name__}"


# Ready-made ones. From z comes what is the same for -z (which beads, how far) and what is the
# opposite (which way around), so that -z leads back.


def pivot(
    variable: str | None = None, *, held: Any = None, angle: float = np.pi
) -> Callable[..., Any]:
    """A symmetry of chains: all beads beyond one of them turn about it, as if they were rigid.

    It keeps the lengths of bonds. Which bead, the axis and the angle are random.

    Parameters
    ----------
    variable : str, optional
        The name of the variable that has the places of the beads, if points are dicts. They are
        numbers in any shape, three by three, in the order of the chain.
    held : sequence of three numbers, optional
        Where the first bead is, if it is held and not among the unknowns.
    angle : float
        The largest angle; all up to it are equally likely. By default that is pi. Smaller ones are
        accepted more often, but go less far.

    Returns
    -------
    callable
        For `limpet.Target(..., symmetries=[...])`.

    Examples
    --------
    A chain of five unit bonds that begins at the origin:

    >>> import jax.numpy as jnp
    >>> import limpet
    >>> def bonds(x):
    ...     return jnp.sum(jnp.diff(x.reshape(-1, 3), axis=0, prepend=0.0) ** 2, axis=1) - 1
    >>> move = limpet.pivot(held=[0, 0, 0])
    >>> chain = limpet.Target(bonds, eps=0.01, symmetries=[move])
    >>> start = [1.0, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0, 0, 5, 0, 0]
    >>> draws = limpet.sample(chain, start, draws=300, chains=16)
    >>> round(draws.attrs["acceptance"]["symmetry"], 6)   # nothing but the bonds is in its way
    1.0
    """
    angle = errors.positive("angle", angle)

    def turn_tail(beads: Beads, z: Randoms) -> Beads:
        k = _which(len(beads) - 1, z[0:2])
        at = _bead(beads, k)
        axis = z[4:7] / jnp.sqrt(jnp.sum(z[4:7] ** 2))  # -z turns the other way
        turned = at + _rotated(beads - at, axis, angle * _uniform(z[2:4]))
        return _where(jnp.arange(len(beads)) > k, turned, beads)

    return _of_chains("pivot", turn_tail, variable, held, fewest=2)


def crankshaft(
    variable: str | None = None, *, held: Any = None, angle: float = np.pi
) -> Callable[..., Any]:
    """A symmetry of chains: the beads between two of them turn about the axis through these.

    It keeps the lengths of bonds, and both ends of the chain where they are. Which beads and the
    angle are random.

    Parameters
    ----------
    variable, held, angle
        As in `limpet.pivot`.

    Returns
    -------
    callable
        For `limpet.Target(..., symmetries=[...])`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> def bonds(x):
    ...     return jnp.sum(jnp.diff(x["bead"], axis=0) ** 2, axis=1) - 1
    >>> def near_the_origin(x):
    ...     return -jnp.sum(x["bead"] ** 2) / 2
    >>> move = limpet.crankshaft("bead")
    >>> chain = limpet.Target(bonds, eps=0.01, log_density=near_the_origin, symmetries=[move])
    >>> start = {"bead": [[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]}
    >>> draws = limpet.sample(chain, start, draws=300, chains=16)
    >>> 0 < draws.attrs["acceptance"]["symmetry"] < 1
    True
    """
    angle = errors.positive("angle", angle)

    def turn_between(beads: Beads, z: Randoms) -> Beads:
        count = len(beads)
        low = _which(count - 2, z[0:2])
        high = low + 2 + _which(count - 2 - low, z[2:4])
        at = _bead(beads, low)
        along = _bead(beads, high) - at
        length = jnp.sqrt(jnp.sum(along**2))
        axis = along / jnp.where(length > 0, length, 1.0)
        way = jnp.sign(z[6]) * angle * _uniform(z[4:6])
        turned = at + _rotated(beads - at, axis, way)
        k = jnp.arange(count)
        return _where((k > low) & (k < high) & (length > 0), turned, beads)

    return _of_chains("crankshaft", turn_between, variable, held, fewest=3)


def _of_chains(
    name: str,
    turn: Callable[[Beads, Randoms], Beads],
    variable: str | None,
    held: Any,
    fewest: int,
) -> Callable[..., Any]:
    """A move of the beads of a chain, as one of the points that have them."""
    if variable is not None and not isinstance(variable, str):
        raise InputError(f"variable={variable!r}: expected the name of a variable, or None.")
    first = np.zeros((0, 3)) if held is None else _place(held)

    def of_array(x: Array, z: Randoms) -> Array:
        if x.size % 3 or x.size // 3 + len(first) < fewest:
            raise InputError(
                f"limpet.{name} was given {x.size} numbers and {len(first)} beads that are held:"
                f" expected the places of {fewest} beads or more, three numbers each"
            )
        beads = jnp.concatenate([first, jnp.reshape(x, (-1, 3))])
        return jnp.reshape(turn(beads, z)[len(first) :], x.shape)

    def move(x: Any, z: Randoms, *data: Any) -> Any:
        if variable is None and not hasattr(x, "shape"):
            raise InputError(
                f"limpet.{name} was given a {type(x).__name__}: expected an array, or the name of"
                f' the variable that has the beads, limpet.{name}("bead")'
            )
        if variable is None:
            return of_array(x, z)
        if not isinstance(x, dict) or variable not in x:
            has = f"variables {', '.join(map(str, x))}" if isinstance(x, dict) else "no names"
            raise InputError(f"limpet.{name}({variable!r}) was given a point with {has}")
        return x | {variable: of_array(x[variable], z)}

    move.__name__ = name
    return move


def _place(held: Any) -> np.ndarray:
    place = errors.real_array("held", held, "the place of a bead, three numbers")
    if place.shape != (3,) or not np.isfinite(place).all():
        raise InputError(f"held={held!r}: expected the place of a bead, three finite numbers.")
    return place[None]


def _uniform(pair: Float[Array, "2"]) -> Float[Array, ""]:
    """A number from two normal ones: uniform on (0, 1), and the same for their opposites."""
    return jnp.exp(-jnp.sum(pair**2) / 2)


def _which(count: Any, pair: Float[Array, "2"]) -> Float[Array, ""]:
    """One of so many, equally likely: 0, 1 and so on."""
    return jnp.minimum(jnp.floor(count * _uniform(pair)), count - 1)


def _bead(beads: Beads, k: Float[Array, ""]) -> Float[Array, "3"]:
    """The k-th bead, without an index that differs from chain to chain."""
    return jnp.sum(_where(jnp.arange(len(beads)) == k, beads, 0.0), axis=0)


def _where(flags: Array, yes: Any, no: Any) -> Beads:
    return jnp.where(flags[:, None], yes, no)


def _rotated(arms: Beads, axis: Float[Array, "3"], angle: Float[Array, ""]) -> Beads:
    """Vectors turned about an axis of length one, by the formula of Rodrigues."""
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    along = jnp.sum(arms * axis, axis=1, keepdims=True) * axis
    return cosine * arms + sine * jnp.cross(axis[None], arms) + (1 - cosine) * along
