"""Whether points of a surface lie in several pieces, far from each other.

Points are joined to a tree by the shortest lines between them. Where the surface is in one piece,
no line is much longer than the others; between two pieces there is one that is. How much longer
lines become by chance depends on the dimension of the surface: their lengths, raised to that power,
are about exponential.
"""

import numpy as np

FEWEST_POINTS = 3  # of a piece; one or two may be far from the others by chance
# A line between pieces is LONGER * CHANCE ** (1 / dimension) times as long as those inside either,
# by the median. In one piece the longest is by a factor of 6 (up to 20) in one dimension, 1.6 (2.2)
# in four and 1.3 (1.8) in twenty: 20 times 128 points of 14 surfaces. Two pieces in four dimensions
# that are two diameters apart: 5 (3.8).
LONGER, CHANCE = 1.8, 16.0


def pieces(x: np.ndarray, dimension: int) -> np.ndarray:
    """Which piece each point (row) is in, by the number of its first point."""
    parent, length, order = _shortest_tree(x)
    below = np.eye(len(x), dtype=bool)  # row k: k, and the points that its line joins to the rest
    for k in order[:0:-1]:
        below[parent[k]] |= below[k]
    is_line = np.arange(len(x)) != order[0]
    apart: list[int] = []
    for k in order[1:]:
        sides = [side & is_line & (np.arange(len(x)) != k) for side in (below[k], ~below[k])]
        if min(below[k].sum(), (~below[k]).sum()) >= FEWEST_POINTS:
            usual = max(np.median(length[side]) for side in sides)
            if length[k] > LONGER * CHANCE ** (1 / dimension) * usual:
                apart.append(k)
    if not apart:
        return np.zeros(len(x), int)
    _, first, same = np.unique(below[apart], axis=1, return_index=True, return_inverse=True)
    return first[same.ravel()]


def spread_over(piece: np.ndarray, count: int) -> np.ndarray:
    """`count` of the points, from all pieces in turn; the first ones if they are in all pieces."""
    if set(piece[:count]) == set(piece):
        return np.arange(count)
    turn = np.array([np.sum(piece[:k] == piece[k]) for k in range(len(piece))])
    return np.lexsort((piece, turn))[:count]


def _shortest_tree(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prim's: of each point the one it was joined to, how far, and in which order."""
    count = len(x)
    parent, length, order = np.zeros(count, int), np.full(count, np.inf), [0]
    waiting = np.ones(count, bool)
    for _ in range(count - 1):
        last = order[-1]
        waiting[last] = False
        distance = np.linalg.norm(x - x[last], axis=1)
        nearer = waiting & (distance < length)
        parent[nearer], length[nearer] = last, distance[nearer]
        order.append(int(np.argmin(np.where(waiting, length, np.inf))))
    return parent, length, np.array(order)
