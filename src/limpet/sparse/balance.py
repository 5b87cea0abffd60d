"""Rings of bonds: coordinates in which the bond that closes one goes no faster than the others.

In differences along a tree, the bond that closes a ring of N is the sum of all others. It goes
sqrt(N) times as fast, and slides must be as much shorter. With a row of Q for each such path, +1 or
-1 where it takes a difference, all bonds of a ring are alike in z, where the differences are S z
and S S^T = (I + Q^T Q)^-1. That is I - V diag(c) V^T, with orthonormal columns V, a few a ring. The
Gram matrix of normals G in differences, G^T S S^T G, is full then. But it is what elimination
leaves of the sparse matrix

    [ G^T G            G^T V c^(1/2) ]
    [ c^(1/2) V^T G    I             ]

when it begins with the last rows: so determinants and solutions are those of this matrix, which is
the Gram matrix of G with columns V c^(1/2) beside it and (1 - c)^(1/2) below these.
"""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

from limpet.sparse.tables import Structure

# Differences of a path from which on the bond that closes it counts as fast: three times as fast as
# others, as are widths that warm-up does not leave alone.
LONG_PATH = 9
MOST_RINGS = 4  # each adds as many columns as a block has numbers: a choice
NOTHING = 1e-12  # of a unit vector

Path = tuple[tuple[int, int], ...]  # blocks whose differences a bond is the sum of, with signs


@dataclasses.dataclass(frozen=True)
class Balance:
    """The map S, times a number that makes its determinant one."""

    blocks: tuple[tuple[int, ...], ...]  # unknowns
    paths: tuple[Path, ...]

    @functools.cached_property
    def _spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """V, with a row for each block, and 1 + the squares of the singular values of Q."""
        Q = np.zeros((len(self.paths), len(self.blocks)))
        for row, path in zip(Q, self.paths, strict=True):
            for block, sign in path:
                row[block] = sign
        _, lengths, V = np.linalg.svd(Q, full_matrices=False)
        some = lengths > NOTHING
        return V[some].T, 1 + lengths[some] ** 2

    @functools.cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """The unknowns, a block a row; and of each unknown, where it is there."""
        order = np.array(self.blocks)
        return order, np.argsort(order.ravel())

    @functools.cached_property
    def size(self) -> float:
        """The number that makes the determinant one."""
        _, squares = self._spectrum
        return float(np.exp(np.log(squares).sum() / 2 / len(self.blocks)))

    def spread(self, z: Any) -> Any:
        """S z, times `size`; of one point or of many, unknowns the last axis."""
        _, squares = self._spectrum
        return self.size * self._add(squares**-0.5 - 1, z)

    def gather(self, u: Any) -> Any:
        """The way back."""
        _, squares = self._spectrum
        return self._add(squares**0.5 - 1, u / self.size)

    def turn(self, v: Any) -> Any:
        """S v, of a vector whose first entries are of unknowns; others stay."""
        _, squares = self._spectrum
        n = len(self.blocks) * len(self.blocks[0])
        turned = self._add(squares**-0.5 - 1, v[:n])
        return turned if len(v) == n else jnp.concatenate([turned, v[n:]])

    def _add(self, share: np.ndarray, v: Any) -> Any:
        """(I + V diag(share) V^T) v."""
        V, _ = self._spectrum
        order, back = self._places
        if (back == np.arange(len(back))).all():
            return v + ((V * share) @ (V.T @ v.reshape(*v.shape[:-1], *order.shape))).reshape(
                v.shape
            )
        added = (V * share) @ (V.T @ v[..., order])
        return v + added.reshape(v.shape)[..., back]

    @functools.cached_property
    def columns(self) -> np.ndarray:
        """V c^(1/2), a row for each unknown."""
        V, squares = self._spectrum
        return np.kron(V * np.sqrt(1 - 1 / squares), np.eye(len(self.blocks[0])))[self._places[1]]

    @functools.cached_property
    def below(self) -> np.ndarray:
        """The numbers (1 - c)^(1/2)."""
        return np.repeat(self._spectrum[1] ** -0.5, len(self.blocks[0]))


@dataclasses.dataclass(frozen=True, eq=False)
class BalancedStructure(Structure):
    """Entries of normals in differences, and how these are balanced."""

    balance: Balance = Balance((), ())

    @functools.cached_property
    def digest(self) -> bytes:
        """What it is."""
        return super().digest + repr(self.balance).encode()

    @functools.cached_property
    def lifted(self) -> "BalancedStructure":
        """That of the lifted surface."""
        above = super().lifted
        parts = above.unknowns, above.constraints, above.n, above.m
        return BalancedStructure(*parts, self, self.balance)

    @functools.cached_property
    def whole(self) -> Structure:
        """With the columns beside normals, and what is below these."""
        unknowns, columns = np.nonzero(np.abs(self.balance.columns) > NOTHING)
        every = np.arange(len(self.balance.below))
        return Structure(
            np.concatenate([self.unknowns, unknowns, self.n + every]),
            np.concatenate([self.constraints, self.m + columns, self.m + every]),
            self.n + len(every),
            self.m + len(every),
            None if self.under is None else self.under.whole,
        )

    @functools.cached_property
    def beside(self) -> np.ndarray:
        """The entries that `whole` has behind those of the normals."""
        columns = self.balance.columns
        return np.concatenate([columns[np.abs(columns) > NOTHING], self.balance.below])

    def turn(self, v: Any) -> Any:
        """S v."""
        return self.balance.turn(v)

    @functools.cached_property
    def directions(self) -> np.ndarray:
        """The columns, each a row over all unknowns."""
        columns = self.balance.columns.T
        return np.pad(columns, [(0, 0), (0, self.n - columns.shape[1])])
