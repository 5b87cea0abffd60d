"""A few directions in which draws are much wider than in all others, from few draws.

Draws of covariance D (I + U diag((1 + s)^2 - 1) U^T) D are round in z, where x = D (I + U diag(s)
U^T) z. This is factor analysis: widths D and directions U are found in turn. What chance makes of
draws that are round is known (Marchenko and Pastur 1967), and also by how much it makes directions
wider that do stand out (Baik and Silverstein 2006).
"""

import numpy as np
from scipy.linalg import eigh

from limpet.frame import Directions

MOST = 8  # directions: a slide on a plain sphere takes 3 times as long with 8, 5 times with 16
FEWEST_DRAWS = 32  # independent ones: several for each direction
PASSES = 10  # at most: enough for three wide directions of ten unknowns among 200
SAME = 0.05  # change of widths, relative to each other, after which no more passes are made
BEYOND_CHANCE = 1.25  # times as wide as chance makes directions: it is not known how independent
DOUBT = 0.1  # share of a coordinate outside all directions that tells nothing of its width


def find(u: np.ndarray, independent: float, least: float) -> tuple[np.ndarray, Directions] | None:
    """D, and U and s, for the rows u; None if no direction is `least` times as wide as most.

    The rows count for so many independent ones, and columns have zero means.
    """
    if independent < FEWEST_DRAWS:
        return None
    widths, still = np.ones(u.shape[1]), ~u.any(axis=0)
    for _ in range(PASSES):
        y = u / widths
        level, lengths, vectors = _widest(y, independent)
        if not len(lengths):
            return None
        inside = np.sum(vectors**2, axis=1)
        rest = np.mean((y - y @ vectors @ vectors.T) ** 2, axis=0) / level
        change = np.where(still, 0.0, np.log((rest + DOUBT) / (1 - inside + DOUBT))) / 2
        widths = widths * np.sqrt(level) * np.exp(change)
        if np.ptp(change) < SAME:
            break
    _, lengths, vectors = _widest(u / widths, independent)
    if not (lengths > least).any():
        return None
    along = none(u.shape[1])
    along.vectors[:, : len(lengths)], along.extra[: len(lengths)] = vectors, lengths - 1
    return widths, along


def none(n: int) -> Directions:
    """As many that stretch nothing."""
    return Directions(np.zeros((n, MOST)), np.zeros(MOST))


def is_wide(u: np.ndarray, independent: float, least: float) -> bool:
    """Whether the rows are so many times as wide in a direction as in most."""
    return bool((_widest(u, independent)[1] > least).any())


def _widest(y: np.ndarray, independent: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Directions that are wider than by chance.

    The variance in all others; how many times as wide as that these are; and they, as columns.
    """
    count, n = y.shape
    few = count < n
    gram = (y @ y.T if few else y.T @ y) / count
    size = len(gram)
    values, found = eigh(gram, subset_by_index=[max(0, size - MOST), size - 1])
    values, found = values[::-1], found[:, ::-1]
    others = (np.trace(gram) - np.cumsum(values)) / (n - 1 - np.arange(len(values)))
    ratio = n / independent
    wide = values > others * (BEYOND_CHANCE * (1 + np.sqrt(ratio))) ** 2
    taken = int(np.max(np.flatnonzero(wide) + 1, initial=0))
    level = others[taken - 1] if taken else np.trace(gram) / n
    values, vectors = values[:taken], found[:, :taken]
    if few:
        vectors = y.T @ vectors / np.sqrt(count * values)
    seen = values / level
    half = (seen + 1 - ratio) / 2
    return level, np.sqrt(half + np.sqrt(half**2 - seen)), vectors  # without what chance added
