"""Runs that go on until they have so many effective draws.

They go in stages. When every chain has the draws of a stage, and not before, the effective sample
size of exactly these draws says whether there is another stage, and of how many. So where a run
ends does not depend on who advanced its tiles, how fast, or how often it was interrupted.
"""

import math
from typing import NamedTuple

import numpy as np

from limpet.run.mixing import APART, Worst

SHORTEST = 200  # draws of the first stage: an ESS of fewer is hardly known
BEYOND = 1.1  # times the draws that seem to be needed: an ESS is known to a few percent at best
LONGEST = 4.0  # times as many draws as before in the next stage, at most
DOUBLE = 2.0  # the same, while chains disagree and nothing is known
# at least, if every step is a draw; and if not: a chain that is ahead of others may have more draws
# than a shorter stage asks for, and its moves were not counted by then (`limpet.run.collect`)
LEAST, LEAST_WITH_GAPS = 1.25, 2.0
MOST_DRAWS = 100_000  # per chain, if the user sets no limit


class Goal(NamedTuple):
    """What a run is to reach."""

    ess: int  # of the variable that has least
    most: int  # draws per chain, at which it is given up

    def first(self, chains: int) -> int:
        """Draws per chain of the first stage."""
        return min(self.most, max(SHORTEST, math.ceil(self.ess / chains)))

    def reached(self, seen: Worst) -> bool:
        """Whether draws that mix like this are enough."""
        return seen.r_hat <= APART and seen.ess >= self.ess

    def further(self, draws: int, seen: Worst, gaps: bool) -> int | None:
        """Draws per chain of the next stage; None if there is none.

        `gaps`: whether there are steps that are no draws.
        """
        if self.reached(seen) or draws >= self.most:
            return None
        factor = DOUBLE
        if seen.r_hat <= APART and seen.ess > 0:
            least = LEAST_WITH_GAPS if gaps else LEAST
            factor = float(np.clip(BEYOND * self.ess / seen.ess, least, LONGEST))
        return min(self.most, math.ceil(factor * draws))
