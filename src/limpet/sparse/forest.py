"""Bonds as coordinates: a spanning forest of blocks of unknowns whose differences constraints hold.

A bond between two beads depends on the difference of their positions only. In positions, a long
chain moves slowly, for whoever turns one bond must carry all beads beyond it. In terms of each
bead's difference to its parent in a spanning forest of the bonds, a bond of the forest is a
constraint on one block alone. The map is linear and has determinant one, so that nothing else
changes; a ring is closed by one constraint on many blocks (see `limpet.sparse.balance`).
"""

import dataclasses
import functools
import itertools
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float

from limpet.sparse.balance import LONG_PATH, MOST_RINGS, Balance, BalancedStructure, Path
from limpet.sparse.colours import Colouring
from limpet.sparse.tables import Structure

CANCELLED = 1e-9  # share of a gradient below which the sum of its blocks is zero, but for rounding
# Constraints from which on it is done: a choice. Fewer have their matrices in registers, and no
# chain of them is so long that it moves slowly.
FEWEST = 9
# Times as many entries of normals, or of their factor, that are still worth it: a choice. A ring
# has about as many; in a dense network, paths between the beads of a bond are long.
MOST_FILL = 4
USUAL_BLOCKS = (3, 2)  # numbers of a block where the user's arrays do not say

Vector = Float[Array, " n"]


