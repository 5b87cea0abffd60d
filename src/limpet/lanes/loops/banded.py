"""Matrices of three diagonals: equations in one dimension, splines, chains of states."""

import numpy as np

from limpet.lanes.arithmetic import compare, divide
from limpet.lanes.code import FLAG, UnsupportedError
from limpet.lanes.loops.matrices import in_batches, less_product
from limpet.lanes.loops.memory import Large, fill, new, over, plus, times
from limpet.lanes.loops.moves import part
from limpet.lanes.loops.program import LOOPS
from limpet.lanes.matrices import DOUBLE
from limpet.lanes.rules import RULES, in_memory

ZERO = np.float64(0)


@in_batches
def _tridiagonal_solve(
    code, lower: Large, diagonal: Large, upper: Large, b: Large, perturb_singular
):
    """LAPACK's elimination: of two rows that meet, each lane takes the one with the larger entry.

    So that U has a second diagonal above the first.
    """
    if perturb_singular:
        raise UnsupportedError("tridiagonal_solve with perturb_singular")
    m, sides = b.shape
    d, above, second = (new(code, (m,), DOUBLE) for _ in range(3))
    room = new(code, (m + 2, sides), DOUBLE)  # two more rows, so that the last are like others
    x = part(code, room, (slice(0, m),))
    fill(code, d, diagonal)
    fill(code, above, upper)
    fill(code, x, b)
    for rest in (part(code, room, (slice(m, m + 2),)), second):
        over(code, rest.shape, lambda index, rest=rest: rest.put(code, index, ZERO))
    above.put(code, (m - 1,), ZERO)
    sound = code.variable(FLAG)
    code.put(sound, np.True_)

    def check(i):
        flag = compare("ne")(code, FLAG, d.at(code, (i,)), ZERO)
        code.put(sound, code(FLAG, "and", code.get(sound, FLAG), flag))

    def eliminate(i):
        after = plus(code, i, 1)
        low, here = lower.at(code, (after,)), d.at(code, (i,))
        right, below, corner = above.at(code, (i,)), d.at(code, (after,)), above.at(code, (after,))
        stays = compare("ge")(code, FLAG, code.intrinsic("fabs", here), code.intrinsic("fabs", low))

        def in_order(first, then):
            """The two as they are where rows stay, else the other way around."""
            return code.select(stays, first, then), code.select(stays, then, first)

        top, other = in_order(here, low)
        share = divide(code, DOUBLE, other, top)
        right, rest = in_order(right, below)
        kept, beyond = in_order(corner, ZERO)
        d.put(code, (i,), top)
        above.put(code, (i,), right)
        second.put(code, (i,), beyond)
        d.put(code, (after,), less_product(code, rest, share, right))
        above.put(code, (after,), less_product(code, kept, share, beyond))
        check(i)

        def side(column):
            first, then = in_order(x.at(code, (i, column)), x.at(code, (after, column)))
            x.put(code, (i, column), first)
            x.put(code, (after, column), less_product(code, then, share, first))

        over(code, (sides,), lambda index: side(*index))

    code.between(0, m - 1, eliminate)
    check(m - 1)
    flag = code.get(sound, FLAG)

    def substitute(k):
        i = plus(code, m - 1, times(code, k, -1))

        def side(column):
            number = x.at(code, (i, column))
            for step, factor in ((1, above), (2, second)):
                known = room.at(code, (plus(code, i, step), column))
                number = less_product(code, number, factor.at(code, (i,)), known)
            x.put(code, (i, column), divide(code, DOUBLE, number, d.at(code, (i,))))

        over(code, (sides,), lambda index: side(*index))

    code.count(m, 1, substitute)
    solution = new(code, b.shape, DOUBLE)
    nan = np.float64(np.nan)
    over(
        code,
        b.shape,
        lambda index: solution.put(code, index, code.select(flag, x.at(code, index), nan)),
    )
    return [solution]


RULES["tridiagonal_solve"] = in_memory(honours=("perturb_singular",))
LOOPS["tridiagonal_solve"] = _tridiagonal_solve
