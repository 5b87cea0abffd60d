"""How far a tile is: the few numbers that a scheduler and a progress bar need of it."""

from typing import NamedTuple

import numpy as np


class Standing(NamedTuple):
    """A tile as it was at some moment, in a few kilobytes; nothing changes it."""

    step: int
    seconds: float  # that it took so far, in all phases
    drawing: bool  # whether warm-up is over
    done: bool  # whether every chain has all its draws
    stuck: bool  # whether a chain waits too long for a draw
    steps_left: float  # about
    warmup: int  # steps of it; -1 while that is not known
    warmup_left: int
    quiet: int | None  # rounds in which warm-up learned nothing new; None if it does not learn
    fewest: int  # draws that all chains have, of every group
    draws: np.ndarray  # (chain,): of the posterior
    counts: np.ndarray  # (move,): proposals, of all chains together
    acceptance: np.ndarray  # (move,): their probabilities, added up
