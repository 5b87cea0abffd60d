"""How well chains mix: autocorrelation time, effective sample size, R-hat.

One definition for `limpet.summary`, the warnings after a run and the progress during it.

Chains are cut into halves, and of the halves nothing is kept but sums: of each half's values, of
their squares, and of batches of successive draws. Long chains are read a piece at a time.

The autocorrelation time is ArviZ's, for the mean: Geyer's initial monotone sequence, of all half
chains together, with the variance between them. Two things are otherwise. Covariances are not
biased towards zero, which ArviZ's are by about tau / draws. And chains that alternate are whitened
first (Andrews and Monahan 1992), so that what Geyer's pairs leave out does not matter: ArviZ limits
tau from below instead, by 1 / log10(draws).

R-hat is split R-hat, the larger of two: that of the variable, and that of its squared distance from
the mean. The second sees chains that are spread differently about one mean.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from limpet.errors import InputError, LimpetWarning, real_array, warn

ENOUGH = 50  # draws, in units of tau, below which tau itself is uncertain by half: Sokal's advice
POINTS = 2_048  # batches of a half chain at most: two halves of 128 chains take 4 MB a variable
CHAINS = 128  # read together, since stores are cut into tiles of 128 chains
READ = 2**20  # values read at once: 8 MB, and as much again for each copy and power of them
HELD = 2**22  # batch sums held at once, of all variables that are read together: 32 MB
ROUNDING = 1e-13  # share of a sum of squares below which a difference of two sums is rounding

Read = Callable[[slice, slice], np.ndarray]  # chains, draws -> values (chain, draw, variable)


def autocorrelation_time(f) -> float:
    """Integrated autocorrelation time, 1 + 2 sum of correlations, by Geyer's initial sequence.

    Parameters
    ----------
    f : array (chain, draw) or (draw,)
        One number per draw. Chains are taken to have one law: where their means differ by more than
        correlations within chains explain, the time is longer.

    Returns
    -------
    float
        How many draws are worth one independent draw. Below 1 for draws that alternate about the
        mean, as those of the default sampler often do: these are worth more than independent ones.

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
    chains = np.atleast_2d(f)[:, :, None]
    found = measure(lambda chain, draw: chains[chain, draw], *chains.shape)
    tau = float(found.tau[0])
    if np.isnan(tau):
        tau = float(f.shape[-1])
        warn("f never changes: it has no autocorrelation time. Look at why.", LimpetWarning)
    elif np.isnan(found.window[0]) or f.size < ENOUGH * tau:
        warn(
            f"{f.size} draws in chains of {f.shape[-1]} are too few to tell their autocorrelation"
            f" time, which looks like {tau:.3g} or more: draw at least {ENOUGH * tau:.0f}.",
            LimpetWarning,
        )
    return tau


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


class Measures(NamedTuple):
    """What is told of variables, each by variable."""

    mean: np.ndarray
    sd: np.ndarray
    mcse: np.ndarray
    tau: np.ndarray
    ess: np.ndarray
    r_hat: np.ndarray
    window: np.ndarray


