"""How well a chain mixes: autocorrelation time, effective sample size, R-hat."""

import warnings

import numpy as np
import scipy.fft

from limpet.errors import InputError, LimpetWarning

WINDOW = 5  # lags summed, in units of tau: Sokal's recommendation


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
    f = np.asarray(f, float)
    if f.ndim not in (1, 2) or f.shape[-1] < 2:
        raise InputError(
            f"f has shape {f.shape}: expected (chain, draw) or (draw,), with two draws or more."
        )
    if not np.isfinite(f).all():
        raise InputError(f"f has {(~np.isfinite(f)).sum()} entries that are not finite.")
    f = np.atleast_2d(f) - f.mean()
    draws = f.shape[1]
    if not f.any():
        return float(draws)
    length = scipy.fft.next_fast_len(2 * draws, real=True)
    spectrum = np.asarray(scipy.fft.rfft(f, n=length, axis=1))
    power = np.mean(np.abs(spectrum) ** 2, axis=0)
    covariance = np.asarray(scipy.fft.irfft(power, n=length))[:draws] / np.arange(draws, 0, -1)
    tau = 2 * np.cumsum(covariance / covariance[0]) - 1
    closed = np.flatnonzero(np.arange(draws) >= WINDOW * tau)
    if not len(closed):
        warnings.warn(
            f"{draws} draws per chain are too few for their autocorrelation time: it is at least"
            f" {draws / WINDOW:.0f}. Draw more.",
            LimpetWarning,
            stacklevel=2,
        )
        return float(max(tau[-1], draws / WINDOW))
    return float(tau[closed[0]])
