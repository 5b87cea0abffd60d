"""How well a chain mixes: autocorrelation time, effective sample size, R-hat."""

import numpy as np
import scipy.fft

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
    tau, enough = windowed_time(np.atleast_2d(f))
    if not enough:
        warn(
            f"{f.size} draws in chains of {f.shape[-1]} are too few to tell their autocorrelation"
            f" time, which looks like {tau:.3g} or more: draw at least {ENOUGH * tau:.0f}.",
            LimpetWarning,
        )
    return tau


def windowed_time(f: np.ndarray) -> tuple[float, bool]:
    """The autocorrelation time of f (chain, draw), and whether there are enough draws to tell."""
    draws = f.shape[1]
    if np.ptp(f) == 0:
        return float(draws), False
    f = f / np.abs(f).max()  # squares of very large numbers would overflow
    f = f - f.mean()
    length = scipy.fft.next_fast_len(2 * draws, real=True)
    spectrum = np.asarray(scipy.fft.rfft(f, n=length, axis=1))
    power = np.mean(np.abs(spectrum) ** 2, axis=0)
    covariance = np.asarray(scipy.fft.irfft(power, n=length))[:draws] / np.arange(draws, 0, -1)
    tau = 2 * np.cumsum(covariance / covariance[0]) - 1
    closed = np.flatnonzero(np.arange(draws) >= WINDOW * tau)
    if not len(closed):
        return max(float(tau[-1]), draws / WINDOW), False
    estimate = max(float(tau[closed[0]]), 1 / f.size)  # it is not negative, whatever the noise
    return estimate, f.size >= ENOUGH * estimate
