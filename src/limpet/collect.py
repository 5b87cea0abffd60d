"""From what a tile did, step by step, to rectangular draws and counts.

Chains reach their number of draws at different steps. A chain's steps after that belong to nothing
and are not counted, so that draws and counts are the same however a run was cut into blocks.
"""

import jax
import numpy as np

from limpet.kernels.base import Move, Outcome
from limpet.tile import Trace


class Kept:
    """The first `draws` visits of each chain to where it is watched, every `thin`-th of them."""

    def __init__(self, chains: int, n: int, draws: int, thin: int):
        self.x = np.empty((chains, draws, n))
        self.lp = np.empty((chains, draws))
        self.step = np.empty((chains, draws), np.int64)
        self.visits = np.zeros(chains, np.int64)
        self.last = np.zeros(chains, np.int64)  # step after the last visit
        self.wanted = draws * thin
        self.thin = thin

    @property
    def full(self):
        """Which chains have all their draws."""
        return self.visits >= self.wanted

    def add(self, trace: Trace, visit, first_step: int):
        """Take in a block; which chains still wanted draws before each of its steps."""
        visits = self.visits + np.cumsum(visit, axis=0)
        take = visit & (visits % self.thin == 0) & (visits <= self.wanted)
        step, chain = np.nonzero(take)
        draw = visits[step, chain] // self.thin - 1
        self.x[chain, draw] = trace.x[step, :, chain]
        self.lp[chain, draw] = trace.lp[step, chain]
        self.step[chain, draw] = first_step + step
        self.visits = visits[-1]
        last = first_step + len(visit) - np.argmax(visit[::-1], axis=0)
        self.last = np.where(visit.any(axis=0), last, self.last)
        return visits - visit < self.wanted


class Collector:
    """All that is kept of a tile's chains."""

    def __init__(self, chains: int, n: int, draws: int, thin: int, keep_surface: bool):
        self.posterior = Kept(chains, n, draws, thin)
        self.surface = Kept(chains, n, draws, thin) if keep_surface else None
        self.counts = np.zeros((chains, len(Move), len(Outcome)), np.int64)
        self.acceptance = np.zeros((chains, len(Move)))

    @property
    def full(self):
        """Which chains have all that is wanted of them."""
        return self.posterior.full & (True if self.surface is None else self.surface.full)

    def waited(self, step: int):
        """For how many steps each chain has made no visit of a kind that it still lacks."""
        kinds = [kept for kept in (self.posterior, self.surface) if kept is not None]
        return np.max([np.where(kept.full, 0, step - kept.last) for kept in kinds], axis=0)

    def add(self, trace: Trace, first_step: int, skip: int):
        """Take in a block, but for its first `skip` steps, which were warm-up."""
        chains = len(self.counts)
        trace = jax.tree.map(lambda part: part[skip:, ..., :chains], trace)
        first_step += skip
        wanted = self.posterior.add(trace, trace.draw, first_step)
        if self.surface is not None:
            wanted |= self.surface.add(trace, trace.on, first_step)

        cells = self.counts.size
        code = trace.code + self.counts[0].size * np.arange(chains)
        counted = np.bincount(code[wanted], minlength=cells)
        likely = np.bincount(code[wanted], trace.acceptance[wanted], minlength=cells)
        self.counts += counted.reshape(self.counts.shape)
        self.acceptance += likely.reshape(self.counts.shape).sum(axis=2)
