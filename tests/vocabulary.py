"""The operations of which random programs are made, by what they take and how they round.

Each is a function of an array and a generator of random numbers, for its choices. Where JAX itself
refuses a shape, the program does something else.
"""

import jax
import jax.numpy as jnp
from jax import lax

from limpet.lanes import primitives


def _back(a):
    """The array from its end: another one of the same shape, whatever that is."""
    return lax.rev(a, range(a.ndim))


def _table(rng, shape):
    return jnp.asarray(rng.choice([0.0, 1.0, -2.0, 0.5], size=shape))


def _slice(a, rng):
    first = int(rng.integers(0, len(a) + 1))
    step = int(rng.integers(1, 3))
    return a[first : int(rng.integers(first, len(a) + 1)) : step]


def _pad(a, rng):
    edges = [tuple(int(k) for k in rng.integers((-1, -1, 0), 3)) for _ in range(a.ndim)]
    return lax.pad(a, a.dtype.type(1), edges)


def _places(a, rng):
    """A few places along the first axis, some of them beyond it."""
    return jnp.asarray(rng.integers(-len(a) - 2, len(a) + 2, size=3))


def _at(a, rng):
    """The same, and what is written there."""
    return a.at[_places(a, rng)], jnp.stack([_back(a)[0]] * 3)


def _mode(rng):
    return str(rng.choice(["fill", "clip"]))


def _halved(b):
    return lax.while_loop(lambda c: jnp.any((c > 1) & (c < 99)), lambda c: c / 2, b)


def _of_bits(a):
    """Numbers of these bits, but none that is subnormal, which XLA takes for zero, or huge."""
    b = jnp.nan_to_num(lax.bitcast_convert_type(a.astype(jnp.int64), jnp.float64))
    return jnp.where(jnp.abs(b) < 1e-300, 0.0, jnp.clip(b, -1e9, 1e9))


@jax.custom_jvp
def _twice(a):
    return a + a


_twice.defjvp(lambda primals, tangents: (_twice(*primals), 2.0 * tangents[0]))


@jax.custom_vjp
def _thrice(a):
    return a + a + a


_thrice.defvjp(lambda a: (_thrice(a), None), lambda _, g: (3.0 * g,))

