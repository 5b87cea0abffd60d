"""Sticky spheres: particles that may not overlap, and stick where they touch."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from limpet import errors
from limpet.errors import InputError, real_array
from limpet.strata import PACKED_FROM, Strata

NAME = "position"  # the variable that draws have
MOST_PER_SPHERE = 3  # contacts of each but the first: n disks have 3 n - (12 n - 3)^(1/2) at most
MOST_PAIRS = 5_000  # that may stick: each is a constraint, and a label of every draw


def sticky_spheres(
    positions: Any,
    bonds: Iterable[Sequence[int]] = (),
    kappa: Any = 1.0,
    *,
    diameter: float = 1.0,
    eps: float = 0.01,
    pairs: Iterable[Sequence[int]] | None = None,
    at_once: int | None = None,
    box: float | None = None,
) -> Strata:
    """Spheres, or disks in two dimensions, that stick where they touch, and never overlap.

    A pair in contact has q = (r² - diameter²) / (2 diameter), which is r - diameter there. The
    first sphere stays at the origin: as nothing depends on where all of them are together, this
    leaves out their common place and nothing else.

    Parameters
    ----------
    positions : array (N, 2) or (N, 3)
        Where they start; those in contact are bonded.
    bonds : sequence of pairs of int
        Which pairs always stick. Together they must connect all spheres, else these would drift
        apart for good, unless there is a `box`.
    kappa : float or sequence of float
        The stickiness of all other pairs, or of each of `pairs`.
    diameter : float
        The distance of two spheres in contact.
    eps : float
        By how much a bond's length varies.
    pairs : sequence of pairs of int, optional
        Which pairs may stick, if not all. Others may touch, and only not overlap.
    at_once : int, optional
        How many pairs may stick at one time, at most, those in `bonds` included. Default: with
        fewer than 18 spheres or so all; else three for each sphere but the first, or one for each
        beside `bonds` if that is more. Disks never have more than three, and spheres in large
        crystals alone. A run warns if so many ever stick.
    box : float, optional
        How far from the first sphere others may be, at most.

    Returns
    -------
    Strata
        Fit for `limpet.sample`, without a start. The draws' `position` is that of all spheres but
        the first, relative to it, and `bonds` are of the pairs in `target.pairs`.

    Examples
    --------
    >>> import limpet
    >>> row = [[0.0, 0, 0], [1.0, 0, 0], [1.5, 0.9, 0]]
    >>> target = limpet.sticky_spheres(row, bonds=[(0, 1), (1, 2)], kappa=2.0)
    >>> target.pairs
    ((0, 2),)
    >>> draws = limpet.sample(target, draws=200, chains=16, progress=False)
    >>> draws.posterior["position"].shape
    (16, 200, 2, 3)
    """
    places = real_array("positions", positions, "an array of N positions in 2 or 3 dimensions")
    if places.ndim != 2 or places.shape[0] < 2 or places.shape[1] not in (2, 3):
        raise InputError(
            f"positions has shape {places.shape}: expected (N, 2) or (N, 3), two spheres or more."
        )
    if not np.isfinite(places).all():
        raise InputError(f"positions is not finite: {places[~np.isfinite(places)][0]} is in it.")
    n = len(places)
    fixed = _read_pairs("bonds", bonds, n)
    every = [(i, j) for i in range(n) for j in range(i + 1, n)]
    named = every if pairs is None else _read_pairs("pairs", pairs, n)
    may = [pair for pair in named if pair not in set(fixed)]
    _check_number(len(may) + len(fixed), pairs is None)
    if not may:
        raise InputError(
            f"bonds={fixed!r} and pairs={pairs!r} leave no pair that may stick: expected one at"
            " least. Bonds that never break are for limpet.Target."
        )
    if np.ndim(kappa) and np.shape(kappa) != (len(may),):
        raise InputError(
            f"kappa has shape {np.shape(kappa)}, but {len(may)} pairs may stick: expected a number,"
            f" or {len(may)}, one for each pair but those in bonds."
        )
    diameter = errors.positive("diameter", diameter)
    box = None if box is None else errors.positive("box", box)
    if box is None:
        _check_connected(fixed, n)
    apart = [pair for pair in every if pair not in set(fixed) | set(may)]
    q = _Contacts(tuple(fixed + may), diameter)
    inside = _Inside(tuple(apart), diameter, box) if apart or box is not None else None
    few = max(MOST_PER_SPHERE * (n - 1), len(fixed) + n)
    if at_once is None and len(fixed) + len(may) >= PACKED_FROM * few:
        at_once = few
    always = range(len(fixed))
    target = Strata(q, eps, kappa, always=always, at_once=at_once, inside=inside)
    target.start = {NAME: places[1:] - places[0]}
    target.pairs = tuple(may)
    return target


class _Contacts:
    """How far pairs are from contact."""

    def __init__(self, pairs: tuple[tuple[int, int], ...], diameter: float) -> None:
        self.pairs, self.diameter = np.array(pairs, int).reshape(-1, 2), diameter

    def __call__(self, x: Any) -> Float[Array, " m"]:
        """Q of every pair."""
        return _gaps(x[NAME], self.pairs, self.diameter)


class _Inside:
    """What pairs that never stick may not do, nor any sphere: overlap, and leave the box."""

    def __init__(
        self, pairs: tuple[tuple[int, int], ...], diameter: float, box: float | None
    ) -> None:
        self.pairs, self.diameter, self.box = np.array(pairs, int).reshape(-1, 2), diameter, box

    def __call__(self, x: Any) -> Float[Array, " walls"]:
        """Numbers that are >= 0 where that is so."""
        walls = [_gaps(x[NAME], self.pairs, self.diameter)]
        if self.box is not None:
            walls.append(self.box**2 - jnp.sum(x[NAME] ** 2, axis=1))
        return jnp.concatenate(walls)


def _gaps(x: Any, pairs: np.ndarray, diameter: float) -> Float[Array, " m"]:
    places = jnp.concatenate([jnp.zeros((1, x.shape[1])), x])
    between = places[pairs[:, 0]] - places[pairs[:, 1]]
    return (jnp.sum(between**2, axis=1) - diameter**2) / (2 * diameter)


def _read_pairs(name: str, given: Any, n: int) -> list[tuple[int, int]]:
    """Pairs of spheres, the smaller number first, each once."""
    if not isinstance(given, Iterable):
        raise InputError(f"{name}={given!r}: expected a list of pairs, such as [(0, 1), (1, 2)].")
    found: list[tuple[int, int]] = []
    for pair in given:
        try:
            i, j = (int(k) for k in pair)
            good = list(pair) == [i, j] and i != j and min(i, j) >= 0 and max(i, j) < n
        except (TypeError, ValueError):
            i, j, good = 0, 0, False
        if not good:
            raise InputError(
                f"{name} has {pair!r}: expected pairs of two different spheres, from 0 to {n - 1}."
            )
        found.append((min(i, j), max(i, j)))
    if len(set(found)) < len(found):
        twice = next(pair for pair in found if found.count(pair) > 1)
        raise InputError(f"{name} has {twice} twice: expected each pair once.")
    return found


def _check_number(m: int, every: bool) -> None:
    if m > MOST_PAIRS:
        hint = " Name those that may stick in pairs; others only do not overlap." if every else ""
        raise InputError(
            f"{m} pairs of spheres may stick: expected at most {MOST_PAIRS}, for each is a"
            f" constraint.{hint}"
        )


def _check_connected(fixed: list[tuple[int, int]], n: int) -> None:
    """Refuse spheres that could drift apart for good: there is no such law."""
    reached, before = {0}, 0
    while len(reached) > before:
        before = len(reached)
        reached |= {k for pair in fixed if reached & set(pair) for k in pair}
    if missing := sorted(set(range(n)) - reached):
        raise InputError(
            f"bonds do not connect sphere {missing[0]} with sphere 0: apart from each other they"
            " have infinite room, in which they would get lost. Expected bonds that connect all"
            " spheres, or a box."
        )
