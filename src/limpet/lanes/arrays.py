"""Operations on arrays: reductions, products, and those that only move entries about."""

import functools
import itertools
import math
from collections.abc import Callable

import jax
import numpy as np

from limpet.lanes.arithmetic import add, compare, multiply
from limpet.lanes.code import (
    FLAG,
    STRUCTURAL_ZERO,
    UnsupportedError,
    is_known,
    is_structural,
    is_zero,
)
from limpet.lanes.elementwise import OPERATIONS, largest, smallest
from limpet.lanes.rules import RULES, Rule, is_sparse, known, numbers, sparse, whole_numbers


def _size(shape) -> int:
    return math.prod(int(length) for length in shape)


def _one(write):
    """A rule with one result: `write(code, out, *arrays, **parameters)`."""

    def written(code, equation, arrays, **parameters):
        return [write(code, equation.outvars[0].aval, *arrays, **parameters)]

    return written


# Reductions, and products.


def lowest(dtype):
    """What is no larger than any number of a type."""
    return dtype.type(-np.inf if dtype.kind == "f" else 0 if dtype == FLAG else np.iinfo(dtype).min)


def highest(dtype):
    """What is no smaller than any number of a type."""
    return dtype.type(np.inf if dtype.kind == "f" else 1 if dtype == FLAG else np.iinfo(dtype).max)


REDUCTIONS: dict[str, tuple[Callable, Callable]] = {  # and what remains if there is nothing
    "sum": (add, lambda dtype: dtype.type(0)),
    "prod": (multiply, lambda dtype: dtype.type(1)),
    "max": (largest, lowest),
    "min": (smallest, highest),
    "and": (OPERATIONS["and"], lambda dtype: np.invert(dtype.type(0))),
    "or": (OPERATIONS["or"], lambda dtype: dtype.type(0)),
    "xor": (OPERATIONS["xor"], lambda dtype: dtype.type(0)),
}


def _reduction(combine, nothing):
    def reduce(code, out, a, axes):
        kept = [k for k in range(a.ndim) if k not in axes]
        rows = a.transpose(*kept, *axes).reshape(out.size, _size(a.shape[k] for k in axes))
        pair = functools.partial(combine, code, out.dtype)
        return numbers(
            out.shape,
            [functools.reduce(pair, row) if len(row) else nothing(out.dtype) for row in rows],
        )

    return _one(reduce)


def _running(combine):
    def accumulate(code, out, a, axis, reverse):
        rows = np.moveaxis(a, axis, 0)
        rows = rows[::-1] if reverse else rows
        pair = functools.partial(combine, code, out.dtype)
        flat = rows.reshape(len(rows), _size(rows.shape[1:]))
        made = itertools.accumulate(flat, lambda *two: [*map(pair, *two)])
        made = numbers(rows.shape, itertools.chain(*made))
        return np.moveaxis(made[::-1] if reverse else made, 0, axis)

    return _one(accumulate)


def _place_of(how):
    """Where the largest or smallest entry is: the first of several; NaN is beyond all."""

    def place(code, out, a, axes, index_dtype):
        (axis,) = axes
        places = []
        for best, *others in np.moveaxis(a, axis, -1).reshape(out.size, a.shape[axis]):
            at = out.dtype.type(0)
            for k, other in enumerate(others, 1):
                flag = compare(how)(code, FLAG, other, best)
                if best.dtype.kind == "f":
                    number = code(FLAG, "fcmp ord", best, best)
                    flag = code(FLAG, "or", flag, code(FLAG, "fcmp uno", other, other))
                    flag = code(FLAG, "and", flag, number)
                best, at = code.select(flag, other, best), code.select(flag, out.dtype.type(k), at)
            places.append(at)
        return numbers(out.shape, places)

    return _one(place)