def measure(read: Read, chains: int, draws: int, variables: int) -> Measures:
    """Measure what `read` gives, in memory that grows with no number of chains, draws or variables.

    Variables whose sums fit together are measured in one pass over the draws.
    """
    halves, width = Halves(draws), min(chains, CHAINS)
    step = max(1, READ // (width * variables) // halves.length) * halves.length
    together = max(1, HELD // (width * 2 * max(halves.batches, 1)))
    tiles = [slice(at, min(at + width, chains)) for at in range(0, chains, width)]
    groups = [slice(at, at + together) for at in range(0, variables, together)]

    def values(tile, part, group):
        return np.ascontiguousarray(np.moveaxis(read(tile, part)[:, :, group], 2, 0))

    found = [_measured(values, tiles, halves, step, group) for group in groups]
    return Measures(*map(np.concatenate, zip(*found, strict=True)))


def _measured(values, tiles, halves, step, group):
    """The measures of a group of variables."""
    centre, scale = _centre_and_scale(values(tiles[0], slice(0, step), group))
    totals = np.zeros((2, len(centre)))

    def sums() -> Iterator[HalfChains]:
        for tile in tiles:
            added = HalfSums(len(centre), tile.stop - tile.start, halves)
            for half, part in halves.pieces(step):
                x = values(tile, part, group) - centre[:, None, None]
                x /= scale[:, None, None]
                added.add(half, part, x)
            totals[...] += added.totals
            yield added.half_chains()

    with np.errstate(all="ignore"):  # a variable that never changes divides by zero
        mixing = diagnose(sums())
        count = tiles[-1].stop * halves.draws
        mean, square = totals / count
        variance = np.maximum(square - mean**2, 0.0) * count / (count - 1)
        sd = scale * np.sqrt(variance)
        return Measures(
            mean=centre + scale * mean,
            sd=sd,
            mcse=sd * np.sqrt(mixing.tau / count),
            tau=mixing.tau,
            ess=count / mixing.tau,
            r_hat=mixing.r_hat,
            window=mixing.window,
        )


class Halves:
    """Where the halves of a chain begin, and how many batches of how many draws they have.

    Halves are equal: of an odd number of draws the middle one is in neither. Of long ones the last
    draws, fewer than a batch, are in no batch.
    """

    def __init__(self, draws: int):
        half = draws // 2
        self.length = max(1, -(-half // POINTS))
        self.batches = half // self.length
        self.draws, self.starts = draws, (0, draws - half)

    def pieces(self, step: int) -> Iterator[tuple[int | None, slice]]:
        """The draws in order, in pieces of `step` at most: which half each is in, if in one."""
        done = 0
        for half, start in enumerate(self.starts):
            end = start + self.batches * self.length
            yield from ((None, part) for part in _slices(done, start, step))
            yield from ((half, part) for part in _slices(start, end, step))
            done = end
        yield from ((None, part) for part in _slices(done, self.draws, step))


def _slices(first, last, step):
    return (slice(at, min(at + step, last)) for at in range(first, last, step))


class HalfSums:
    """The sums of one batch of chains, as their draws are read."""

    def __init__(self, variables: int, chains: int, halves: Halves):
        self.halves = halves
        self.batches = np.zeros((variables, chains, 2, halves.batches))
        self.squares = np.zeros((variables, chains, 2))
        self.cubes, self.quartics = np.zeros((2, variables))
        self.rest = np.zeros((2, variables))  # values and squares of draws that are in no batch

    def add(self, half: int | None, part: slice, values: np.ndarray):
        """Take in successive draws: (variable, chain, draw)."""
        squares = values**2
        if half is None:
            self.rest += values.sum(axis=(1, 2)), squares.sum(axis=(1, 2))
            return
        length = self.halves.length
        first = (part.start - self.halves.starts[half]) // length
        batches = values.reshape(*values.shape[:2], -1, length).sum(axis=3)
        self.batches[:, :, half, first : first + batches.shape[2]] = batches
        self.squares[:, :, half] += squares.sum(axis=2)
        self.cubes += np.einsum("vcd,vcd->v", squares, values)
        self.quartics += np.einsum("vcd,vcd->v", squares, squares)

    @property
    def totals(self) -> np.ndarray:
        """The sums of all values, and of all squares."""
        halves = self.batches.sum(axis=(1, 2, 3)), self.squares.sum(axis=(1, 2))
        return self.rest + halves

    def half_chains(self) -> HalfChains:
        """The sums, each half a chain of its own."""
        variables, _, _, batches = self.batches.shape
        return HalfChains(
            self.batches.reshape(variables, -1, batches),
            self.squares.reshape(variables, -1),
            self.cubes,
            self.quartics,
            self.halves.length,
        )


def _centre_and_scale(first):
    """What to subtract from each variable, and then divide by, so that powers keep their digits."""
    first = first[:, :, :: max(1, first.shape[2] // 16)]
    centre = np.median(first, axis=(1, 2))  # that of a constant is the constant itself, exactly
    scale = np.abs(first - centre[:, None, None]).max(axis=(1, 2))
    scale = np.where(scale > 0, scale, np.abs(centre))
    return centre, np.where((scale > 0) & np.isfinite(scale), scale, 1.0)


def diagnose(parts: Iterable[HalfChains]) -> Mixing:
    """How well all half chains of these parts mix; they are less one centre, and of one length."""
    power, moments, count = 0.0, 0.0, 0
    for part in parts:
        means = part.batches.sum(axis=2) / part.draws
        squares = part.squares / part.draws
        power = power + _power(part.batches, part.length)
        products = [means, squares, means**2, squares**2, means * squares]
        further = [part.cubes / part.draws, part.quartics / part.draws]
        moments = moments + np.stack([*(p.sum(axis=1) for p in products), *further])
        count += part.batches.shape[1]
        draws, batches, length = part.draws, part.batches.shape[2], part.length
    m, q, mm, qq, mq, cubes, quartics = moments / count
    ddof = count / (count - 1)
    between = np.maximum(mm - m**2, 0.0) * ddof
    within = _difference(q, mm)
    # the same of y, the squared distance from the mean m: its means over half chains are
    # q - 2 m mean + m^2, and the mean of its square is
    fourth = quartics - 4 * m * cubes + 6 * m**2 * q - 3 * m**4
    spread = np.maximum(qq - q**2 + 4 * m**2 * (mm - m**2) - 4 * m * (mq - m * q), 0.0)
    within_y = _difference(fourth, spread + (q - m**2) ** 2)
    within_y = np.where(within_y > 0, within_y, np.nan)  # two values about one mean: no spread
    ratio = np.fmax(between / within, spread * ddof / within_y)
    r_hat = np.sqrt((draws - 1) / draws * (1 + ratio)) if draws > 1 else np.full(len(m), np.nan)

    covariances = _covariances(power, count, batches) + between[:, None]
    found = [_long_run_variance(row) for row in covariances]
    variance, window = np.array(found).T
    alone = (within == 0) | np.isnan(variance)  # a chain that tells nothing more than one draw
    total = count * draws
    tau = np.where(alone, 2.0 * draws, length * variance / (within + between))
    tau = np.maximum(tau, 1 / total)  # a chain that alternates exactly errs by one draw in all
    still = (within == 0) & (between == 0)
    return Mixing(
        np.where(still, np.nan, tau),
        np.where(alone, np.nan, length * window),
        np.where(still, np.nan, r_hat),
    )


def _difference(a, b):
    """a - b of sums that are nearly equal, where it is more than rounding."""
    return np.where(a - b > ROUNDING * a, a - b, 0.0)


def _power(sums, length):
    """The power spectra of batch means, less those of their half chain, summed over half chains."""
    power = []
    for rows in sums:  # one variable at a time, or transforms would take several times the sums
        rows = (rows - rows.mean(axis=1, keepdims=True)) / length
        spectrum = np.fft.rfft(rows, n=_padded(rows.shape[1]), axis=1)
        power.append(np.sum(spectrum.real**2 + spectrum.imag**2, axis=0))
    return np.stack(power)


def _covariances(power, count, batches):
    """The mean covariance at each lag below `batches`, from the sum of `count` power spectra."""
    sums = np.fft.irfft(power, n=_padded(batches), axis=1)[:, :batches]
    return sums / (count * np.arange(batches, 0, -1))


def _padded(batches):
    """A length at which no lag wraps around, and that is transformed fast."""
    return 1 << (2 * batches - 1).bit_length()


def _long_run_variance(covariance):
    """The sum of covariances over all lags, and the last lag summed; NaN where it is not known.

    Of an alternating chain x it is computed from y_t = x_t - a x_(t-1), where a is the correlation
    of neighbours: y hardly alternates, and its sum is (1 - a)^2 times that of x.
    """
    a = min(covariance[1] / covariance[0], 0.0) if len(covariance) > 1 else 0.0
    before = np.concatenate([covariance[1:2], covariance[:-2]])
    whitened = (1 + a**2) * covariance[:-1] - a * (before + covariance[1:])
    pairs = whitened[: len(whitened) // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs < 0)
    if not len(ends) and len(pairs) < 2:
        return np.nan, np.nan
    end = int(ends[0]) if len(ends) else len(pairs) - 1
    total = 2 * np.minimum.accumulate(pairs[:end]).sum() - whitened[0] + max(whitened[2 * end], 0.0)
    return total / (1 - a) ** 2, max(2 * end - 1, 0) if len(ends) else np.nan


def autocorrelation(f: np.ndarray) -> np.ndarray:
    """The correlation of f (chain, draw) at each lag; empty if it never changes."""
    draws = f.shape[1]
    if np.ptp(f) == 0:
        return np.empty(0)
    f = f / np.abs(f).max()  # squares of very large numbers would overflow
    f = f - f.mean()
    import scipy.fft  # slow to import, and wanted here only

    length = scipy.fft.next_fast_len(2 * draws, real=True)
    spectrum = np.asarray(scipy.fft.rfft(f, n=length, axis=1))
    power = np.mean(np.abs(spectrum) ** 2, axis=0)
    covariance = np.asarray(scipy.fft.irfft(power, n=length))[:draws] / np.arange(draws, 0, -1)
    return covariance / covariance[0]
