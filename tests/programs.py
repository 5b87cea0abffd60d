"""Random programs for the compiler: a few of JAX's operations after each other, on odd numbers.

Numbers are floats, whole numbers or flags, in arrays of several shapes, also empty ones. Two ways
of computing may round differently, so a number is `exact`, the same to the bit in both, until it is
rounded; comparisons and the like are of exact numbers only, and nothing is computed with rounded
ones: they are moved about, and compared up to rounding.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 70.0, 1e3, -1e3, np.inf, -np.inf, np.nan]
LENGTH = 3  # of a point


def points(count, seed=0):
    """Points of normal and of odd numbers."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=(count // 3, LENGTH))
    return np.concatenate([normal, rng.choice(SPECIAL, size=(count - len(normal), LENGTH))])


class Value(NamedTuple):
    """An array of a program, and whether it is the same to the bit however it is computed."""

    array: Any
    exact: bool


def _table(rng, shape):
    return jnp.asarray(rng.choice([0.0, 1.0, -2.0, 0.5], size=shape))


def _window(rng, length):
    first = int(rng.integers(0, length + 1))
    return slice(first, int(rng.integers(first, length + 1)))


# Each takes an array of the kind, and a generator for its choices.

MOVES = {
    "reverse": lambda a, rng: a[::-1],
    "slice": lambda a, rng: a[_window(rng, len(a))],
    "pad": lambda a, rng: lax.pad(a, a.dtype.type(0), [(1, 2, 1)] + [(0, 0, 0)] * (a.ndim - 1)),
    "concatenate": lambda a, rng: jnp.concatenate([a, a]),
    "tile": lambda a, rng: jnp.tile(a, 2),
    "outer": lambda a, rng: jnp.stack([a, a[::-1]]),
    "flat": lambda a, rng: a.reshape(-1),
    "transpose": lambda a, rng: a.T,
    "gather": lambda a, rng: a.at[rng.integers(-5, 5, size=3)].get(mode=_mode(rng)),
    "set": lambda a, rng: a.at[int(rng.integers(0, 3))].set(a.dtype.type(1), mode="drop"),
    "dynamic": lambda a, rng: lax.dynamic_slice_in_dim(a, int(rng.integers(-3, 4)), len(a) // 2),
    "update": lambda a, rng: lax.dynamic_update_slice_in_dim(a, a[:1], int(rng.integers(4)), 0),
    "split": lambda a, rng: jnp.split(a, [1])[1],
    "roll": lambda a, rng: jnp.roll(a, 1),
    "remat": lambda a, rng: jax.checkpoint(lambda b: b[::-1])(a),
    "stop": lambda a, rng: lax.stop_gradient(a),
    "scan": lambda a, rng: lax.scan(lambda c, b: (c, b), 0, a, reverse=True)[1],
}
EXACT = {  # of floats
    "neg": lambda a, rng: -a,
    "abs": lambda a, rng: jnp.abs(a),
    "sign": lambda a, rng: jnp.sign(a),
    "less": lambda a, rng: 0.0 - a,
    "difference": lambda a, rng: a - a[::-1],
    "max": lambda a, rng: jnp.maximum(a, a[::-1]),
    "clip": lambda a, rng: jnp.clip(a, -1.0, 1.0),
    "floor": lambda a, rng: jnp.floor(a),
    "round": lambda a, rng: jnp.round(a),
    "where": lambda a, rng: jnp.where(a > 0, a, -0.0),
    "cummax": lambda a, rng: lax.cummax(a),
    "largest": lambda a, rng: jnp.max(a, initial=-1.0)[None],
    "smallest": lambda a, rng: jnp.min(a, axis=0, initial=jnp.inf)[None],
    "compare": lambda a, rng: a >= a[::-1],
    "finite": lambda a, rng: jnp.isfinite(a),
    "places": lambda a, rng: jnp.argmax(jnp.append(a.reshape(-1), 0.5))[None],
    "lowest": lambda a, rng: jnp.argmin(jnp.append(a.reshape(-1), 0.5))[None],
    "whole": lambda a, rng: a.astype(int),
    "whole, short": lambda a, rng: jnp.clip(jnp.nan_to_num(a), -99, 99).astype(jnp.int8),
    "branch": lambda a, rng: lax.cond(jnp.sum(a > 0) > 1, lambda: a, lambda: -a),
    "branches": lambda a, rng: jax.vmap(lambda b: lax.cond(jnp.all(b > 0), lambda: b, lambda: -b))(
        a
    ),
    "loops": lambda a, rng: jax.vmap(
        lambda b: lax.while_loop(lambda c: jnp.any((c > 1) & (c < 99)), lambda c: c / 2, b)
    )(a),
    "loop": lambda a, rng: lax.fori_loop(0, 3, lambda k, b: jnp.where(b > k, b / 2, b), a),
    "atan2": lambda a, rng: jnp.arctan2(a - a, 0.0 - a),
}
WHOLE = {
    "shift": lambda a, rng: a >> int(rng.integers(0, 8 * a.dtype.itemsize)),
    "shift far": lambda a, rng: a << jnp.abs(a),
    "shift back": lambda a, rng: lax.shift_right_logical(a, a[::-1]),
    "product": lambda a, rng: a * a[::-1] + 3,
    "sum": lambda a, rng: jnp.sum(a, dtype=a.dtype)[None],
    "prod": lambda a, rng: jnp.prod(a, dtype=a.dtype)[None],
    "cumsum": lambda a, rng: jnp.cumsum(a, axis=0, dtype=a.dtype),
    "largest": lambda a, rng: jnp.max(a, initial=-3)[None],
    "power": lambda a, rng: a**3,
    "not": lambda a, rng: ~a,
    "xor": lambda a, rng: a ^ a[::-1],
    "signs": lambda a, rng: jnp.sign(a) * jnp.abs(a),
    "without sign": lambda a, rng: a.astype(jnp.uint8),
    "longer": lambda a, rng: a.astype(jnp.int64),
    "floats": lambda a, rng: a.astype(float),
    "compare": lambda a, rng: a < a[::-1],
    "switch": lambda a, rng: lax.switch(
        jnp.sum(a > 0), [lambda: a, lambda: a + 1, lambda: a[::-1]]
    ),
    "product of matrices": lambda a, rng: jnp.tensordot(a, a, a.ndim).reshape(1),
}
FLAGS = {
    "not": lambda a, rng: ~a,
    "and": lambda a, rng: a & a[::-1],
    "xor": lambda a, rng: a ^ a[::-1],
    "all": lambda a, rng: jnp.all(a)[None],
    "any": lambda a, rng: jnp.any(a, axis=0)[None],
    "count": lambda a, rng: jnp.sum(a)[None],
    "floats": lambda a, rng: a.astype(float),
    "largest": lambda a, rng: jnp.max(a, initial=False)[None],
}
ROUNDED = {  # of exact floats; not exact themselves
    "sum": lambda a, rng: jnp.sum(a, axis=0)[None],
    "prod": lambda a, rng: jnp.prod(a)[None],
    "cumsum": lambda a, rng: jnp.cumsum(a, axis=0),
    "cumprod": lambda a, rng: jnp.cumprod(a, axis=0),
    "table": lambda a, rng: _table(rng, (4, len(a))) @ a,
    "times": lambda a, rng: a * _table(rng, a.shape),
    "over": lambda a, rng: _table(rng, a.shape) / a,
    "products": lambda a, rng: jnp.tensordot(a, a, a.ndim).reshape(1),
    "square": lambda a, rng: a**2 + a**-1 + a**0,
    "roots": lambda a, rng: jnp.stack([jnp.sqrt(a), lax.rsqrt(a), jnp.cbrt(a)]),
    "exp": lambda a, rng: jnp.stack([jnp.exp(a), jnp.expm1(a), jax.nn.sigmoid(a)]),
    "log": lambda a, rng: jnp.stack([jnp.log(a), jnp.log1p(a)]),
    "circle": lambda a, rng: jnp.stack([jnp.arctan(a), jnp.arccos(a), jnp.tanh(a), jnp.sinh(a)]),
    "power": lambda a, rng: jnp.abs(a) ** a[::-1],
    "logsumexp": lambda a, rng: jax.nn.logsumexp(a)[None],
    "softmax": lambda a, rng: jax.nn.softmax(a, axis=0),
    "polynomial": lambda a, rng: jnp.polyval(_table(rng, 4), a),
    "added": lambda a, rng: jnp.full(3, 1e17).at[rng.integers(0, 3, len(a))].add(a.sum() * 1.0),
    "multiplied": lambda a, rng: jnp.ones(2).at[jnp.array([0, 0, 5])].mul(3.0) * jnp.sum(a),
    "erf": lambda a, rng: lax.erf(a),
    "remainder": lambda a, rng: jnp.fmod(a, 2.5),
    "random": lambda a, rng: a * jax.random.normal(jax.random.key(3), a.shape),
    "norm": lambda a, rng: jnp.hypot(a, a[::-1]),
    "horner": lambda a, rng: lax.scan(lambda c, b: (c * 0.5 + b, c), jnp.zeros(a.shape[1:]), a)[1],
}
SMOOTH = (  # with derivatives that are finite and not too steep for rounding
    *("sum", "cumsum", "table", "times", "products", "logsumexp", "softmax", "polynomial"),
    *("random", "horner"),
)


def _mode(rng):
    return rng.choice(["fill", "clip"])


def _next(value: Value, rng) -> Value:
    """One more operation, of any that the value allows."""
    array, exact = value
    kinds = [(MOVES, exact)]
    if exact:
        kind = array.dtype.kind
        tables = {"f": (EXACT, ROUNDED), "b": (FLAGS,)}.get(kind, (WHOLE,))
        kinds += [(table, table is not ROUNDED) for table in tables]
    table, stays = kinds[rng.integers(len(kinds))]
    operation = table[rng.choice(list(table))]
    return Value(operation(array, rng), stays)


def program(seed: int, steps: int = 5):
    """A function of a point, which returns all arrays on its way, and tells which are exact."""
    told: list[bool] = []

    def function(x):
        rng = np.random.default_rng(seed)
        values = [Value(x, True)]
        while len(values) <= steps:
            value = values[rng.integers(len(values))] if rng.random() < 0.3 else values[-1]
            try:
                values.append(_next(value, rng))
            except (TypeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError):
                continue  # JAX itself refuses the operation for this shape
        told[:] = [value.exact for value in values[1:]]
        return [value.array for value in values[1:]]

    return function, told


def derivative(seed: int):
    """The second derivative of a smooth program along a direction, and the first."""

    def value(x):
        rng = np.random.default_rng(seed)
        first, second = (ROUNDED[rng.choice(SMOOTH)] for _ in range(2))
        return jnp.sum(jnp.sin(second(jnp.sin(first(x, rng)), rng)))

    def function(x):
        gradient = jax.grad(value)
        return gradient(x), jax.jvp(gradient, (x,), (jnp.arange(1.0, LENGTH + 1),))[1]

    return function
