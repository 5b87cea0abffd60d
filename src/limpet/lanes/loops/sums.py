"""Reductions and running sums."""

import itertools
import math
from collections.abc import Callable

import numpy as np

from limpet.lanes.arithmetic import add, compare
from limpet.lanes.arrays import REDUCTIONS
from limpet.lanes.code import FLAG
from limpet.lanes.loops.deferred import ShortSum
from limpet.lanes.loops.memory import (
    UNROLLED,
    Large,
    as_large,
    fits,
    needed,
    new,
    over,
    plus,
    spread,
)
from limpet.lanes.loops.program import LOOPS, one
from limpet.lanes.rules import numbers


def total(code, shape, dtype, combine, nothing, term: Callable, width: int = 1) -> list:
    """Sums, or the like, over a shape; `term(index)` gives a number for each of `width` sums.

    If there are few sums, several entries are taken at once, for each sum waits for its last one.
    """
    if 0 in shape:
        return [nothing] * width
    *outer, last = shape or (1,)
    turns = UNROLLED if width < UNROLLED and last >= 2 * UNROLLED else 1
    sums = [[code.variable(dtype) for _ in range(width)] for _ in range(turns)]
    for place in itertools.chain(*sums):
        code.put(place, nothing)

    def take(places, index):
        for place, number in zip(places, term(index[: len(shape)]), strict=True):
            code.put(place, combine(code, dtype, code.get(place, dtype), number))

    def rows(index):
        if last <= UNROLLED:
            for k in range(last):
                take(sums[0], (*index, k))
            return
        whole = last // turns * turns

        def several(k):
            for turn, places in enumerate(sums):
                take(places, (*index, plus(code, k, turn)))

        code.count(whole, turns, several)
        for k in range(whole, last):
            take(sums[0], (*index, k))

    over(code, outer, rows)
    results = []
    for k in range(width):
        result = code.get(sums[0][k], dtype)
        for places in sums[1:]:
            result = combine(code, dtype, result, code.get(places[k], dtype))
        results.append(result)
    return results


def _made(code, out, number) -> Large | np.ndarray:
    """An array of numbers that are computed one after the other, each by a loop of its own."""
    if fits(code, out.shape):
        return numbers(out.shape, [number(index) for index in np.ndindex(*out.shape)])
    made = new(code, out.shape, out.dtype)
    over(code, out.shape, lambda index: made.put(code, index, number(index)))
    return made


def _reduction(combine, nothing):
    def reduce(code, out, a, axes):
        a = as_large(code, a)
        kept = [k for k in range(a.ndim) if k not in axes]
        shape = [a.shape[k] for k in axes]

        def number(index):
            def term(place):
                at = dict(zip((*kept, *axes), (*index, *place), strict=True))
                return [a.at(code, [at[k] for k in range(a.ndim)])]

            return total(code, shape, out.dtype, combine, nothing(out.dtype), term)[0]

        if combine is add and 1 < math.prod(shape) <= UNROLLED and not fits(code, out.shape):
            return ShortSum(out.shape, out.dtype, number, needed(a))
        made = _made(code, out, number)
        if isinstance(made, Large) and a.zero is not None:
            made.zero = np.all(a.zero, axis=tuple(axes))
        return made

    return one(reduce)


def _running(combine, nothing):
    def accumulate(code, out, a, axis, reverse):
        a, made = as_large(code, a), new(code, out.shape, out.dtype)
        others = [1 if k == axis else size for k, size in enumerate(out.shape)]
        length, sofar = out.shape[axis], code.variable(out.dtype)

        def row(index):
            code.put(sofar, nothing(out.dtype))

            def turn(t):
                if reverse:
                    t = code.line(f"sub i64 {length - 1}, {t}")
                at = [*index[:axis], t, *index[axis + 1 :]]
                number = combine(code, out.dtype, code.get(sofar, out.dtype), a.at(code, at))
                code.put(sofar, number)
                made.put(code, at, number)

            code.count(length, 1, turn)

        over(code, others, row)
        return made

    return one(accumulate)


def _place_of(how):
    """Where the largest or smallest entry is: the first of several; NaN is beyond all."""

    def place(code, out, a, axes, index_dtype):
        (axis,) = axes
        a = as_large(code, a)
        best, found = code.variable(a.dtype), code.variable(out.dtype)

        def number(index):
            def at(k):
                return a.at(code, [*index[:axis], k, *index[axis:]])

            code.put(best, at(0))
            code.put(found, out.dtype.type(0))

            def turn(k):
                old, other = code.get(best, a.dtype), at(k)
                flag = compare(how)(code, FLAG, other, old)
                if a.dtype.kind == "f":
                    flag = code(FLAG, "or", flag, code(FLAG, "fcmp uno", other, other))
                    flag = code(FLAG, "and", flag, code(FLAG, "fcmp ord", old, old))
                short = "" if out.dtype.itemsize == 8 else f"to i{8 * out.dtype.itemsize}"
                here = code.line(f"trunc i64 {k} {short}") if short else k
                here = spread(code, out.dtype, here)
                code.put(best, code.select(flag, other, old))
                code.put(found, code.select(flag, here, code.get(found, out.dtype)))

            code.count(a.shape[axis], 1, turn)
            return code.get(found, out.dtype)

        return _made(code, out, number)

    return one(place)


LOOPS |= {f"reduce_{name}": _reduction(*how) for name, how in REDUCTIONS.items()}
LOOPS |= {f"cum{name}": _running(*REDUCTIONS[name]) for name in ("sum", "prod", "max", "min")}
LOOPS |= {"argmax": _place_of("gt"), "argmin": _place_of("lt")}
