"""Operations that move entries about.

On arrays that are stored, most are NumPy's own views: other strides over the same memory. Arrays
that are computed as they are read are asked for other entries.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from limpet.lanes.arrays import row
from limpet.lanes.loops.memory import (
    Computed,
    Known,
    Large,
    Stored,
    as_large,
    fill,
    is_large,
    new,
    over,
    plus,
    store,
    stored_or_known,
    times,
)
from limpet.lanes.loops.program import LOOPS, one


def view(code, a: Stored, move: Callable) -> Stored:
    """What NumPy's function `move` makes of an array, without copying it.

    NumPy moves about an array of as many bytes, of which only shape and strides are looked at.
    """
    extent = 1 + sum(abs(s) * (n - 1) for s, n in zip(a.strides, a.shape, strict=True))
    room = np.empty(2 * extent, np.int8)
    before = np.lib.stride_tricks.as_strided(room[extent:], a.shape, a.strides)
    after = move(before)
    if after.size and not np.may_share_memory(after, room):
        raise ValueError("a copy is no view")
    by = after.__array_interface__["data"][0] - before.__array_interface__["data"][0]
    zero = None if a.zero is None else move(a.zero)
    offset = plus(code, a.offset, int(by)) if after.size else 0
    return dataclasses.replace(
        a, shape=after.shape, strides=after.strides, offset=offset, zero=zero
    )


def _moved(code, a: Large, move: Callable, index: Callable) -> Large:
    """What `move` makes of an array; `index` gives the index of an entry before the move."""
    if isinstance(a, Known):
        return Known(move(a.values), None if a.zero is None else move(a.zero))
    if isinstance(a, Stored):
        return view(code, a, move)
    zero = np.zeros(a.shape, bool) if a.zero is None else a.zero
    after = move(zero)
    return Computed(
        after.shape,
        a.dtype,
        lambda place: a.at(code, index(place)),
        a.buffers,
        None if a.zero is None else after,
    )


@one
def _broadcast(code, out, a, broadcast_dimensions):
    a = as_large(code, a)
    if isinstance(a, Computed) and out.size > a.size:
        a = store(code, a)  # it is read more than once
    shape = [1] * out.ndim
    for k, size in zip(broadcast_dimensions, a.shape, strict=True):
        shape[k] = size

    def move(array):
        return np.broadcast_to(array.reshape(shape), out.shape)

    def index(place):
        at = zip(broadcast_dimensions, a.shape, strict=True)
        return [0 if size == 1 else place[k] for k, size in at]

    return _moved(code, a, move, index)


@one
def _reshape(code, out, a):
    a = as_large(code, a)
    if isinstance(a, Known):
        return _moved(code, a, lambda array: array.reshape(out.shape), list)
    kept = [k for k, size in enumerate(a.shape) if size != 1]
    mine = [k for k, size in enumerate(out.shape) if size != 1]
    if [a.shape[k] for k in kept] == [out.shape[k] for k in mine]:

        def index(place):
            at: list = [0] * a.ndim
            for k, j in zip(kept, mine, strict=True):
                at[k] = place[j]
            return at

        return _moved(code, a, lambda array: array.reshape(out.shape), index)
    a = store(code, a)

    def move(array):
        # a mask may be copied, and is no view; what stands for memory must not be
        return np.reshape(array, out.shape, copy=None if array.dtype == bool else False)

    try:
        return view(code, a, move)
    except ValueError:  # its entries are not side by side
        copy = new(code, a.shape, a.dtype)
        copy.zero = a.zero
        fill(code, copy, a)
        return view(code, copy, move)


@one
def _transpose(code, out, a, permutation):
    def index(place):
        at: list = [0] * out.ndim
        for k, axis in enumerate(permutation):
            at[axis] = place[k]
        return at

    return _moved(code, as_large(code, a), lambda array: array.transpose(permutation), index)


@one
def _slice(code, out, a, start_indices, limit_indices, strides):
    strides = strides or (1,) * out.ndim
    bounds = tuple(map(slice, start_indices, limit_indices, strides))

    def index(place):
        steps = zip(start_indices, place, strides, strict=True)
        return [plus(code, first, times(code, k, step)) for first, k, step in steps]

    return _moved(code, as_large(code, a), lambda array: array[bounds], index)


@one
def _reverse(code, out, a, dimensions):
    def index(place):
        return [
            plus(code, out.shape[k] - 1, times(code, p, -1)) if k in dimensions else p
            for k, p in enumerate(place)
        ]

    return _moved(code, as_large(code, a), lambda array: np.flip(array, dimensions), index)


def part(code, made: Stored, places: tuple) -> Stored:
    """Room for a part of an array."""
    return dataclasses.replace(
        view(code, dataclasses.replace(made, zero=None), lambda a: a[places])
    )


def _joined_zero(parts, axis):
    if not all(is_large(value) and value.zero is not None for value in parts):
        return None
    return np.concatenate([value.zero for value in parts], axis)


@one
def _concatenate(code, out, *parts, dimension):
    made, first = new(code, out.shape, out.dtype), 0
    made.zero = _joined_zero(parts, dimension)
    for value in parts:
        size = value.shape[dimension]
        if value.size:
            places = [slice(None)] * out.ndim
            places[dimension] = slice(first, first + size)
            fill(code, part(code, made, tuple(places)), value)
        first += size
    return made


@one
def _stack(code, out, *parts, axis):
    made = new(code, out.shape, out.dtype)
    for k, value in enumerate(parts):
        places: list = [slice(None)] * out.ndim
        places[axis] = k
        fill(code, part(code, made, (*places, ...)), value)
    return made


@one
def _pad(code, out, a, value, padding_config):
    made = new(code, out.shape, out.dtype)
    filling = value.item() if not is_large(value) else value.at(code, ())
    over(code, out.shape, lambda index: made.put(code, index, filling))
    target, source = [], []
    for (low, _, gap), length, size in zip(padding_config, a.shape, out.shape, strict=True):
        place = low + (gap + 1) * np.arange(length)
        inside = np.flatnonzero((place >= 0) & (place < size))  # what is cut off
        if not len(inside):
            return made
        first, last = inside[0], inside[-1]
        target.append(slice(place[first], place[last] + 1, gap + 1))
        source.append(slice(first, last + 1))
    a = as_large(code, a)
    inner = _moved(
        code,
        a,
        lambda array: array[tuple(source)],
        lambda index: [plus(code, int(s.start), k) for s, k in zip(source, index, strict=True)],
    )
    fill(code, part(code, made, tuple(target)), inner)
    return made


def _iota(code, equation, values, dimension):
    out = equation.outvars[0].aval
    shape = [1] * out.ndim
    shape[dimension] = -1
    indices = np.arange(out.shape[dimension]).astype(out.dtype).reshape(shape)
    return [Known(np.broadcast_to(indices, out.shape))]


def _unstack(code, equation, values, axis):
    a = stored_or_known(code, values[0])
    size = a.shape[axis]
    return [_moved(code, a, lambda array, k=k: row(array, axis, k), list) for k in range(size)]


def _split(code, equation, values, sizes, axis):
    a = stored_or_known(code, values[0])
    ends = np.cumsum(sizes)
    places = [
        (*[slice(None)] * axis, slice(int(end - size), int(end)))
        for end, size in zip(ends, sizes, strict=True)
    ]
    return [_moved(code, a, lambda array, at=at: array[at], list) for at in places]


@one
def _tile(code, out, a, reps):
    made, a = new(code, out.shape, out.dtype), as_large(code, a)
    a = a if isinstance(a, Known) else store(code, a)
    for copy in np.ndindex(*reps):
        places = tuple(slice(k * n, (k + 1) * n) for k, n in zip(copy, a.shape, strict=True))
        fill(code, part(code, made, places), a)
    return made


LOOPS |= {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "rev": _reverse,
    "concatenate": _concatenate,
    "stack": _stack,
    "pad": _pad,
    "iota": _iota,
    "unstack": _unstack,
    "split": _split,
    "tile": _tile,
}