def _product(code, out, a, b, dimension_numbers):
    (over_a, over_b), (batch_a, batch_b) = dimension_numbers
    types = {number.dtype for array in (a, b) for number in array.flat} | {out.dtype}
    if len(types) > 1 or out.dtype == FLAG:
        raise UnsupportedError("a product of matrices of several types")
    dot = _dot
    if is_sparse(a) or is_sparse(b):
        a, b, dot = sparse(a), sparse(b), _sparse_dot

    def rows_of(array, over, batch):
        """Of each matrix of the batch: its rows, without their structural zeros."""
        free = [k for k in range(array.ndim) if k not in (*over, *batch)]
        shape = [_size(array.shape[k] for k in part) for part in (batch, free, over)]
        return [
            [{k: number for k, number in enumerate(row) if not is_structural(number)} for row in m]
            for m in array.transpose(*batch, *free, *over).reshape(shape)
        ]

    made = []
    pairs = zip(rows_of(a, over_a, batch_a), rows_of(b, over_b, batch_b), strict=True)
    for rows, columns in pairs:
        shared = {}
        made += [dot(code, out.dtype, shared, row, column) for row in rows for column in columns]
    return numbers(out.shape, made)


def _sparse_dot(code, dtype, shared, row, column):
    total = STRUCTURAL_ZERO
    for k, number in row.items():
        if k in column:
            total = add(code, dtype, total, multiply(code, dtype, number, column[k]))
    return total


def _dot(code, dtype, shared, row, column):
    """The product of a row and a column. Where one has a zero, the other may have no number."""
    total, beside = dtype.type(0), []
    for a, b in zip(row.values(), column.values(), strict=True):
        if is_zero(a) or is_zero(b):
            other = b if is_zero(a) else a
            certain = dtype.kind != "f" or (is_known(other) and np.isfinite(other))
            beside.append(None if certain else other)
        else:
            beside.append(None)
            total = add(code, dtype, total, multiply(code, dtype, a, b))
    return add(code, dtype, total, _zero_times(code, dtype, shared, beside))


def _zero_times(code, dtype, shared, terms):
    """The sum of zero times each of the terms: zero, or NaN.

    The rows of a table with many zeros have most of these terms in common: halves of the sum are
    `shared`, so that a row costs little more than its other entries.
    """
    if all(term is None for term in terms):
        return dtype.type(0)
    key = tuple(map(id, terms))
    if key not in shared:
        half = len(terms) // 2
        if half == 0:
            value = multiply(code, dtype, dtype.type(0), terms[0])
        else:
            parts = terms[:half], terms[half:]
            value = add(code, dtype, *(_zero_times(code, dtype, shared, part) for part in parts))
        shared[key] = value, terms  # while these are kept, no other term has their place in memory
    return shared[key][0]


# Entries moved about.


def _broadcast(code, out, a, broadcast_dimensions):
    shape = [1] * out.ndim
    for k, size in zip(broadcast_dimensions, a.shape, strict=True):
        shape[k] = size
    return np.broadcast_to(a.reshape(shape), out.shape)


def _slice(code, out, a, start_indices, limit_indices, strides):
    bounds = zip(start_indices, limit_indices, strides or (1,) * a.ndim, strict=True)
    return a[(*(slice(*bound) for bound in bounds), ...)]


def _pad(code, out, a, value, padding_config):
    padded = numbers(out.shape, [value.item()] * out.size)
    places, kept = [], []
    for (low, _, gap), length, size in zip(padding_config, a.shape, out.shape, strict=True):
        place = low + (gap + 1) * np.arange(length)
        inside = (place >= 0) & (place < size)  # padding may be negative, and cut off
        places.append(place[inside])
        kept.append(np.flatnonzero(inside))
    padded[np.ix_(*places)] = a[np.ix_(*kept)]
    return padded


def _iota(code, out, dimension):
    shape = [1] * out.ndim
    shape[dimension] = -1
    indices = np.arange(out.shape[dimension]).astype(out.dtype).reshape(shape)
    return known(np.broadcast_to(indices, out.shape))


def row(array, axis, k):
    """One row of an array, which is an array also if it is one number."""
    return np.moveaxis(array, axis, 0)[k : k + 1].reshape(np.delete(array.shape, axis))


