"""From sums over half chains to autocorrelation time and R-hat.

One definition for `limpet.summary`, the warnings after a run and the progress during it.

Of the halves of chains nothing is known but sums: of each half's values, of their squares, and of
batches of successive draws.

The autocorrelation time is ArviZ's, for the mean: Geyer's initial monotone sequence, of all half
chains together, with the variance between them. Two things are otherwise. Covariances are not
biased towards zero, which ArviZ's are by about tau / draws. And chains that alternate are whitened
first (Andrews and Monahan 1992), so that what Geyer's pairs leave out does not matter: ArviZ limits
tau from below instead, by 1 / log10(draws).

R-hat is split R-hat, the larger of two: that of the variable, and that of its squared distance from
the mean. The second sees chains that are spread differently about one mean.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

APART = 1.1  # R-hat above which an ESS says nothing, for chains disagree: Gelman and Rubin's limit
QUIET = 2  # rounds of warm-up in which nothing changes, after which rounds end
ROUNDING = 1e-13  # share of sums below which their difference is rounding: some hundred epsilons


class HalfChains(NamedTuple):
    """Sums over half chains of values less a centre, a variable a row."""

    batches: np.ndarray  # (variable, half chain, batch): of values
    squares: np.ndarray  # (variable, half chain): of their squares
    cubes: np.ndarray  # (variable,): over all half chains
    quartics: np.ndarray  # (variable,)
    length: int  # draws of a batch

    @property
    def draws(self) -> int:
        """Draws of a half chain."""
        return self.batches.shape[2] * self.length


class Mixing(NamedTuple):
    """How well chains mix, by variable; all NaN for one that never changes."""

    tau: np.ndarray
    window: np.ndarray  # the last lag summed, in draws; NaN where correlations did not end
    r_hat: np.ndarray


class Worst(NamedTuple):
    """The largest R-hat and the least effective sample size of some variables; NaN if not known."""

    r_hat: float
    ess: float
    r_hat_of: int  # which variable has it
    ess_of: int


def worst(r_hat: np.ndarray, ess: np.ndarray, variables: np.ndarray) -> Worst:
    """The worst of these variables, but for those that never change."""
    worst_r_hat = int(np.argmax(np.nan_to_num(r_hat, nan=-np.inf, posinf=np.inf)))
    least = int(np.argmin(np.nan_to_num(ess, nan=np.inf)))
    return Worst(
        float(r_hat[worst_r_hat]),
        float(ess[least]),
        int(variables[worst_r_hat]),
        int(variables[least]),
    )


class Moments(NamedTuple):
    """Means over all half chains of what their own means say, by variable."""

    mean: np.ndarray  # of values
    square: np.ndarray  # of their squares
    mean_mean: np.ndarray  # of a half chain's mean, squared
    square_square: np.ndarray  # of a half chain's mean of squares, squared
    mean_square: np.ndarray  # of the product of these two
    cube: np.ndarray
    quartic: np.ndarray


def diagnose(parts: Iterable[HalfChains]) -> Mixing:
    """How well all half chains of these parts mix; they are less one centre, and of one length."""
    power, sums, count = np.zeros(()), np.zeros(()), 0
    for part in parts:
        means, squares = part.batches.sum(axis=2) / part.draws, part.squares / part.draws
        products = means, squares, means**2, squares**2, means * squares
        further = part.cubes / part.draws, part.quartics / part.draws
        sums = sums + np.stack([*(product.sum(axis=1) for product in products), *further])
        power = power + _power(part.batches, part.length)
        count += part.batches.shape[1]
        draws, batches, length = part.draws, part.batches.shape[2], part.length
        del part  # before the next, which may be large
    moments = Moments(*sums / count)
    unbiased = count / (count - 1)
    between = np.maximum(moments.mean_mean - moments.mean**2, 0.0) * unbiased
    within = _beyond_rounding(moments.square - moments.mean_mean, moments.square)
    still = (within == 0) & (between == 0)

    ratio = np.fmax(between / within, _ratio_of_spreads(moments) * unbiased)
    r_hat = np.sqrt((draws - 1) / draws * (1 + ratio)) if draws > 1 else np.full(len(ratio), np.nan)

    covariances = _covariances(power, count, batches) + between[:, None]
    variance, window = np.array([_long_run_variance(row) for row in covariances]).T
    frozen = (within == 0) | np.isnan(variance)  # so that a chain tells no more than one draw does
    tau = np.where(frozen, 2.0 * draws, length * variance / (within + between))
    tau = np.maximum(tau, 1 / (count * draws))  # chains that alternate exactly err by one draw
    return Mixing(
        np.where(still, np.nan, tau),
        np.where(frozen, np.nan, length * window),
        np.where(still, np.nan, r_hat),
    )


def _ratio_of_spreads(moments):
    """The variance between half chains over that within, of y, the squared distance from the mean.

    With the mean m, the mean of y over a half chain is its mean square - 2 m its mean + m^2.
    """
    m, q = moments.mean, moments.square
    fourth = moments.quartic - 4 * m * moments.cube + 6 * m**2 * q - 3 * m**4  # the mean of y^2
    between = moments.square_square - q**2 + 4 * m**2 * (moments.mean_mean - m**2)
    between = np.maximum(between - 4 * m * (moments.mean_square - m * q), 0.0)
    within = _beyond_rounding(fourth - between - (q - m**2) ** 2, moments.quartic)
    return between / np.where(within > 0, within, np.nan)  # if y never changes, it tells nothing


def _beyond_rounding(difference, whole):
    """A difference of sums as large as `whole`, or zero if it is but rounding."""
    return np.where(difference > ROUNDING * whole, difference, 0.0)


def _power(sums, length):
    """The power spectra of batch means, less those of their half chain, summed over half chains."""
    power = []
    for rows in sums:  # one variable at a time, or transforms would take several times the sums
        rows = (rows - rows.mean(axis=1, keepdims=True)) / length
        spectrum = np.fft.rfft(rows, n=_padded_length(rows.shape[1]), axis=1)
        power.append(np.sum(spectrum.real**2 + spectrum.imag**2, axis=0))
    return np.stack(power)


def _covariances(power, count, batches):
    """The mean covariance at each lag below `batches`, from the sum of `count` power spectra."""
    sums = np.fft.irfft(power, n=_padded_length(batches), axis=1)[:, :batches]
    return sums / (count * np.arange(batches, 0, -1))


def _padded_length(batches):
    """A length at which no lag wraps around, and that is transformed fast."""
    return 1 << (2 * batches - 1).bit_length()


def _long_run_variance(covariance):
    """The sum of covariances over all lags, and the last lag summed; NaN where it is not known.

    Of an alternating chain x it is computed from y_t = x_t - a x_(t-1), where a is the correlation
    of neighbours: y hardly alternates, and its sum is (1 - a)^2 times that of x.
    """
    a = float(np.clip(covariance[1] / covariance[0], -1.0, 0.0)) if len(covariance) > 1 else 0.0
    before = np.concatenate([covariance[1:2], covariance[:-2]])
    whitened = (1 + a**2) * covariance[:-1] - a * (before + covariance[1:])
    pairs = whitened[: len(whitened) // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs < 0)
    if not len(ends) and len(pairs) < 2:
        return np.nan, np.nan
    end = int(ends[0]) if len(ends) else len(pairs) - 1
    total = 2 * np.minimum.accumulate(pairs[:end]).sum() - whitened[0] + max(whitened[2 * end], 0.0)
    return total / (1 - a) ** 2, max(2 * end - 1, 0) if len(ends) else np.nan
