"""The paper's estimate of the autocorrelation time: Sokal's window.

It is right where correlations are positive, as they are in the paper's experiments. For other
chains `limpet.autocorrelation_time` is the one to use.
"""

from typing import NamedTuple

import numpy as np

from limpet.report.diagnostics import autocorrelation

WINDOW = 5  # lags summed, in units of tau: Sokal's recommendation


class Autocorrelation(NamedTuple):
    """What the autocorrelation of one variable tells; `window` is None where it did not close."""

    tau: float
    correlation: np.ndarray  # by lag, in draws
    window: int | None  # the last lag summed


def windowed_time(f: np.ndarray) -> Autocorrelation:
    """The autocorrelation time of f (chain, draw), and what it comes from."""
    correlation = autocorrelation(f)
    tau = 2 * np.cumsum(correlation) - 1
    closed = np.flatnonzero(np.arange(len(tau)) >= WINDOW * tau)
    if not len(closed):
        return Autocorrelation(max(float(tau[-1]), f.shape[1] / WINDOW), correlation, None)
    window = int(closed[0])
    return Autocorrelation(float(tau[window]), correlation, window)