def _unstack(code, equation, arrays, axis):
    (a,) = arrays
    return [row(a, axis, k) for k in range(a.shape[axis])]


def _split(code, equation, arrays, sizes, axis):
    return np.split(arrays[0], np.cumsum(sizes)[:-1], axis)


def _sparse(code, out, a):
    return sparse(a)


# Entries at places that are computed, but known.


def gathered(name, shape, indices, dimension_numbers, slice_sizes, mode) -> np.ndarray:
    """Where the entries of a gather come from in an array of a shape, row by row; -1: nowhere."""
    d, at = dimension_numbers, whole_numbers(name, indices)
    room = np.subtract(shape, slice_sizes)
    starts = np.zeros((*at.shape[:-1], len(shape)), np.int64)
    starts[..., list(d.start_index_map)] = at
    inside = np.all((starts >= 0) & (starts <= room), axis=-1)
    starts = np.clip(starts, 0, room)
    for axis, k in zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True):
        starts[..., axis] = np.indices(at.shape[:-1])[k]
    steps = [_size(shape[axis + 1 :]) for axis in range(len(shape))]
    alone = (*d.collapsed_slice_dims, *d.operand_batching_dims)
    windows = [axis for axis in range(len(shape)) if axis not in alone]
    offsets = np.indices([slice_sizes[axis] for axis in windows])
    ahead = (starts @ np.array(steps, np.int64)).reshape((*at.shape[:-1], *[1] * len(windows)))
    places = ahead + sum(steps[axis] * offsets[k] for k, axis in enumerate(windows))
    if mode == jax.lax.GatherScatterMode.FILL_OR_DROP:
        places = np.where(inside.reshape(ahead.shape), places, -1)
    return np.moveaxis(places, range(at.ndim - 1, places.ndim), d.offset_dims)


def missing(dtype):
    """What JAX puts where a gather finds nothing."""
    if dtype.kind == "f":
        return dtype.type(np.nan)
    return lowest(dtype) if dtype.kind == "i" else highest(dtype)


def _gather(code, out, a, indices, dimension_numbers, slice_sizes, mode, fill_value):
    places = gathered("gather", a.shape, indices, dimension_numbers, slice_sizes, mode)
    absent = missing(out.dtype) if fill_value is None else out.dtype.type(fill_value)
    flat = a.ravel()
    return numbers(out.shape, [flat[k] if k >= 0 else absent for k in places.flat])


def reading_of(d, mode, ndim, shape):
    """The gather that reads what a scatter of updates of a shape writes: its dimensions and slices.

    A scatter drops what is outside; also where JAX was promised that nothing is.
    """
    alone = (*d.inserted_window_dims, *d.operand_batching_dims)
    windows = iter(shape[k] for k in d.update_window_dims)
    sizes = [1 if k in alone else next(windows) for k in range(ndim)]
    reading = jax.lax.GatherDimensionNumbers(
        offset_dims=d.update_window_dims,
        collapsed_slice_dims=d.inserted_window_dims,
        start_index_map=d.scatter_dims_to_operand_dims,
        operand_batching_dims=d.operand_batching_dims,
        start_indices_batching_dims=d.scatter_indices_batching_dims,
    )
    modes = jax.lax.GatherScatterMode
    return reading, sizes, modes.FILL_OR_DROP if mode == modes.PROMISE_IN_BOUNDS else mode


def _scatter(name, combine):
    def scatter(code, out, a, indices, updates, dimension_numbers, mode):
        reading, sizes, mode = reading_of(dimension_numbers, mode, a.ndim, updates.shape)
        places = gathered(name, a.shape, indices, reading, sizes, mode)
        made = a.ravel().copy()
        for place, number in zip(places.flat, updates.flat, strict=True):
            if place >= 0:
                made[place] = combine(code, out.dtype, made[place], number)
        return made.reshape(out.shape)

    return Rule(
        _one(scatter),
        honours=("dimension_numbers", "mode"),
        ignores=("update_jaxpr", "update_consts", "indices_are_sorted", "unique_indices"),
        folds=True,
    )


