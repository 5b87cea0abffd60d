"""Whether points of a `Strata` could get lost: along a line on which nothing keeps them.

On such a line constraints that always hold stay as they are, and so do walls and the log density,
however far it goes. What is looked for are lines through the start; a law that is improper in
another way is not noticed.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from limpet.engine import of_rows
from limpet.errors import InputError
from limpet.strata import Strata

FAR = 1e5  # sizes of the start: how far along a line, where q is still known to some digits
POINTS = 6  # at which gradients are taken: what is zero at all of them, always is
NEARBY = 0.1  # sizes of the start by which these differ from it
STEP = 1e-6  # the same, for differences
FLAT = 1e-4  # of the largest singular value: differences know it to 1e-8 or so
LINES = 32  # at random among those that are possible
SAME = 1e-3  # change of q that counts as none, in units of its slope times the start's size
LOWER = 1.0  # fall of the log density that counts as none: proper ones fall by 11 or more so far


def check_proper(target: Strata, start: np.ndarray) -> None:
    """Refuse a law without an end, of which a chain at this start would notice nothing."""
    rng = np.random.default_rng(0)
    free = np.flatnonzero(target.free(len(start)))
    size = float(np.sqrt(np.mean(start[free] ** 2))) or 1.0
    slopes, lines = _possible(target, start, free, size, rng)
    if not len(lines):
        return
    some = np.concatenate([np.eye(len(lines)), rng.normal(size=(LINES, len(lines)))]) @ lines
    some /= np.linalg.norm(some, axis=1, keepdims=True)
    ways = np.concatenate([some, -some])
    there = np.repeat(start[None], len(ways), axis=0)
    there[:, free] += FAR * size * ways
    (q,), (level,), _ = _look(target, start[None])
    far_q, far_level, inside = _look(target, there)
    scale = slopes * size
    stays = np.abs(far_q - q) <= SAME * scale
    apart = (np.abs(far_q) > scale / SAME) & ((far_q > 0) | ~target.walled)
    lost = inside & (stays | (apart & target.may_break)).all(axis=1)
    lost &= _any_set(target, stays) & (far_level >= level - LOWER)
    if lost.any():
        way = ways[int(np.argmax(lost))]
        raise InputError(
            f"The law has no end: from the start, points may go along {np.round(way[:6], 2)} for"
            " good, for no constraint that always holds, nothing in inside and no log_density keeps"
            " them. Chains would get lost there, and no bond would ever form again. Bound them, by"
            " inside, by log_density, or by the box of limpet.sticky_spheres; or hold one particle"
            " in its place."
        )


def _possible(
    target: Strata, start: np.ndarray, free: np.ndarray, size: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """How steep constraints are, and directions in which those that always hold never change."""
    points = np.repeat(start[None], POINTS, axis=0)
    points[:, free] += NEARBY * size * rng.normal(size=(POINTS, len(free)))
    moved = np.repeat(points[:, None], len(free) + 1, axis=1)
    moved[:, np.arange(len(free)), free] += STEP * size
    q = _look(target, moved.reshape(-1, len(start)))[0].reshape(*moved.shape[:2], -1)
    slopes = (q[:, :-1] - q[:, -1:]) / (STEP * size)  # (point, number, constraint)
    lengths = np.linalg.norm(slopes, axis=1).max(axis=0)
    always = slopes[..., list(target.always)] / lengths[list(target.always)]
    rows = np.moveaxis(always, 1, 2).reshape(-1, len(free))
    if not rows.size:
        return lengths, np.eye(len(free))
    if not np.isfinite(rows).all():
        return lengths, np.zeros((0, len(free)))
    _, values, axes = np.linalg.svd(rows)
    known = int(np.sum(values > FLAT * values.max(initial=0.0)))
    return lengths, axes[known:]


def _any_set(target: Strata, stays: np.ndarray) -> np.ndarray:
    """Whether constraints that may hold together stay as they are, on each of several lines."""
    if target.allowed is None:
        return np.ones(len(stays), bool)
    return np.any([stays[:, list(each)].all(axis=1) for each in target.allowed], axis=0)


def _look(target: Strata, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, the log density, and whether a point is inside, of every row."""
    values, level, inside = of_rows(_at, target, rows, apart=False)
    return np.asarray(values) * np.asarray(target.widths), np.asarray(level), np.asarray(inside)


def _at(target: Strata, x: Any) -> tuple[Any, Any, Any]:
    return target.values(x), target.log_density_at(x), jnp.asarray(target.contains(x))
