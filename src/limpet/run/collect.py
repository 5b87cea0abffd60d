"""From what a tile did, step by step, to draws and counts.

Chains reach their number of draws at different steps. A chain's steps after that are counted
apart, so that draws and counts are the same however a run was cut into blocks, interrupted, or
made longer afterwards. One exception: of a chain that was past the new number already when a run
is made longer, the counts stay those at the old number, for nobody wrote down when it passed.
"""

import jax
import numpy as np

from limpet.kernels.states import Exchanges, Move, Outcome
from limpet.kernels.symmetry import Tally
from limpet.run.quantities import POINT, Draws, stats_of
from limpet.run.specification import RunSpecification
from limpet.run.tile import Trace

LADDER = ("exchanges", "exchange_acceptance", "round_trips")  # what is counted of a ladder


class Visits:
    """The visits of each chain to where a group's draws are made; every `thin`-th is a draw."""

    def __init__(self, group: str, chains: int, specification: RunSpecification):
        self.stats, self.thin = stats_of(group), specification.thin
        self.wanted = specification.draws * specification.thin
        self.made = np.zeros(chains, np.int64)
        self.last = np.zeros(chains, np.int64)  # step after the last visit

    @property
    def full(self) -> np.ndarray:
        """Which chains have all their draws."""
        return self.made >= self.wanted

    @property
    def draws(self) -> np.ndarray:
        """How many draws each chain has."""
        return self.made // self.thin

    def add(self, trace: Trace, visit, first_step: int) -> tuple[np.ndarray | np.bool_, Draws]:
        """Take in a block: which chains still wanted draws before each of its steps, new draws."""
        (chains, steps), n = visit.shape, trace.x.shape[-1]
        before, count = self.made, np.count_nonzero(visit, axis=1)
        ends = np.cumsum(count)
        at = np.flatnonzero(visit)  # chain after chain
        chain = np.repeat(np.arange(chains), count)
        nth = np.arange(1, len(at) + 1) + np.repeat(before - (ends - count), count)
        self.made = before + count
        self.last[count > 0] = first_step + 1 + at[ends[count > 0] - 1] % steps

        if self.thin > 1:
            drawn = nth % self.thin == 0
            at, chain, nth = at[drawn], chain[drawn], nth[drawn] // self.thin
        step = first_step + at - chain * steps
        numbers = {POINT: np.take(np.reshape(trace.x, (-1, n)), at, axis=0)}
        numbers |= {name: stat.take(trace, at, step) for name, stat in self.stats.items()}

        wanted = np.True_
        if (self.made >= self.wanted).any():
            wanted = before[:, None] + np.cumsum(visit, axis=1) - visit < self.wanted
        return wanted, Draws(chain, nth - 1, numbers)


class Collector:
    """All that is counted of a tile's chains."""

    def __init__(self, specification: RunSpecification, tile_index: int):
        chains = len(specification.chains_of(tile_index))
        self.visits = {g: Visits(g, chains, specification) for g in specification.groups}
        # until a chain has all its draws, and after that
        self.counts = np.zeros((2, chains, len(Move), len(Outcome)), np.int64)
        self.acceptance = np.zeros(self.counts.shape)  # their probabilities, added up
        # the same of exchanges on a ladder, by pair of rungs, and round trips of points on it
        pairs = specification.pairs
        self.exchanges = np.zeros((2, chains, pairs, len(Outcome)), np.int64)
        self.exchange_acceptance = np.zeros((2, chains, pairs))
        self.round_trips = np.zeros((2, chains), np.int64)
        self.books = ("counts", "acceptance") + (LADDER if pairs else ())

    @property
    def full(self) -> np.ndarray:
        """Which chains have all that is wanted of them."""
        return np.all([visits.full for visits in self.visits.values()], axis=0)

    @property
    def draws(self) -> np.ndarray:
        """How many draws each chain has of every group."""
        return np.min([visits.draws for visits in self.visits.values()], axis=0)

    @property
    def missing(self) -> int:
        """How many visits the chain that is most behind still lacks."""
        return max(int((v.wanted - v.made).max()) for v in self.visits.values())

    def steps_waited(self, step: int) -> np.ndarray:
        """For how many steps each chain has made no visit of a kind that it still lacks."""
        return np.max([np.where(v.full, 0, step - v.last) for v in self.visits.values()], axis=0)

    def add(self, trace: Trace, first_step: int) -> dict[str, Draws]:
        """Take in a block; the new draws, by group."""
        chains = self.counts.shape[1]
        trace = jax.tree.map(lambda part: part[:chains], trace)
        where = {"posterior": trace.draw, "surface": trace.on}
        wanted, new = np.False_, {}
        for group, visits in self.visits.items():
            of_group, new[group] = visits.add(trace, where[group], first_step)
            wanted = wanted | of_group

        book = np.arange(chains)[:, None] + np.where(wanted, 0, chains)
        cell = (trace.code + self.counts[0, 0].size * book).ravel()
        self.counts += np.bincount(cell, minlength=self.counts.size).reshape(self.counts.shape)
        # one by one, in the order of steps: the sum is the same however a run is cut into blocks
        np.add.at(self.acceptance.reshape(-1), cell, trace.acceptance.ravel())
        if trace.tally is not None:
            self._add_symmetries(trace.tally, book)
        if trace.exchanges is not None:
            self._add_exchanges(trace.exchanges, book)
        return new

    def _add_symmetries(self, tally: Tally, book: np.ndarray):
        """Take in moves by symmetries; `book` is where the counts of each chain and step go."""
        row = len(Move) * np.broadcast_to(book, tally.acceptance.shape) + Move.SYMMETRY
        counts, acceptance = (a.reshape(-1, len(Outcome)) for a in (self.counts, self.acceptance))
        np.add.at(counts, row, tally.outcomes)
        np.add.at(acceptance[:, Outcome.ACCEPTED], row, tally.acceptance)

    def _add_exchanges(self, tried: Exchanges, book: np.ndarray):
        """Take in exchanges of neighbours on a ladder; `book` as above."""
        pairs = tried.outcome.shape[-1]
        rows = np.broadcast_to(book, tried.round_trip.shape)
        cell = (rows[..., None] * pairs + np.arange(pairs)).ravel()
        which = cell * len(Outcome) + np.ravel(tried.outcome)
        counted = np.bincount(which, minlength=self.exchanges.size)
        self.exchanges += counted.reshape(self.exchanges.shape)
        np.add.at(self.exchange_acceptance.reshape(-1), cell, np.ravel(tried.acceptance))
        np.add.at(self.round_trips.reshape(-1), rows, tried.round_trip)

    def extend(self, draws: int):
        """Ask for another number of draws."""
        for visits in self.visits.values():
            visits.wanted = draws * visits.thin
        self.restore(self.snapshot())

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that it counts, by name."""
        made = {f"{group}_visits": visits.made for group, visits in self.visits.items()}
        last = {f"{group}_last": visits.last for group, visits in self.visits.items()}
        return made | last | {name: getattr(self, name) for name in self.books}

    def restore(self, snapshot: dict[str, np.ndarray]):
        """Go on from a snapshot, perhaps of a run that was to be shorter."""
        for group, visits in self.visits.items():
            visits.made = snapshot[f"{group}_visits"].copy()
            visits.last = snapshot[f"{group}_last"].copy()
        for name in self.books:
            array = snapshot[name].copy()
            array[0, ~self.full] += array[1, ~self.full]
            array[1, ~self.full] = 0
            setattr(self, name, array)
