"""What warm-up learns of the shape of a tile's draws: the frame in which they are round.

Each round of warm-up looks at the draws in the coordinates z that it had, and stretches the axes of
z by how wide the draws were. So a coordinate that is a thousand times wider than the others is
found in a few rounds, each of which goes thirty times as far as the last. Widths are quantiles,
which neither heavy tails nor a few chains that are still on their way spoil.
"""

from typing import Any

import numpy as np
from scipy.linalg import eigh

from limpet.frame import Directions, Frame
from limpet.run import directions

ROUND_ENOUGH = (
    3.0  # ratio of widths up to which coordinates are left as the user has them: a choice
)
SETTLED = 2.0  # ratio of widths in z below which they are as wide as they will be: a choice
DRAWS_APART = 16  # steps of a chain that count as one independent draw, until chains are known
NOISE = 3.0  # standard errors by which ratios of widths may be off
NARROWEST = 1e-5  # of the widest: beyond it digits go
QUANTILES = (0.1587, 0.8413)  # one standard deviation from the middle of a Gaussian
MOST_FULL = (
    128  # unknowns up to which a B that is no diagonal is triangular: it has as many squared
)
DRAWS_FOR_FULL = 4  # times as many as unknowns are needed to tell how these go together
MOST_ROWS = 2_048  # that are looked at: widths are known to a few per cent by them
TINY = 1e-300
CLIP = 4.0  # widths from the middle beyond which a draw counts as this far: heavy tails
SHRUNK = (
    1e-3  # towards independence, with as many rows as unknowns; less with more (as Stan has it)
)