MOVES = {  # of any numbers
    "reverse": lambda a, rng: _back(a),
    "slice": _slice,
    "pad": _pad,
    "concatenate": lambda a, rng: jnp.concatenate([a, a[:1], a]),
    "tile": lambda a, rng: jnp.tile(a, 2),
    "stack": lambda a, rng: jnp.stack([a, _back(a)], axis=int(rng.integers(-1, 1))),
    "unstack": lambda a, rng: jnp.unstack(a, axis=-1)[-1],
    "broadcast": lambda a, rng: jnp.broadcast_to(a, (2, *a.shape)),
    "expand": lambda a, rng: lax.expand_dims(a, [0]),
    "squeeze": lambda a, rng: lax.squeeze(a, [k for k, n in enumerate(a.shape) if n == 1]),
    "flat": lambda a, rng: a.reshape(-1),
    "transpose": lambda a, rng: a.T,
    "gather": lambda a, rng: a.at[_places(a, rng)].get(mode=_mode(rng)),
    "gather rows and columns": lambda a, rng: a[_places(a, rng)[:, None], jnp.array([0, -1])],
    "set": lambda a, rng: a.at[_places(a, rng)[0]].set(a.dtype.type(1), mode="drop"),
    "dynamic": lambda a, rng: lax.dynamic_slice_in_dim(a, int(rng.integers(-3, 4)), len(a) // 2),
    "update": lambda a, rng: lax.dynamic_update_slice_in_dim(a, a[:1], int(rng.integers(4)), 0),
    "split": lambda a, rng: jnp.split(a, [1])[1],
    "roll": lambda a, rng: jnp.roll(a, 1),
    "remat": lambda a, rng: jax.checkpoint(_back)(a),
    "stop": lambda a, rng: lax.stop_gradient(a),
    "copy": lambda a, rng: jnp.copy(a),
    "scan": lambda a, rng: lax.scan(lambda c, b: (c, b), 0, a, reverse=True)[1],
    "select": lambda a, rng: lax.select_n(
        jnp.asarray(rng.integers(0, 3, a.shape), jnp.int32), a, _back(a), a
    ),
    "places at which": lambda a, rng: jnp.where(lax.iota(int, len(a)) % 2 == 0, a.T, _back(a.T)).T,
}
COMPARISONS = [lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge]
BOUNDS = jnp.array([-1.0, 0.0, 0.5, 3.0])


def _place(a):
    return jnp.argmax(a.reshape(-1)) % (len(a) + 1)


EXACT = {  # of floats; the results are the same to the bit however they are computed
    "neg": lambda a, rng: -a,
    "abs": lambda a, rng: jnp.abs(a),
    "sign": lambda a, rng: jnp.sign(a),
    "less": lambda a, rng: 0.0 - a,
    "difference": lambda a, rng: a - _back(a),
    "add": lambda a, rng: a + _back(a),
    "halve": lambda a, rng: a * 0.5,
    "max": lambda a, rng: jnp.maximum(a, _back(a)),
    "min": lambda a, rng: jnp.minimum(a, _back(a)),
    "clip": lambda a, rng: lax.clamp(jnp.asarray(-1, a.dtype), a, jnp.abs(_back(a))),
    "floor": lambda a, rng: jnp.floor(a),
    "ceil": lambda a, rng: jnp.ceil(a),
    "round": lambda a, rng: lax.round(a, lax.RoundingMethod(int(rng.integers(2)))),
    "where": lambda a, rng: jnp.where(a > 0, a, -0.0),
    "cummax": lambda a, rng: lax.cummax(a, reverse=bool(rng.integers(2))),
    "cummin": lambda a, rng: lax.cummin(a),
    "largest": lambda a, rng: jnp.max(a, initial=-1.0),
    "smallest": lambda a, rng: jnp.min(a, axis=0, initial=jnp.inf),
    "largest of a table": lambda a, rng: jnp.max(jnp.stack([a, _back(a)]), axis=0),
    "set largest": lambda a, rng: (lambda at, b: at.max(b, mode="drop"))(*_at(a, rng)),
    "set smallest": lambda a, rng: (lambda at, b: at.min(b, mode="drop"))(*_at(a, rng)),
    "branch": lambda a, rng: lax.cond(jnp.sum(a > 0) > 1, lambda: a, lambda: -a),
    "branches": lambda a, rng: jax.vmap(lambda b: lax.cond(jnp.all(b > 0), lambda: b, lambda: -b))(
        a
    ),
    "twice": lambda a, rng: _twice(a),
    "digits": lambda a, rng: lax.reduce_precision(a, 11, 52),
    "relu": lambda a, rng: jax.nn.relu(a),
}
FORWARD = {  # loops of unknown length: exact, but without a gradient
    "loops": lambda a, rng: jax.vmap(_halved)(a),
    "loop": lambda a, rng: lax.fori_loop(
        0, jnp.sum(a > 0), lambda k, b: jnp.where(b > k, b / 2, b), a
    ),
}
CONVERTED = {  # of floats, to others; and those at which a derivative has no one value
    "sorted": lambda a, rng: jnp.sort(a, axis=int(rng.integers(a.ndim))),
    "order": lambda a, rng: jnp.argsort(a, axis=0),
    "search": lambda a, rng: jnp.searchsorted(BOUNDS, a, side="left"),
    "at most": lambda a, rng: a <= _back(a),
    "search, right": lambda a, rng: jnp.searchsorted(BOUNDS, a, side="right"),
    "at a place": lambda a, rng: a[jnp.argmax(a.reshape(-1)) % len(a)],
    "slice at a place": lambda a, rng: lax.dynamic_slice_in_dim(a, _place(a), len(a) // 2),
    "set at a place": lambda a, rng: a.at[_place(a)].set(a.dtype.type(1), mode="drop"),
    "add at places": lambda a, rng: a.at[_place(a) - jnp.arange(3)].add(a.dtype.type(2)),
    "read at places": lambda a, rng: a.at[_place(a) + jnp.arange(3)].get(mode="fill"),
    "update at a place": lambda a, rng: lax.dynamic_update_slice_in_dim(a, a[:1], _place(a), 0),
    "compare": lambda a, rng: COMPARISONS[rng.integers(6)](a, _back(a)),
    "finite": lambda a, rng: jnp.isfinite(a),
    "places": lambda a, rng: jnp.argmax(jnp.append(a.reshape(-1), 0.5)),
    "lowest": lambda a, rng: jnp.argmin(a, axis=0),
    "whole": lambda a, rng: a.astype(int),
    "whole, short": lambda a, rng: jnp.clip(jnp.nan_to_num(a), -99, 99).astype(jnp.int8),
    "bits": lambda a, rng: lax.bitcast_convert_type(jnp.nan_to_num(a), jnp.int64),
    "short": lambda a, rng: a.astype(jnp.float32),
    "angle": lambda a, rng: jnp.arctan2(a - a, 0.0 - a),
}
WHOLE = {
    "sorted": lambda a, rng: jnp.sort(a, descending=bool(rng.integers(2))),
    "shift": lambda a, rng: a >> int(rng.integers(0, 8 * a.dtype.itemsize)),
    "shift far": lambda a, rng: a << jnp.abs(a),
    "shift back": lambda a, rng: lax.shift_right_logical(a, _back(a)),
    "shift by any": lambda a, rng: lax.shift_right_arithmetic(a, _back(a)),
    "product": lambda a, rng: a * _back(a) + 3,
    "quotient": lambda a, rng: lax.div(a, _back(a)),
    "remainder": lambda a, rng: lax.rem(a, _back(a)),
    "quotient, rounded down": lambda a, rng: a // _back(a),
    "difference": lambda a, rng: a - _back(a),
    "sum": lambda a, rng: jnp.sum(a, dtype=a.dtype),
    "prod": lambda a, rng: jnp.prod(a, axis=0, dtype=a.dtype),
    "cumsum": lambda a, rng: jnp.cumsum(a, axis=0, dtype=a.dtype),
    "cumprod": lambda a, rng: jnp.cumprod(a, axis=-1, dtype=a.dtype),
    "largest": lambda a, rng: jnp.max(a, initial=3),
    "smallest": lambda a, rng: jnp.min(a, axis=0, initial=3),
    "max": lambda a, rng: jnp.maximum(a, _back(a)),
    "min": lambda a, rng: jnp.minimum(a, _back(a)),
    "clip": lambda a, rng: jnp.clip(a, 1, 5),
    "power": lambda a, rng: a**3,
    "square": lambda a, rng: lax.square(a),
    "neg": lambda a, rng: -a,
    "not": lambda a, rng: ~a,
    "and": lambda a, rng: a & _back(a),
    "or": lambda a, rng: a | _back(a),
    "xor": lambda a, rng: a ^ _back(a),
    "all": lambda a, rng: lax.reduce_and(a, (0,)),
    "any": lambda a, rng: lax.reduce_or(a, range(a.ndim)),
    "odd": lambda a, rng: lax.reduce_xor(a, range(a.ndim)),
    "place": lambda a, rng: jnp.argmax(a, axis=0),
    "lowest": lambda a, rng: jnp.argmin(a.reshape(-1)),
    "signs": lambda a, rng: jnp.sign(a) * jnp.abs(a),
    "without sign": lambda a, rng: a.astype(jnp.uint8),
    "long, without sign": lambda a, rng: a.astype(jnp.uint64),
    "longer": lambda a, rng: a.astype(jnp.int64),
    "shorter": lambda a, rng: a.astype(jnp.int32),
    "floats": lambda a, rng: a.astype(float),
    "short floats": lambda a, rng: a.astype(jnp.float32),
    "floats of the same bits": lambda a, rng: _of_bits(a),
    "flags": lambda a, rng: a.astype(bool),
    "compare": lambda a, rng: COMPARISONS[rng.integers(6)](a, _back(a)),
    "add at": lambda a, rng: (lambda at, b: at.add(b, mode="drop"))(*_at(a, rng)),
    "multiply at": lambda a, rng: (lambda at, b: at.mul(b, mode="clip"))(*_at(a, rng)),
    "largest at": lambda a, rng: (lambda at, b: at.max(b, mode="clip"))(*_at(a, rng)),
    "switch": lambda a, rng: lax.switch(
        jnp.sum(a > 0), [lambda: a, lambda: a + 1, lambda: _back(a)]
    ),
    "select": lambda a, rng: lax.select_n(jnp.clip(a, 0, 2).astype(jnp.int32), a, _back(a), a + 1),
    "product of matrices": lambda a, rng: jnp.tensordot(a, a, a.ndim),
    "count": lambda a, rng: lax.while_loop(lambda c: jnp.any(c > 9), lambda c: c >> 1, a),
}
FLAGS = {
    "not": lambda a, rng: ~a,
    "and": lambda a, rng: a & _back(a),
    "or": lambda a, rng: a | _back(a),
    "xor": lambda a, rng: a ^ _back(a),
    "all": lambda a, rng: jnp.all(a),
    "any": lambda a, rng: jnp.any(a, axis=0),
    "odd": lambda a, rng: lax.reduce_xor(a, range(a.ndim)),
    "count": lambda a, rng: jnp.sum(a),
    "floats": lambda a, rng: a.astype(float),
    "whole": lambda a, rng: a.astype(jnp.int16),
    "largest": lambda a, rng: jnp.max(a, initial=False),
    "place": lambda a, rng: jnp.argmax(a, axis=0),
    "compare": lambda a, rng: COMPARISONS[rng.integers(6)](a, _back(a)),
    "select": lambda a, rng: lax.select_n(a, _back(a), ~a),
    "while": lambda a, rng: lax.while_loop(jnp.any, lambda c: c & _back(c), a & ~_back(a)),
}
ROUNDED = {  # of floats: right to a few units of the last place
    "prod": lambda a, rng: jnp.prod(a, axis=0),
    "cumprod": lambda a, rng: jnp.cumprod(a, axis=0),
    "times": lambda a, rng: a * _table(rng, a.shape),
    "square": lambda a, rng: lax.square(a) * a,
    "over": lambda a, rng: _table(rng, a.shape) / a,
    "powers": lambda a, rng: jnp.stack([a**2, a**-1, a**0, a**5]),
    "roots": lambda a, rng: jnp.stack([jnp.sqrt(a), lax.rsqrt(a), jnp.cbrt(a)]),
    "exp": lambda a, rng: jnp.stack([jnp.exp(a), jnp.expm1(a), jnp.exp2(a), lax.logistic(a)]),
    "log": lambda a, rng: jnp.stack([jnp.log(a), jnp.log1p(a)]),
    "circle": lambda a, rng: jnp.stack([jnp.sin(a), jnp.cos(a), jnp.tan(a)]),
    "angles": lambda a, rng: jnp.stack([lax.asin(a), lax.acos(a), jnp.arctan(a)]),
    "hyperbola": lambda a, rng: jnp.stack([jnp.sinh(a), jnp.cosh(a), jnp.tanh(a)]),
    "areas": lambda a, rng: jnp.stack([lax.asinh(a), lax.acosh(a), lax.atanh(a)]),
    "atan2": lambda a, rng: jnp.arctan2(a, _back(a)),
    "power": lambda a, rng: jnp.abs(a) ** _back(a),
    "softmax": lambda a, rng: jax.nn.softmax(a, axis=0),
    "error": lambda a, rng: jnp.stack([lax.erf(a), lax.erfc(a)]),
    "remainder": lambda a, rng: jnp.fmod(a, 2.5),
    "random": lambda a, rng: a * jax.random.normal(jax.random.key(3), a.shape),
    "norm": lambda a, rng: jnp.hypot(a, _back(a)),
    "multiplied": lambda a, rng: (lambda at, b: at.mul(b, mode="drop"))(*_at(a, rng)),
    "thrice": lambda a, rng: _thrice(a),
    "inside a call": lambda a, rng: jax.jit(lambda b: b * 3.0)(a),
}
SUMMED = {  # of floats: as right as the largest of what is added
    "sum": lambda a, rng: jnp.sum(a, axis=0),
    "sum of all": lambda a, rng: jnp.sum(a),
    "mean": lambda a, rng: jnp.mean(a, axis=-1),
    "cumsum": lambda a, rng: jnp.cumsum(a, axis=0),
    "table": lambda a, rng: _table(rng, (4, len(a))) @ a,
    "products": lambda a, rng: jnp.tensordot(a, a, a.ndim),
    "batch of products": lambda a, rng: jnp.einsum("ij,ij->i", a, _back(a)),
    "logsumexp": lambda a, rng: jax.nn.logsumexp(a),
    "polynomial": lambda a, rng: jnp.polyval(_table(rng, 4), a),
    "added": lambda a, rng: (lambda at, b: at.add(b, mode="drop"))(*_at(a, rng)),
    "horner": lambda a, rng: lax.scan(lambda c, b: (c * 0.5 + b, c), jnp.zeros(a.shape[1:]), a)[1],
}


def _matrix(a):
    """A well-conditioned matrix, positive or not symmetric: of what a has that is finite."""
    b = jnp.clip(jnp.nan_to_num(a.reshape(-1).astype(float)), -3, 3)[:8]
    return jnp.diag(20.0 + b) + jnp.outer(b, b)


def _solved(a, rng):
    left, lower, transposed, unit = (bool(flag) for flag in rng.integers(2, size=4))
    matrix = _matrix(a)
    sides = (len(matrix), 2) if left else (2, len(matrix))
    return lax.linalg.triangular_solve(
        matrix / 100 if unit else matrix,
        jnp.arange(1.0, 1 + 2 * len(matrix)).reshape(sides),
        left_side=left,
        lower=lower,
        transpose_a=transposed,
        unit_diagonal=unit,
    )


def _three_diagonals(a, rng):
    """Of odd sizes, so that some lanes exchange rows and others do not."""
    matrix = _matrix(a)
    beside = jnp.asarray(rng.choice([1.0, -7.0, 30.0], size=(2, len(matrix))))
    return lax.linalg.tridiagonal_solve(beside[0], jnp.diagonal(matrix), beside[1], matrix)


MATRICES = {
    "cholesky": lambda a, rng: jnp.linalg.cholesky(_matrix(a)),
    "two factors": lambda a, rng: jnp.linalg.cholesky(jnp.stack([_matrix(a), 2 * _matrix(a)])),
    "elimination": lambda a, rng: lax.linalg.lu(_matrix(a)[::-1])[0],
    "any solve": lambda a, rng: jnp.linalg.solve(_matrix(a)[::-1], _matrix(a)[0]),
    "three diagonals": _three_diagonals,
    "triangular": _solved,
    "factor": lambda a, rng: primitives.factor(_matrix(a)),
    "solve": lambda a, rng: primitives.solve(_matrix(a), jnp.arange(1.0, 1 + len(_matrix(a)))),
    "pivots": lambda a, rng: primitives.pivots(_matrix(a)),
    "sparse": lambda a, rng: primitives.sparse(jnp.eye(len(_matrix(a)))[::-1] * 2.0) @ _matrix(a),
}
