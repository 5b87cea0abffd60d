"""Random programs for the compiler: a few of JAX's operations after each other, on odd numbers.

Numbers are floats, whole numbers or flags, in arrays of several shapes, also empty ones and single
numbers. Two ways of computing may round differently, so a number is exact, the same to the bit in
both, until it is rounded; comparisons and the like are of exact numbers only, and nothing is
computed with rounded ones: they are moved about, and compared up to rounding.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from vocabulary import (
    CONVERTED,
    EXACT,
    FLAGS,
    FORWARD,
    MATRICES,
    MOVES,
    ROUNDED,
    SUMMED,
    WHOLE,
)

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 70.0, 1e3, -1e3, np.inf, -np.inf, np.nan]
WHOLE_SPECIAL = [0, 1, -1, 2, 7, -8, 100, 2**31, -(2**31), 2**63 - 1, -(2**63)]
STEPS = 4  # of a program
REFUSED = (TypeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError)  # by JAX

EXACTLY = {"f": (EXACT, FORWARD, CONVERTED), "i": (WHOLE,), "u": (WHOLE,), "b": (FLAGS,)}
ROUGHLY = (ROUNDED, SUMMED, MATRICES)
FIRST = [  # every operation, with the kind of number that it takes
    *((kind, table, name) for kind in "fib" for table in EXACTLY[kind] for name in table),
    *(("f", table, name) for table in ROUGHLY for name in table),
    *(("fib"[k % 3], MOVES, name) for k, name in enumerate(MOVES)),
]
SMOOTH = [
    (table, name) for table in (MOVES, EXACT, ROUNDED, SUMMED, MATRICES, FORWARD) for name in table
]


class Point(NamedTuple):
    """What programs are given: as many floats, whole numbers and flags."""

    floats: Any
    whole: Any
    flags: Any


class Value(NamedTuple):
    """An array of a program, and how large the numbers are that it was rounded from.

    None: it is the same to the bit, however it is computed.
    """

    array: Any
    scale: Any


def points(count: int, size: int, seed: int = 0) -> Point:
    """Points of normal and of odd numbers."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=(count // 3, 2 * size))
    odd = rng.choice(SPECIAL, size=(count - len(normal), 2 * size))
    whole = rng.choice(WHOLE_SPECIAL, size=(count, 2 * size))
    return Point(np.concatenate([normal, odd]), whole, rng.random((count, 2 * size)) < 0.5)


def smooth_points(count: int, size: int, seed: int = 1) -> Point:
    """Points at which derivatives are not steep."""
    point = points(count, size, seed)
    return point._replace(floats=np.random.default_rng(seed).normal(size=(count, 2 * size)))


def _start(point: Point, kind: str, rng, size: int):
    """An array of a kind, of a random shape with sides up to `size`."""
    given = {"f": point.floats, "i": point.whole, "b": point.flags}[kind]
    side = int(rng.integers(1, size + 1))
    shapes = [(), (side,), (side,), (2, side), (side, 2), (1, side), (0,), (0, side), (side, 0)]
    shape = shapes[rng.integers(len(shapes))]
    return given[: int(np.prod(shape))].reshape(shape)


def _done(table, name: str, value: Value, rng) -> Value:
    """The value after an operation."""
    array = jnp.asarray(table[name](value.array, rng))
    if table is MOVES:
        return Value(array, value.scale)
    if table not in ROUGHLY:
        return Value(array, None)
    if table is SUMMED:  # of at most three factors
        return Value(array, value.array.size * _largest(value.array) ** 3)
    return Value(array, 1.0 if table is MATRICES else 0.0)


def _largest(array):
    """The largest number in the array that is finite; one at least."""
    sizes = jnp.abs(array)
    return jnp.max(jnp.where(sizes < jnp.inf, sizes, 0.0), initial=1.0)


def _next(value: Value, rng) -> Value:
    """The value after any operation that it allows."""
    kind = value.array.dtype.kind
    tables = [MOVES]
    if value.scale is None:
        tables += EXACTLY[kind]
        tables += ROUGHLY if kind == "f" else ()
    table = tables[rng.integers(len(tables))]
    return _done(table, str(rng.choice(list(table))), value, rng)


def _tried(make):
    """What `make` gives, once JAX does not refuse it."""
    while True:
        try:
            return make()
        except REFUSED:
            continue


def program(seed: int, size: int = 3):
    """A function of a point, which returns the values at the ends of what it computes.

    As many programs as there are in `FIRST`, one after the other, have all operations.
    """
    kind, table, name = FIRST[seed % len(FIRST)]

    def function(point: Point) -> list[Value]:
        rng = np.random.default_rng(seed)

        def first():
            return _done(table, name, Value(_start(point, kind, rng, size), None), rng)

        values = [_tried(first)]
        inner = set()
        while len(values) < STEPS:
            k = int(rng.integers(len(values))) if rng.random() < 0.3 else len(values) - 1
            values.append(_tried(lambda k=k: _next(values[k], rng)))
            if values[-1].array.size >= values[k].array.size:
                inner.add(k)
        return [value for k, value in enumerate(values) if k not in inner]

    return function


def derivative(seed: int, size: int = 3):
    """A function of a point: a gradient and a second derivative of a program of one or two steps.

    The first `len(SMOOTH)` programs are one operation each, so as many have all of them.
    """

    def function(point: Point) -> list[Value]:
        rng = np.random.default_rng(seed)

        def made():
            steps = [SMOOTH[seed % len(SMOOTH)]]
            if seed >= len(SMOOTH):
                steps.insert(0, SMOOTH[rng.integers(len(SMOOTH))])
            choices = int(rng.integers(2**32))

            def value(x):
                rng = np.random.default_rng(choices)
                for k, (table, name) in enumerate(steps):
                    x = table[name](jnp.sin(x) if k else x, rng)
                return jnp.sum(x**2)

            return _derivatives(value, _start(point, "f", rng, size), steps)

        return [Value(each, _largest(each)) for each in _tried(made)]

    return function


def _derivatives(value, x, steps):
    """The gradient, or the slope along a direction, and the slope of that along the direction.

    Loops have slopes and no gradients; a function with a rule for its gradient has no slopes.
    """
    along = jnp.arange(1.0, x.size + 1).reshape(x.shape)
    forward = any(table is FORWARD for table, _ in steps)
    backward = any(name == "thrice" for _, name in steps)
    if forward and backward:
        raise ValueError("a loop around a function that has no slopes")

    def first(x):
        return jax.jvp(value, (x,), (along,))[1] if forward else jax.grad(value)(x)

    if backward:
        return first(x), jax.grad(lambda x: jnp.sum(first(x) * along))(x)
    return jax.jvp(first, (x,), (along,))