class Shape:
    """The frame of one tile, and whether it may still change."""

    def __init__(self, n: int, learns: bool, may_be_full: bool, given: np.ndarray | None = None):
        self.n, self.learns = n, learns
        self.may_be_full = learns and may_be_full and 1 < n <= MOST_FULL
        self.may_be_directed = learns and may_be_full and n > MOST_FULL
        self.frame = Frame.plain(n)
        if given is not None:
            self.frame = Frame(np.zeros(n), unit_determinant(given))
        # what rounds in this frame told of how unknowns go together: covariances, added up, and
        # for how many independent draws they count
        self.together, self.told = np.zeros((n, n) if self.may_be_full else (0, 0)), 0.0

    @property
    def is_full(self) -> bool:
        """Whether B is a triangular matrix."""
        return self.frame.scale.ndim == 2

    @property
    def is_directed(self) -> bool:
        """Whether B stretches a few directions."""
        return self.frame.along is not None

    def move_to(self, frame: Frame):
        """Take another frame, in which nothing is known yet."""
        self.frame, self.together, self.told = frame, np.zeros_like(self.together), 0.0

    def learn(self, z: np.ndarray, worth: float, settled: float = SETTLED) -> Frame | None:
        """The frame after a round with draws at these z (chain, step, n); None if as it was.

        `worth` is how many independent draws one counts for, as far as that is known, and `settled`
        the ratio of widths up to which a frame that was found is left alone.
        """
        if not self.learns:
            return None
        rows, independent = _latest(z, worth)
        middle, widths = _widths(rows)
        if self.is_full:
            found = self._full(rows, middle, widths, independent, settled)
        elif self.is_directed:
            found = self._directed_again(rows, middle, widths, independent, settled)
        else:
            found = self._diagonal(middle, widths, independent, settled)
        return found if found is not None and np.isfinite(found.scale).all() else None

    def _diagonal(
        self, middle: np.ndarray, widths: np.ndarray, independent: float, settled: float
    ) -> Frame | None:
        scale = self.frame.scale * widths
        scale = unit_determinant(np.maximum(scale, NARROWEST * scale.max()))
        plain = (self.frame.scale == 1).all()
        least = (ROUND_ENOUGH if plain else settled) * (1 + NOISE / np.sqrt(2 * independent))
        change = scale / self.frame.scale
        if change.max() <= least * change.min():
            return None
        return Frame(self.frame.centre + self.frame.scale * middle, scale)

    def _full(
        self,
        rows: np.ndarray,
        middle: np.ndarray,
        widths: np.ndarray,
        independent: float,
        settled: float,
    ) -> Frame | None:
        covariance = _covariance(rows, middle, widths)
        # of draws that are round, widths range that far by chance (Marchenko and Pastur)
        chance = min(0.5, np.sqrt(self.n / independent))
        if not _ratio(covariance) > settled * (1 + chance) / (1 - chance):
            return None
        scale = unit_determinant(self.frame.scale @ np.linalg.cholesky(covariance))
        return Frame(self.frame.centre + self.frame.scale @ middle, scale)

    def full(self, z: np.ndarray, worth: float) -> Frame | None:
        """A frame whose B is no diagonal, if draws at these z (chain, step, n) are rounder in it.

        They count as round if no direction is `ROUND_ENOUGH` times as wide as another; beyond
        `MOST_FULL` unknowns, as most are. Draws of earlier calls in the same frame count, too:
        those of few chains in one round would not tell enough.
        """
        if self.may_be_directed and not self.is_directed:
            rows, independent = _latest(z, worth)
            return self._directed(rows, independent, ROUND_ENOUGH)
        if not self.may_be_full or self.is_full:
            return None
        rows, independent = _latest(z, worth, share=1)
        middle, widths = _widths(rows)
        self.together += independent * _covariance(rows, middle, widths)
        self.told += independent
        if self.told < DRAWS_FOR_FULL * self.n:
            return None
        covariance, chance = self.together / self.told, np.sqrt(self.n / self.told)
        if not _ratio(covariance) > ROUND_ENOUGH * (1 + chance) / (1 - chance):
            return None
        scale = self.frame.scale[:, None] * np.linalg.cholesky(covariance)
        return Frame(self.frame.centre + self.frame.scale * middle, unit_determinant(scale))

    def _directed(self, rows: np.ndarray, independent: float, least: float) -> Frame | None:
        """A frame that stretches directions, if one is so many times as wide as most."""
        u = self.frame.stretch(rows)
        middle, widths = _widths(u)
        found = directions.find(_centred(u, middle, widths), independent, least)
        if found is None:
            return None
        more, along = found
        return Frame(middle, unit_determinant(widths * more, along), along)

    def _directed_again(
        self,
        rows: np.ndarray,
        middle: np.ndarray,
        widths: np.ndarray,
        independent: float,
        settled: float,
    ) -> Frame | None:
        uneven = widths.max() > settled * (1 + NOISE / np.sqrt(2 * independent)) * widths.min()
        u = _centred(rows, middle, widths)
        if not uneven and not directions.is_wide(u, independent, settled):
            return None
        return self._directed(rows, independent, 1.0)

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that it knows; B is a matrix, or has directions, wherever it may come to that."""
        scale = self.frame.scale
        if self.may_be_full and not self.is_full:
            scale = np.diag(scale)
        known = {
            "frame_centre": self.frame.centre,
            "frame_scale": scale,
            "frame_is_full": np.array(self.is_full),
        }
        if self.may_be_directed:
            vectors, extra = self.frame.along or directions.none(self.n)
            known |= {"frame_directions": vectors, "frame_extra": extra}
        return known | {"together": self.together, "together_told": np.array(self.told)}

    def restore(self, snapshot: dict[str, Any]):
        """Go on from a snapshot."""
        scale = snapshot["frame_scale"].copy()
        if scale.ndim == 2 and not snapshot["frame_is_full"]:
            scale = np.diag(scale).copy()
        along = None
        if self.may_be_directed and snapshot["frame_extra"].any():
            along = Directions(snapshot["frame_directions"].copy(), snapshot["frame_extra"].copy())
        self.frame = Frame(snapshot["frame_centre"].copy(), scale, along)
        self.together, self.told = snapshot["together"].copy(), float(snapshot["together_told"])


def unit_determinant(scale: np.ndarray, along: Directions | None = None) -> np.ndarray:
    """The same shape with determinant one, that of directions stretched before it included."""
    axes = np.abs(np.diag(scale) if scale.ndim == 2 else scale)
    longer = 0.0 if along is None else np.sum(np.log1p(along.extra)) / len(axes)
    return scale / np.exp(np.mean(np.log(axes)) + longer)


def _latest(z: np.ndarray, worth: float, share: float = 0.5) -> tuple[np.ndarray, float]:
    """Some of the last draws, this share at most, as rows; how many independent ones they are."""
    steps = max(1, min(int(share * z.shape[1]), MOST_ROWS // z.shape[0]))
    each = max(1.0, steps * worth) if worth else max(1.0, steps / DRAWS_APART)
    return z[:, -steps:].reshape(-1, z.shape[2]), z.shape[0] * each


def _ratio(covariance: np.ndarray) -> float:
    """How many times as wide draws are in the widest direction as in the narrowest."""
    lengths = np.sqrt(np.maximum(eigh(covariance, eigvals_only=True), TINY))
    return lengths[-1] / lengths[0]


def _widths(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The middle and half the width of each coordinate; what never moves is as wide as others."""
    low, middle, high = np.quantile(rows, [QUANTILES[0], 0.5, QUANTILES[1]], axis=0)
    widths = (high - low) / 2
    moves = np.isfinite(widths) & (widths > 0)
    usual = np.median(widths[moves]) if moves.any() else 1.0
    return np.where(moves, middle, 0.0), np.where(moves, widths, usual)


def _covariance(rows: np.ndarray, middle: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Of the rows, in units in which widths are those given; those far out count as less far."""
    u = _clipped(rows, middle, widths)
    covariance = np.atleast_2d(np.cov(u, rowvar=False))
    count, n = u.shape
    diagonal = np.maximum(np.diag(covariance), SHRUNK)
    covariance = (count * covariance + n * SHRUNK * np.diag(diagonal)) / (count + n)
    return covariance * np.outer(widths, widths)


def _clipped(rows: np.ndarray, middle: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """The rows from their middle, in units of their widths."""
    return np.clip((rows - middle) / widths, -CLIP, CLIP)


def _centred(rows: np.ndarray, middle: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """The same, from their means: those of many unknowns that go together are off together."""
    u = _clipped(rows, middle, widths)
    return u - u.mean(axis=0)
