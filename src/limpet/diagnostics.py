"""How well a chain mixes: autocorrelation time, effective sample size, R-hat."""

from typing import NamedTuple

import numpy as np

from limpet.errors import InputError, LimpetWarning, real_array, warn

WINDOW = 5  # lags summed, in units of tau: Sokal's recommendation
ENOUGH = 50  # draws, in units of tau, below which the estimate itself is noise


def autocorrelation_time(f) -> float:
    """Integrated autocorrelation time, 1 + 2 sum of correlations, by Sokal's window.

    Parameters
    ----------
    f : array (chain, draw) or (draw,)
        One number per draw. Chains are taken to have one law: their common mean is subtracted.

    Returns
    -------
    float
        How many draws are worth one independent draw; at least about 1.

    Examples
    --------
    >>> import numpy as np
    >>> import limpet
    >>> noise = np.random.default_rng(0).normal(size=(4, 5000))
    >>> round(limpet.autocorrelation_time(noise), 1)
    1.0
    """
    f = real_array("f", f, "real numbers, in an array (chain, draw) or (draw,)")
    if f.ndim not in (1, 2) or f.shape[-1] < 2 or not f.size:
        raise InputError(
            f"f has shape {f.shape}: expected (chain, draw) or (draw,), with two draws or more."
        )
    if not np.isfinite(f).all():
        raise InputError(f"f has {(~np.isfinite(f)).sum()} entries that are not finite.")
    tau, enough, *_ = windowed_time(np.atleast_2d(f))
    if not enough:
        warn(
            f"{f.size} draws in chains of {f.shape[-1]} are too few to tell their autocorrelation"
            f" time, which looks like {tau:.3g} or more: draw at least {ENOUGH * tau:.0f}.",
            LimpetWarning,
        )
    return tau


class Autocorrelation(NamedTuple):
    """What the autocorrelation of one variable tells; `window` is None where it did not close."""

    tau: float
    enough: bool  # draws to tell tau
    correlation: np.ndarray  # by lag, in draws; empty for a variable that never changes
    window: int | None  # the last lag summed


def windowed_time(f: np.ndarray) -> Autocorrelation:
    """The autocorrelation time of f (chain, draw), and what it comes from."""
    draws = f.shape[1]
    if np.ptp(f) == 0:
        return Autocorrelation(float(draws), False, np.empty(0), None)
    f = f / np.abs(f).max()  # squares of very large numbers would overflow
    f = f - f.mean()
    import scipy.fft  # slow to import, and wanted here only

    length = scipy.fft.next_fast_len(2 * draws, real=True)
    spectrum = np.asarray(scipy.fft.rfft(f, n=length, axis=1))
    power = np.mean(np.abs(spectrum) ** 2, axis=0)
    covariance = np.asarray(scipy.fft.irfft(power, n=length))[:draws] / np.arange(draws, 0, -1)
    correlation = covariance / covariance[0]
    tau = 2 * np.cumsum(correlation) - 1
    closed = np.flatnonzero(np.arange(draws) >= WINDOW * tau)
    if not len(closed):
        return Autocorrelation(max(float(tau[-1]), draws / WINDOW), False, correlation, None)
    window = int(closed[0])
    estimate = max(float(tau[window]), 1 / f.size)  # it is not negative, whatever the noise
    return Autocorrelation(estimate, f.size >= ENOUGH * estimate, correlation, window)