def _window(name, shape, sizes, starts):
    """The part of an array that a slice takes: as much as asked for, moved inside if need be."""
    firsts = [int(whole_numbers(name, start).item()) for start in starts]
    firsts = [min(max(k, 0), n - s) for k, n, s in zip(firsts, shape, sizes, strict=True)]
    return tuple(slice(k, k + s) for k, s in zip(firsts, sizes, strict=True))


def _dynamic_slice(code, out, a, *starts, slice_sizes):
    return a[(*_window("dynamic_slice", a.shape, slice_sizes, starts), ...)]


def _dynamic_update_slice(code, out, a, update, *starts):
    made = a.copy()
    made[(*_window("dynamic_update_slice", a.shape, update.shape, starts), ...)] = update
    return made


def _reverse(code, out, a, dimensions):
    return np.flip(a, dimensions) if dimensions else a


def _reshape(code, out, a):
    return a.reshape(out.shape)


ORDERED = ("indices_are_sorted", "unique_indices")  # promises, which change no result
RULES |= {
    f"reduce_{name}": Rule(
        _reduction(*how), honours=("axes",), ignores=("out_sharding",), folds=True
    )
    for name, how in REDUCTIONS.items()
}
RULES |= {
    f"cum{name}": Rule(_running(REDUCTIONS[name][0]), honours=("axis", "reverse"), folds=True)
    for name in ("sum", "prod", "max", "min")
}
RULES |= {
    f"arg{name}": Rule(_place_of(how), honours=("axes", "index_dtype"), folds=True)
    for name, how in (("max", "gt"), ("min", "lt"))
}
RULES |= {
    "dot_general": Rule(
        _one(_product),
        honours=("dimension_numbers",),
        ignores=("precision", "out_sharding", "preferred_element_type"),  # it is the result's type
        folds=True,
    ),
    "broadcast_in_dim": Rule(
        _one(_broadcast), honours=("broadcast_dimensions",), ignores=("shape", "sharding")
    ),
    "reshape": Rule(_one(_reshape), ignores=("new_sizes", "sharding"), unset=("dimensions",)),
    "squeeze": Rule(_one(_reshape), ignores=("dimensions",)),
    "expand_dims": Rule(_one(_reshape), ignores=("dimensions",)),
    "transpose": Rule(
        _one(lambda code, out, a, permutation: a.transpose(permutation)), honours=("permutation",)
    ),
    "rev": Rule(_one(_reverse), honours=("dimensions",)),
    "slice": Rule(_one(_slice), honours=("start_indices", "limit_indices", "strides")),
    "pad": Rule(_one(_pad), honours=("padding_config",)),
    "iota": Rule(_one(_iota), honours=("dimension",), ignores=("dtype", "shape", "sharding")),
    "concatenate": Rule(
        _one(lambda code, out, *parts, dimension: np.concatenate(parts, dimension)), ("dimension",)
    ),
    "tile": Rule(_one(lambda code, out, a, reps: np.tile(a, reps)), honours=("reps",)),
    "stack": Rule(_one(lambda code, out, *parts, axis: np.stack(parts, axis)), honours=("axis",)),
    "unstack": Rule(_unstack, honours=("axis",)),
    "split": Rule(_split, honours=("sizes", "axis")),
    "gather": Rule(
        _one(_gather),
        honours=("dimension_numbers", "slice_sizes", "mode", "fill_value"),
        ignores=ORDERED,
    ),
    "scatter": _scatter("scatter", lambda code, dtype, old, new: new),
    "scatter-add": _scatter("scatter-add", add),
    "scatter-mul": _scatter("scatter-mul", multiply),
    "scatter-min": _scatter("scatter-min", smallest),
    "scatter-max": _scatter("scatter-max", largest),
    "dynamic_slice": Rule(_one(_dynamic_slice), honours=("slice_sizes",)),
    "dynamic_update_slice": Rule(_one(_dynamic_update_slice)),
    "limpet_sparse": Rule(_one(_sparse)),
}
