"""Truth for the equation in time of `bench.nuts`: how its weight is shared among numbers of turns.

    python -m bench.turns

Prey and predators go round a point of rest. Rates that bring them to the same end with one turn
more are a part of the posterior of their own: there are no points between it and the rest. Its
weight is found without a sampler, for eps -> 0: the second and fourth unknown are drawn from their
prior law, all pairs of the two others that solve q = 0 are looked for by Newton's method from many
starts, and each has the weight of its prior density over |det dq|.
"""

import numpy as np

from bench import problems

GIVEN, SOUGHT = [1, 3], [0, 2]  # unknowns
STARTS = 60  # of the search for pairs, for each draw
SEARCH_DEVIATION = 1.0  # of these starts: twice that of the prior
UPDATES, LONGEST = 40, 0.5  # of Newton's method, and the most that one changes an unknown
SOLVED, SAME = 1e-8, 1e-4  # |q| of a solution, and how near two are that are one
H = 1e-5  # of differences for derivatives
ANOTHER_TURN = 0.95  # turns between the parts: few solutions have .8, few 1.05, none any between


def solve(x, steps):
    """The end of the solution for each column of unknowns, and how many turns led there."""
    a, b, c, d = np.exp(x)
    h, y = problems.TIME / steps, np.multiply.outer(problems.FIRST, np.ones_like(a))

    def change(y):
        return np.stack([a * y[0] - b * y[0] * y[1], d * y[0] * y[1] - c * y[1]])

    def angle(y):
        return np.arctan2(np.log(y[1] * b / a), np.log(y[0] * d / c))

    turns = 0.0
    with np.errstate(all="ignore"):  # starts of searches may be wild
        for _ in range(steps):
            k1 = change(y)
            k2 = change(y + h / 2 * k1)
            k3 = change(y + h / 2 * k2)
            k4 = change(y + h * k3)
            new = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            turns += (angle(new) - angle(y) + np.pi) % (2 * np.pi) - np.pi
            y = new
    return y, turns / (2 * np.pi)


def is_apart(x, steps):
    """Whether each point, along the last axis, is in the part with another turn."""
    return solve(np.moveaxis(np.asarray(x), -1, 0), steps)[1] > ANOTHER_TURN


def _derivatives(x, steps):
    """Of both numbers at the end by the unknowns sought: (2, 2, columns)."""
    shifts = H * np.eye(4)[SOUGHT][:, :, None]
    ends = [solve(x + shift, steps)[0] - solve(x - shift, steps)[0] for shift in shifts]
    return np.stack(ends, axis=1) / (2 * H)


def solutions(steps, draws, seed=0):
    """Points of the surface as columns, and of each its weight and the draw that it is of."""
    rng, usual = np.random.default_rng(seed), np.log(problems.RATES)[:, None]
    data = solve(usual, steps)[0]
    x = usual + SEARCH_DEVIATION * rng.normal(size=(4, draws * STARTS))
    given = usual[GIVEN] + problems.PRIOR_DEVIATION * rng.normal(size=(2, draws))
    x[GIVEN] = np.repeat(given, STARTS, axis=1)
    miss, damping = solve(x, steps)[0] - data, np.full(x.shape[1], 1e-2)
    with np.errstate(all="ignore"):
        for _ in range(UPDATES):
            J = _derivatives(x, steps)
            (p, r), (_, s) = np.einsum("ijk,ilk->jlk", J, J) + damping * np.eye(2)[:, :, None]
            u, v = np.einsum("ijk,ik->jk", J, miss)
            update = np.stack([s * u - r * v, p * v - r * u]) / (p * s - r**2)
            y = x.copy()
            y[SOUGHT] -= np.clip(update, -LONGEST, LONGEST)
            new = solve(y, steps)[0] - data
            better = np.sum(new**2, axis=0) < np.sum(miss**2, axis=0)
            x, miss = np.where(better, y, x), np.where(better, new, miss)
            damping = np.where(better, damping / 5, 5 * damping + 1e-12)
    solved = (np.linalg.norm(miss, axis=0) < SOLVED).reshape(draws, STARTS)
    u, v = x[SOUGHT].reshape(2, draws, STARTS)
    same = (abs(u[:, :, None] - u[:, None]) < SAME) & (abs(v[:, :, None] - v[:, None]) < SAME)
    # a solution that was found from several starts counts once
    again = np.any(np.tril(same & solved[:, None], -1), axis=2)
    found = np.flatnonzero(solved & ~again)
    x, draw = x[:, found], found // STARTS
    (p, q), (r, s) = _derivatives(x, steps)
    square = np.sum((x - usual)[SOUGHT] ** 2, axis=0)
    weight = np.exp(-square / (2 * problems.PRIOR_DEVIATION**2)) / np.abs(p * s - q * r)
    return x, weight, draw


def share_apart(steps, draws=4_000, seed=0):
    """Of the weight in the part with another turn, and its standard error."""
    x, weight, draw = solutions(steps, draws, seed)
    apart = is_apart(x.T, steps)
    total = np.bincount(draw, weight, draws)
    inside = np.bincount(draw, weight * apart, draws)
    share = inside.sum() / total.sum()
    return share, np.linalg.norm(inside - share * total) / total.sum()


def main():
    """The command line."""
    share, error = share_apart(50)
    print(f"equation, 50 steps: {share:.4f}({error:.4f}) of the weight has another turn")


if __name__ == "__main__":
    main()
