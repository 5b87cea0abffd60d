"""From what a tile did, step by step, to rectangular draws and counts.

Chains reach their number of draws at different steps. A chain's steps after that are counted
apart, so that draws and counts are the same however a run was cut into blocks, interrupted, or
made longer afterwards. One exception: of a chain that was past the new number already when a run
is made longer, the counts stay those at the old number, for nobody wrote down when it passed.
"""

from typing import NamedTuple, Protocol

import jax
import numpy as np

from limpet.kernels.base import Move, Outcome
from limpet.run.tile import Trace


class Chunk(NamedTuple):
    """Room for successive draws of a tile's chains."""

    x: np.ndarray  # (chains, length, n)
    lp: np.ndarray  # (chains, length)
    step: np.ndarray  # (chains, length)


class Room(Protocol):
    """Where draws are put: chunks of `length` draws, of which the first `limit` are kept."""

    length: int
    limit: int

    def chunk(self, group: str, first_chain: int, chains: int, k: int) -> Chunk:
        """The k-th chunk of these chains' draws."""
        ...


class Memory:
    """Room in memory: one chunk for all draws."""

    def __init__(self, chains: int, n: int, draws: int, groups):
        self.length = self.limit = draws
        self.groups = {
            group: Chunk(
                np.empty((chains, draws, n)),
                np.empty((chains, draws)),
                np.empty((chains, draws), np.int64),
            )
            for group in groups
        }

    def chunk(self, group, first_chain, chains, k):
        """All the room of these chains."""
        mine = slice(first_chain, first_chain + chains)
        return Chunk(*(array[mine] for array in self.groups[group]))


class Kept:
    """The visits of each chain to where it is watched, every `thin`-th of them."""

    def __init__(self, room: Room, group: str, first_chain: int, chains: int, plan):
        self.room, self.group, self.first_chain = room, group, first_chain
        self.visits = np.zeros(chains, np.int64)
        self.last = np.zeros(chains, np.int64)  # step after the last visit
        self.wanted = plan.draws * plan.thin
        self.thin = plan.thin
        self.chunks: dict[int, Chunk] = {}
        self.touched: set[int] = set()  # chunks that have what was not written yet

    @property
    def full(self):
        """Which chains have all their draws."""
        return self.visits >= self.wanted

    @property
    def draws(self):
        """How many draws each chain has."""
        return np.minimum(self.visits // self.thin, self.room.limit)

    def add(self, trace: Trace, visit, first_step: int):
        """Take in a block: which chains still wanted draws before each of its steps, new draws."""
        (chains, steps), n = visit.shape, trace.x.shape[-1]
        before, count = self.visits, np.count_nonzero(visit, axis=1)
        ends = np.cumsum(count)
        at = np.flatnonzero(visit)  # chain after chain
        chain = np.repeat(np.arange(chains), count)
        nth = np.arange(1, len(at) + 1) + np.repeat(before - (ends - count), count)
        self.visits = before + count
        self.last[count > 0] = first_step + 1 + at[ends[count > 0] - 1] % steps

        if self.thin > 1 or self.visits.max() > self.room.limit:
            kept = (nth <= self.room.limit * self.thin) & (nth % self.thin == 0)
            at, chain, nth = at[kept], chain[kept], nth[kept] // self.thin
        new = Chunk(
            np.reshape(trace.x, (-1, n))[at],
            np.reshape(trace.lp, -1)[at],
            first_step + at - chain * steps,
        )
        self._put(chain, nth - 1, new)

        wanted = np.True_
        if (self.visits >= self.wanted).any():
            wanted = before[:, None] + np.cumsum(visit, axis=1) - visit < self.wanted
        return wanted, (chain, nth - 1, new.x)

    def _put(self, chain, draw, new: Chunk):
        """Write draws to where they belong."""
        length = self.room.length
        first, last = (draw.min() // length, draw.max() // length) if len(draw) else (0, -1)
        for k in range(first, last + 1):
            if k not in self.chunks:
                self.chunks[k] = self.room.chunk(self.group, self.first_chain, len(self.visits), k)
            self.touched.add(k)
            here = slice(None) if first == last else draw // length == k
            row = chain[here] * length + draw[here] - k * length
            for part, added in zip(self.chunks[k], new, strict=True):
                part.reshape(-1, *part.shape[2:])[row] = added[here]


class Collector:
    """All that is kept of a tile's chains."""

    def __init__(self, room: Room, first_chain: int, chains: int, plan):
        groups = ("posterior", "surface") if plan.keep_surface else ("posterior",)
        self.kept = {group: Kept(room, group, first_chain, chains, plan) for group in groups}
        # until a chain has all its draws, and after that
        self.counts = np.zeros((2, chains, len(Move), len(Outcome)), np.int64)
        self.acceptance = np.zeros((2, chains, len(Move)))

    @property
    def full(self):
        """Which chains have all that is wanted of them."""
        return np.all([kept.full for kept in self.kept.values()], axis=0)

    @property
    def draws(self):
        """How many draws each chain has of everything that is kept."""
        return np.min([kept.draws for kept in self.kept.values()], axis=0)

    @property
    def missing(self):
        """How many visits the chain that is most behind still lacks."""
        return max(int((kept.wanted - kept.visits).max()) for kept in self.kept.values())

    def waited(self, step: int):
        """For how many steps each chain has made no visit of a kind that it still lacks."""
        return np.max(
            [np.where(kept.full, 0, step - kept.last) for kept in self.kept.values()], axis=0
        )

    def add(self, trace: Trace, first_step: int):
        """Take in a block; the new draws from pi_eps, as arrays (chain, draw, x)."""
        chains = self.counts.shape[1]
        trace = jax.tree.map(lambda part: part[:chains], trace)
        wanted, new = self.kept["posterior"].add(trace, trace.draw, first_step)
        if "surface" in self.kept:
            wanted = wanted | self.kept["surface"].add(trace, trace.on, first_step)[0]

        book = np.arange(chains)[:, None] + np.where(wanted, 0, chains)
        cell = trace.code + self.counts[0, 0].size * book
        counted = np.bincount(cell.ravel(), minlength=self.counts.size)
        likely = np.bincount(cell.ravel(), trace.acceptance.ravel(), minlength=self.counts.size)
        self.counts += counted.reshape(self.counts.shape)
        self.acceptance += likely.reshape(self.counts.shape).sum(axis=-1)
        return new

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that it counts, by name; the draws themselves are in the room."""
        visits = {f"{group}_visits": kept.visits for group, kept in self.kept.items()}
        last = {f"{group}_last": kept.last for group, kept in self.kept.items()}
        return visits | last | {"counts": self.counts, "acceptance": self.acceptance}

    def restore(self, snapshot):
        """Go on from a snapshot, perhaps of a run that was to be shorter."""
        for group, kept in self.kept.items():
            kept.visits, kept.last = snapshot[f"{group}_visits"], snapshot[f"{group}_last"]
        for name in ("counts", "acceptance"):
            array = snapshot[name].copy()
            array[0, ~self.full] += array[1, ~self.full]
            array[1, ~self.full] = 0
            setattr(self, name, array)
