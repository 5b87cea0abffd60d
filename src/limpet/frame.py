"""The coordinates z in which chains move: x = T (c + B S z), made so that draws are round in them.

Slides have one size in all directions of z, and trajectories one length. B is diagonal, lower
triangular, or diagonal with a few directions stretched before it, B = D (I + U diag(s) U^T); it is
found in warm-up (`limpet.run.shape`). T adds up differences along a spanning forest of bonds
(`limpet.sparse.forest`), where there are bonds, and S makes those of a ring alike
(`limpet.sparse.balance`). All are linear, and determinants are one, so that the law of z is that of
x. The numbers c and B are data of the compiled program: others of the same
form need no new one.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import solve_triangular

from limpet.shapes import Vector
from limpet.sparse.forest import Forest


class Directions(NamedTuple):
    """A few directions of z that are stretched: the map I + U diag(s) U^T."""

    vectors: Any  # U, n x k: orthonormal columns, or zero ones, which stretch nothing
    extra: Any  # s, k numbers above -1: each direction becomes 1 + s times as long

    def stretch(self, z: Any) -> Any:
        """The map of z, or of each row of it."""
        return self._add(self.extra, z)

    def shrink(self, y: Any) -> Any:
        """The way back, for columns of U are orthonormal."""
        return self._add(-self.extra / (1 + self.extra), y)

    def _add(self, share: Any, z: Any) -> Any:
        return z + (z @ self.vectors * share) @ self.vectors.T


class Frame(NamedTuple):
    """Where the origin of z is, and how long its axes are."""

    centre: Any  # n numbers
    scale: Any  # n numbers, or a lower triangular n x n matrix
    along: Directions | None = None  # stretched before the scale, where that is n numbers

    @classmethod
    def plain(cls, n: int) -> "Frame":
        """That in which z is x."""
        return cls(np.zeros(n), np.ones(n))

    @property
    def is_plain(self) -> bool:
        """Whether z is x."""
        diagonal = self.scale.ndim == 1 and self.along is None
        return diagonal and not self.centre.any() and bool((self.scale == 1).all())

    @property
    def widths(self) -> np.ndarray:
        """How far each coordinate goes, of a z of length one that is random."""
        if self.scale.ndim == 2:
            return np.linalg.norm(self.scale, axis=1)
        if self.along is None:
            return self.scale
        longer = (1 + self.along.extra) ** 2 - 1
        return self.scale * np.sqrt(1 + self.along.vectors**2 @ longer)

    def stretch(self, z: Any) -> Any:
        """From z to c + B z; of many points, too, unless B is triangular."""
        if self.scale.ndim == 2:
            return self.centre + jnp.tril(self.scale) @ z
        y = z if self.along is None else self.along.stretch(z)
        return self.centre + self.scale * y

    def shrink(self, u: Any) -> Any:
        """From c + B z to z; of NumPy's arrays also of many points, a number of z the last axis."""
        if self.scale.ndim == 1:
            y = (u - self.centre) / self.scale
            return y if self.along is None else self.along.shrink(y)
        if isinstance(u, jax.Array):
            return jax.scipy.linalg.solve_triangular(self.scale, u - self.centre, lower=True)
        rows = (u - self.centre).reshape(-1, u.shape[-1])
        return solve_triangular(self.scale, rows.T, lower=True).T.reshape(u.shape)


@dataclasses.dataclass(frozen=True)
class InFrame:
    """A function of x as a function of z, given the frame and whatever else it is given."""

    function: Callable
    forest: Forest | None

    def __call__(self, z: Vector, given: tuple[Any, ...]) -> Any:
        """What the function is there."""
        frame, *data = given
        return self.function(to_point(frame, self.forest, z), *data)


def to_point(frame: Frame, forest: Forest | None, z: Vector) -> Vector:
    """From z to x."""
    if forest is None:
        return frame.stretch(z)
    return forest.positions(frame.stretch(forest.spread(z)))


def to_coordinates(frame: Frame, forest: Forest | None, x: Any) -> Any:
    """From x to z; of NumPy's arrays also of many points, as `Frame.shrink`."""
    if forest is None:
        return frame.shrink(x)
    return forest.gather(frame.shrink(forest.differences(x)))