@dataclasses.dataclass(frozen=True)
class Forest:
    """Blocks of unknowns, each but the roots with a parent."""

    blocks: tuple[tuple[int, ...], ...]
    parents: tuple[int, ...]  # -1 of roots
    balance: Balance | None = None  # what chains move in instead of differences, if there are rings

    def spread(self, z: Any) -> Any:
        """The differences that z stands for."""
        return z if self.balance is None else self.balance.spread(z)

    def gather(self, u: Any) -> Any:
        """The way back."""
        return u if self.balance is None else self.balance.gather(u)

    @functools.cached_property
    def depths(self) -> np.ndarray:
        """How many ancestors each block has."""
        depths = np.full(len(self.parents), -1)
        for block in range(len(depths)):
            path = [block]
            while depths[path[-1]] < 0 and self.parents[path[-1]] >= 0:
                path.append(self.parents[path[-1]])
            first = max(depths[path[-1]], 0)
            depths[path] = first + np.arange(len(path))[::-1]
        return depths

    @functools.cached_property
    def _parent_unknowns(self) -> np.ndarray:
        """The unknown that each is counted from; of roots the one behind the last, which is 0."""
        n = sum(map(len, self.blocks))
        found = np.full(n, n)
        for block, parent in zip(self.blocks, self.parents, strict=True):
            if parent >= 0:
                found[list(block)] = self.blocks[parent]
        return found

    def differences(self, x: Any) -> Any:
        """Each block less its parent, of one point or of many; unknowns are the last axis."""
        library = jnp if isinstance(x, jax.Array) else np
        padded = library.concatenate([x, library.zeros((*x.shape[:-1], 1))], axis=-1)
        return x - padded[..., self._parent_unknowns]

    def positions(self, u: Vector) -> Vector:
        """The point with these differences: a running sum, on a walk through the trees.

        Where the walk leaves a block, what it added is taken away again.
        """
        walk, signs, places = self._walk
        steps = u[walk] if (signs > 0).all() else u[walk] * signs[:, None]
        return jnp.concatenate([jnp.cumsum(steps, axis=0).ravel(), u])[places]

    @functools.cached_property
    def _walk(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Unknowns that are added (a block a row), signs, and where the sum is a position."""
        children = defaultdict(list)
        for block, parent in enumerate(self.parents):
            children[parent].append(block)
        visits = [
            visit for root in children[-1] if children[root] for visit in _tour(root, children)
        ]
        while visits and visits[-1][1] < 0:  # what comes after the last position is of no use
            visits.pop()
        size = len(self.blocks[visits[0][0]])
        walk = np.array([self.blocks[block] for block, _ in visits])
        signs = np.array([float(sign) for _, sign in visits])
        n = len(self._parent_unknowns)
        places = len(visits) * size + np.arange(n)  # as they are
        for k, (block, sign) in enumerate(visits):
            if sign > 0:
                places[list(self.blocks[block])] = size * k + np.arange(size)
        return walk, signs, places

    def above(self, blocks: Sequence[int], whole: bool) -> dict[int, set[int]]:
        """The blocks whose difference moves some of these, and which: all of them only if `whole`.

        Where constraints hold differences, moving all blocks together changes nothing.
        """
        moved: dict[int, set[int]] = {}
        front: dict[int, set[int]] = defaultdict(set)
        for block in blocks:
            front[block].add(block)
        while front:
            deepest = max(front, key=lambda block: self.depths[block])
            below = front.pop(deepest)
            if not whole and len(below) == len(blocks):
                break
            moved[deepest] = below
            if (parent := self.parents[deepest]) >= 0:
                front[parent] |= below
        return moved


def _tour(root: int, children: dict[int, list[int]]) -> Iterator[tuple[int, int]]:
    """A tree from its root: each block as it is entered (1) and left (-1)."""
    stack = [(root, 1)]
    while stack:
        block, sign = stack.pop()
        yield block, sign
        if sign > 0:
            stack.append((block, -1))
            stack.extend((child, 1) for child in reversed(children[block]))


@dataclasses.dataclass(frozen=True)
class ForestColouring:
    """How entries of normals in differences are computed: as sums of entries in positions."""

    below: Colouring  # in positions
    forest: Forest
    structure: Structure  # in differences
    table: tuple[tuple[int, ...], ...]  # entries to add up for each; the one behind the last is 0
    rings: tuple[tuple[int, Path], ...] = ()  # constraints that close one, and their paths

    def values_and_entries(
        self, function: Any, z: Vector, given: tuple[Any, ...]
    ) -> tuple[Float[Array, " m"], Float[Array, " entries"]]:
        """A function in the frame `given[0]` at z, and the entries of its derivatives."""
        frame, *data = given
        x = self.forest.positions(frame.stretch(self.forest.spread(z)))
        values, entries = self.below.values_and_entries(function.function, x, *data)
        entries = self._sums(entries) * frame.scale[self.structure.unknowns]
        balance = self.forest.balance
        return values, entries if balance is None else balance.size * entries

    def balanced(self, rings: tuple[tuple[int, Path], ...]) -> "ForestColouring":
        """The same where the bonds of these rings are alike, unless that is too full."""
        if not 0 < len(rings) <= MOST_RINGS:
            return self
        balance, mine = (
            Balance(self.forest.blocks, tuple(path for _, path in rings)),
            self.structure,
        )
        parts = mine.unknowns, mine.constraints, mine.n, mine.m
        structure = BalancedStructure(*parts, balance=balance)
        if structure.whole.factor_size > MOST_FILL * self.below.structure.factor_size:
            return self
        forest = dataclasses.replace(self.forest, balance=balance)
        return dataclasses.replace(self, forest=forest, structure=structure)

    def _sums(self, entries: Float[Array, " below"]) -> Float[Array, " entries"]:
        """Entries in differences from entries in positions."""
        table = np.array(self.table)
        if table.shape[1] == 1:
            return entries[table[:, 0]]
        return jnp.sum(jnp.append(entries, 0.0)[table], axis=1)


def find_forest(
    below: Colouring, entries: np.ndarray, widths: Sequence[int]
) -> ForestColouring | None:
    """A forest for constraints whose normals have these entries at some points, if one pays.

    `entries` has a row for each point. `widths` has numbers of a block that are likely, such as the
    length of the last axis of the user's arrays; blocks of 3 and 2 are tried as well.
    """
    structure = below.structure
    if structure.m < FEWEST or not np.isfinite(entries).all():
        return None
    for width in dict.fromkeys((*widths, *USUAL_BLOCKS)):
        if structure.n % width or not 1 < width < structure.n:
            continue
        for labels in (
            np.arange(structure.n) // width,
            np.arange(structure.n) % (structure.n // width),
        ):
            differences = _hold_differences(structure, entries, labels)
            if 2 * differences.sum() >= structure.m:
                return _through(below, _span(structure, labels, differences), labels, differences)
    return None


def _hold_differences(structure: Structure, entries: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Which constraints depend on differences of blocks only: their gradients' blocks cancel."""
    component = _components(labels)
    rows = structure.constraints * (component.max() + 1) + component[structure.unknowns]
    shape = (structure.m * (component.max() + 1), structure.size)
    add = sp.csr_matrix((np.ones(structure.size), (rows, np.arange(structure.size))), shape=shape)
    total = np.abs(add @ entries.T).reshape(structure.m, -1).max(axis=1)
    scale = np.zeros(structure.m)
    np.maximum.at(scale, structure.constraints, np.abs(entries).max(axis=0))
    return total <= CANCELLED * scale


def _components(labels: np.ndarray) -> np.ndarray:
    """The place of each unknown in its block."""
    order = np.argsort(labels, kind="stable")
    width = len(labels) // (labels.max() + 1)
    component = np.empty_like(labels)
    component[order] = np.arange(len(labels)) % width
    return component


def _blocks_of(structure: Structure, labels: np.ndarray) -> list[list[int]]:
    """The blocks that each constraint involves."""
    involved: list[dict[int, None]] = [{} for _ in range(structure.m)]
    for constraint, unknown in zip(structure.constraints, structure.unknowns, strict=True):
        involved[constraint][int(labels[unknown])] = None
    return [list(blocks) for blocks in involved]


def _span(structure: Structure, labels: np.ndarray, differences: np.ndarray) -> Forest:
    """A spanning forest of the blocks, as shallow as may be, rooted where something is held."""
    neighbours: dict[int, dict[int, None]] = defaultdict(dict)
    held = []
    # pairs come first: a tree of bonds is better than one of angles
    every = _blocks_of(structure, labels)
    for constraint in sorted(range(structure.m), key=lambda c: len(every[c])):
        blocks = every[constraint]
        if not differences[constraint]:
            held.extend(blocks)
            continue
        for a, b in itertools.pairwise(blocks):
            neighbours[a][b] = neighbours[b][a] = None
    count = int(labels.max()) + 1
    parents = np.full(count, -2)
    for root in (*held, *range(count)):
        if parents[root] != -2:
            continue
        parents[root] = -1
        reached = deque([root])
        while reached:
            block = reached.popleft()
            for near in neighbours[block]:
                if parents[near] == -2:
                    parents[near] = block
                    reached.append(near)
    order = np.argsort(labels, kind="stable").reshape(count, -1)
    return Forest(tuple(map(tuple, order.tolist())), tuple(parents.tolist()))


def _through(
    below: Colouring, forest: Forest, labels: np.ndarray, differences: np.ndarray
) -> ForestColouring | None:
    """Normals through a forest, unless they are too full."""
    before = below.structure
    component = _components(labels)
    places: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    by_block: list[dict[int, list[int]]] = [defaultdict(list) for _ in range(before.m)]
    for entry, (constraint, unknown) in enumerate(
        zip(before.constraints.tolist(), before.unknowns.tolist(), strict=True)
    ):
        by_block[constraint][int(labels[unknown])].append(entry)
    most, rings = MOST_FILL * before.size, []
    for constraint, entries in enumerate(by_block):
        moved = forest.above(list(entries), whole=not differences[constraint])
        if len(entries) <= 2 and len(moved) >= LONG_PATH:
            rings.append((constraint, _path(moved)))
        for block, some in moved.items():
            for entry in (entry for each in sorted(some) for entry in entries[each]):
                at = int(component[before.unknowns[entry]])
                places[constraint, block, at].append(entry)
        if len(places) > most:
            return None
    keys = sorted(places, key=lambda key: (key[0], forest.blocks[key[1]][key[2]]))
    unknowns = np.array([forest.blocks[block][at] for _, block, at in keys])
    structure = Structure(unknowns, np.array([key[0] for key in keys]), before.n, before.m)
    if structure.factor_size > MOST_FILL * before.factor_size:
        return None
    longest = max(map(len, places.values()))
    rows = [places[key] + [before.size] * (longest - len(places[key])) for key in keys]
    return ForestColouring(below, forest, structure, tuple(map(tuple, rows)), tuple(rings))


def _path(moved: dict[int, set[int]]) -> Path:
    """The differences that a bond is the sum of: those above its one end, less the others."""
    end = min(min(some) for some in moved.values())
    return tuple((block, 1 if end in some else -1) for block, some in sorted(moved.items()))
