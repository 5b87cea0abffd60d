"""What is told of variables: mean, Monte Carlo error, tau, ESS and R-hat, read in pieces.

`limpet.run.mixing` says how tau and R-hat are defined.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from limpet.errors import InputError, LimpetWarning, real_array, warn
from limpet.run.mixing import HalfChains, diagnose

FEWEST_TAUS = 50  # draws, in units of tau; with fewer tau is uncertain by half: Sokal's advice
MOST_BATCHES = 2_048  # of a half chain: two halves of 128 chains take 4 MB a variable
CHAINS_AT_ONCE = 128  # that are read: stores are cut into tiles of 128 chains
VALUES_AT_ONCE = 2**20  # that are read: 8 MB, and as much again for each copy and power of them
SUMS_AT_ONCE = 2**23  # of batches, of all variables that are read together: 64 MB

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
    elif np.isnan(found.window[0]) or f.size < FEWEST_TAUS * tau:
        warn(
            f"{f.size} draws in chains of {f.shape[-1]} are too few to tell their autocorrelation"
            f" time, which looks like {tau:.3g} or more: draw at least {FEWEST_TAUS * tau:.0f}.",
            LimpetWarning,
        )
    return tau


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
    halves, width = Halves(draws), min(chains, CHAINS_AT_ONCE)
    step = max(1, VALUES_AT_ONCE // (width * variables) // halves.length) * halves.length
    together = max(1, SUMS_AT_ONCE // (width * 2 * max(halves.batches, 1)))
    tiles = [slice(at, min(at + width, chains)) for at in range(0, chains, width)]
    groups = [slice(at, at + together) for at in range(0, variables, together)]

    def values(tile, part, group):
        return np.ascontiguousarray(np.moveaxis(read(tile, part)[:, :, group], 2, 0))

    found = [_measure_group(values, tiles, halves, step, group) for group in groups]
    return Measures(*map(np.concatenate, zip(*found, strict=True)))


def _measure_group(values, tiles, halves, step, group):
    """The measures of a group of variables."""
    centre, scale = _centre_and_scale(values(tiles[0], slice(0, step), group))
    totals = np.zeros((2, len(centre)))

    def sums(tile) -> HalfChains:
        added = HalfSums(len(centre), tile.stop - tile.start, halves)
        for half, part in halves.pieces(step):
            x = values(tile, part, group) - centre[:, None, None]
            x /= scale[:, None, None]
            added.add(half, part, x)
        totals[...] += added.totals
        return added.half_chains()

    with np.errstate(all="ignore"):  # a variable that never changes divides by zero
        mixing = diagnose(sums(tile) for tile in tiles)
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
        self.length = max(1, -(-half // MOST_BATCHES))
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
