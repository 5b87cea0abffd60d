"""Entries at places that are computed.

Where places are known, they are a table; or, if they are evenly spaced, a view. Places that depend
on the point differ from lane to lane: each lane reads its own.
"""

import dataclasses

import jax
import numpy as np

from limpet.lanes.arithmetic import add, compare, multiply
from limpet.lanes.arrays import gathered, missing, reading_of
from limpet.lanes.code import FLAG, Number
from limpet.lanes.elementwise import convert, largest, smallest
from limpet.lanes.loops.deferred import ShortSum
from limpet.lanes.loops.memory import (
    Computed,
    Known,
    Stored,
    as_large,
    entry,
    fill,
    is_large,
    needed,
    new,
    over,
    plus,
    read_index,
    row_major,
    spread,
    store,
    stored_or_known,
    times,
)
from limpet.lanes.loops.moves import part, view
from limpet.lanes.loops.program import LOOPS, known_values, one
from limpet.lanes.rules import are_known, numbers

INDEX = np.dtype(np.int64)
NOWHERE = np.iinfo(INDEX).min
Mode = jax.lax.GatherScatterMode


def _whole_numbers(value) -> np.ndarray | None:
    """The places if they are known."""
    if is_large(value):
        return value.values if isinstance(value, Known) else None
    return (
        known_values(value, value.flat[0].dtype if value.size else INDEX)
        if are_known(value)
        else None
    )


def _table_of(code, a: Stored, places: np.ndarray) -> np.ndarray:
    """Where entries are in memory, counted from the first, given their numbers row by row."""
    at = np.unravel_index(np.maximum(places, 0), a.shape)
    return sum(
        (k * stride for k, stride in zip(at, a.strides, strict=True)),
        start=np.zeros(places.shape, np.int64),
    )


def _even(table: np.ndarray) -> tuple[int, ...] | None:
    """The strides of places that are evenly spaced."""
    first = table[(0,) * table.ndim]
    strides = []
    for axis, size in enumerate(table.shape):
        second = [0] * table.ndim
        second[axis] = 1
        strides.append(int(table[tuple(second)] - first) if size > 1 else 0)
    steps = np.meshgrid(*map(np.arange, table.shape), indexing="ij", sparse=True)
    guess = first + sum(s * k for s, k in zip(strides, steps, strict=True))
    return tuple(strides) if np.array_equal(guess, table) else None


def read_at(code, a: Stored | Known, places: np.ndarray, absent):
    """The entries with these numbers, row by row; `absent` where there is none (-1)."""
    if isinstance(a, Known):
        flat = a.values.reshape(-1)[np.maximum(places, 0)]
        return Known(np.where(places >= 0, flat, absent).astype(a.dtype))
    inside, table = bool(np.all(places >= 0)), _table_of(code, a, places)
    strides = _even(table) if inside and table.ndim else None
    if strides is not None:
        first = view(code, a, lambda array: array[tuple(slice(0, 1) for _ in a.shape)])
        offset = int(table[(0,) * table.ndim])
        moved = dataclasses.replace(
            first, shape=table.shape, strides=strides, offset=_add(code, a.offset, offset)
        )
        return dataclasses.replace(moved, zero=None)
    address = code.table(np.where(places >= 0, table, NOWHERE))
    flat = dataclasses.replace(a, shape=(a.buffer.size,), strides=(1,), zero=None)

    def number(index):
        place = read_index(code, address, row_major(code, places.shape, index))
        if inside:
            return flat.at(code, [place])
        there = code.line(f"icmp ne i64 {place}, {NOWHERE}")
        safe = code.line(f"select i1 {there}, i64 {place}, i64 0")
        return code.select(spread(code, FLAG, there), flat.at(code, [safe]), absent)

    return Computed(places.shape, a.dtype, number, a.buffers)


def _summed_at(code, a: ShortSum, places: np.ndarray) -> ShortSum:
    """Sums of which each is read at most once, with these numbers."""
    table = code.table(np.stack(np.unravel_index(places, a.shape), axis=-1).astype(np.int64))

    def number(index):
        first = times(code, row_major(code, places.shape, index), a.ndim)
        return a.at(code, [read_index(code, table, plus(code, first, k)) for k in range(a.ndim)])

    return ShortSum(places.shape, a.dtype, number, a.buffers)


def _add(code, offset, by):
    return offset + by if isinstance(offset, int) else code.line(f"add i64 {offset}, {by}")


@one
def _gather(code, out, a, indices, dimension_numbers, slice_sizes, mode, fill_value):
    absent = missing(out.dtype) if fill_value is None else out.dtype.type(fill_value)
    at = _whole_numbers(indices)
    if at is not None:
        places = gathered_places("gather", a.shape, at, dimension_numbers, slice_sizes, mode)
        if isinstance(a, ShortSum) and np.all(places >= 0) and _distinct(places):
            return _summed_at(code, a, places)
        return read_at(code, stored_or_known(code, a), places, absent)
    a = stored_or_known(code, a)
    d, a = dimension_numbers, store(code, a)
    indices = as_large(code, indices) if indices.size > 1 else indices
    if is_large(indices) and isinstance(indices, Computed):
        indices = store(code, indices)
    batch = [k for k in range(out.ndim) if k not in d.offset_dims]
    window = [
        k for k in range(a.ndim) if k not in (*d.collapsed_slice_dims, *d.operand_batching_dims)
    ]

    def number(index):
        outer = [index[k] for k in batch]
        starts, inside = _starts(
            code, a.shape, indices, outer, d.start_index_map, slice_sizes, mode
        )
        at = {axis: _whole(code, index[k]) for axis, k in zip(window, d.offset_dims, strict=True)}
        pairs = zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True)
        at |= {axis: _whole(code, outer[k]) for axis, k in pairs}
        place = _place(code, a, starts, at)
        found = a.at_lanes(code, place)
        return found if inside is None else code.select(inside, found, absent)

    return Computed(out.shape, out.dtype, number, needed(a, indices))


def gathered_places(name, shape, at, dimension_numbers, slice_sizes, mode) -> np.ndarray:
    """Where the entries of a gather come from, row by row; -1: nowhere."""
    return gathered(
        name, shape, numbers(at.shape, at.ravel()), dimension_numbers, slice_sizes, mode
    )


def _whole(code, k):
    """An index, the same in all lanes, as a number."""
    return np.int64(k) if isinstance(k, int) else spread(code, INDEX, k)


def _starts(code, shape, indices, outer, axes, sizes, mode):
    """Where a slice begins, by axis, and whether it is inside, where that matters."""
    starts, inside = {}, None
    for k, axis in enumerate(axes):
        at = (*outer, k) if indices.ndim else ()
        start = convert(code, INDEX, entry(code, indices, at))
        last = np.int64(shape[axis] - sizes[axis])
        if mode == Mode.FILL_OR_DROP:
            low = compare("ge")(code, FLAG, start, np.int64(0))
            high = compare("le")(code, FLAG, start, last)
            inside = code.both(inside, code(FLAG, "and", low, high))
        starts[axis] = smallest(code, INDEX, largest(code, INDEX, start, np.int64(0)), last)
    return starts, inside


def _place(code, a: Stored, starts, at) -> Number:
    """Where an entry is, lane by lane, counted in entries."""
    place = _whole(code, a.offset)
    for axis, stride in enumerate(a.strides):
        for part_of_index in (starts.get(axis), at.get(axis)):
            if part_of_index is not None:
                step = multiply(code, INDEX, part_of_index, np.int64(stride))
                place = add(code, INDEX, place, step)
    return place if isinstance(place, Number) else code(INDEX, "add", place, np.int64(0))


def _scatter(name, combine):
    def scatter(code, out, a, indices, updates, dimension_numbers, mode):
        d = dimension_numbers
        reading, sizes, mode = reading_of(d, mode, a.ndim, updates.shape)
        made = new(code, out.shape, out.dtype)
        fill(code, made, a)
        if not updates.size:
            return made
        updates = as_large(code, updates)
        at = _whole_numbers(indices)
        if at is not None:
            places = gathered_places(name, made.shape, at, reading, sizes, mode)
            _write_at(code, made, places, updates, combine)
            return made
        indices = stored_or_known(code, indices) if indices.size > 1 else indices
        batch = [k for k in range(updates.ndim) if k not in d.update_window_dims]
        alone = (*d.inserted_window_dims, *d.operand_batching_dims)
        window = [k for k in range(a.ndim) if k not in alone]

        def body(index):
            outer = [index[k] for k in batch]
            starts, inside = _starts(
                code, made.shape, indices, outer, d.scatter_dims_to_operand_dims, sizes, mode
            )
            pairs = zip(window, d.update_window_dims, strict=True)
            at = {axis: _whole(code, index[k]) for axis, k in pairs}
            pairs = zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True)
            at |= {axis: _whole(code, outer[k]) for axis, k in pairs}
            place = _place(code, made, starts, at)
            old = made.at_lanes(code, place)
            result = combine(code, out.dtype, old, updates.at(code, index))
            if inside is not None:
                result = code.select(inside, result, old)
            made.put_lanes(code, place, result)

        over(code, updates.shape, body)
        return made

    return one(scatter)


def _write_at(code, made: Stored, places: np.ndarray, updates, combine):
    """Combine updates with the entries of these numbers; -1 is nowhere."""
    inside, table = bool(np.all(places >= 0)), _table_of(code, made, places)
    strides = _even(table) if inside and table.ndim else None
    if strides is not None and _distinct(table):
        offset = int(table[(0,) * table.ndim])
        target = dataclasses.replace(made, shape=table.shape, strides=strides, offset=offset)

        def body(index):
            new_one = updates.at(code, index)
            old = target.at(code, index)
            target.put(code, index, combine(code, made.dtype, old, new_one))

        over(code, table.shape, body)
        return
    if not inside:
        updates, kept = store(code, updates), np.flatnonzero(places.ravel() >= 0)
        if not len(kept):
            return
        source = _table_of(code, updates, np.arange(places.size).reshape(places.shape))
        source = code.table(source.ravel()[kept].astype(np.int64))
        target = code.table(table.ravel()[kept].astype(np.int64))
        from_flat, to_flat = _flat(updates), _flat(made)

        def one_of(k):
            place = read_index(code, target, k)
            number = from_flat.at(code, [read_index(code, source, k)])
            old = to_flat.at(code, [place])
            to_flat.put(code, [place], combine(code, made.dtype, old, number))

        code.count(len(kept), 1, one_of)
        return
    address, flat = code.table(table.astype(np.int64)), _flat(made)

    def body(index):
        place = read_index(code, address, row_major(code, places.shape, index))
        result = combine(code, made.dtype, flat.at(code, [place]), updates.at(code, index))
        flat.put(code, [place], result)

    over(code, places.shape, body)


def _flat(a: Stored) -> Stored:
    return dataclasses.replace(a, shape=(a.buffer.size,), strides=(1,), zero=None)


def _distinct(table) -> bool:
    return len(np.unique(table)) == table.size


def _known_window(shape, sizes, starts) -> tuple[slice, ...] | None:
    """The part of an array that a slice takes, if that is known; moved inside if need be."""
    known = [start for start in map(_whole_numbers, starts) if start is not None]
    if len(known) < len(starts):
        return None
    firsts = [
        min(max(int(k.item()), 0), n - s) for k, n, s in zip(known, shape, sizes, strict=True)
    ]
    return tuple(slice(k, k + s) for k, s in zip(firsts, sizes, strict=True))


@one
def _dynamic_slice(code, out, a, *starts, slice_sizes):
    a, places = stored_or_known(code, a), _known_window(a.shape, slice_sizes, starts)
    if places is not None:
        if isinstance(a, Known):
            return Known(a.values[places])
        return view(code, a, lambda array: array[places])
    a = store(code, a)
    firsts = _clamped(code, a.shape, slice_sizes, starts)

    def number(index):
        at = {axis: _whole(code, k) for axis, k in enumerate(index)}
        return a.at_lanes(code, _place(code, a, firsts, at))

    return Computed(out.shape, out.dtype, number, a.buffers)


def _clamped(code, shape, sizes, starts):
    firsts = {}
    for axis, (start, n, s) in enumerate(zip(starts, shape, sizes, strict=True)):
        number = convert(code, INDEX, entry(code, start, ()))
        number = largest(code, INDEX, number, np.int64(0))
        firsts[axis] = smallest(code, INDEX, number, np.int64(n - s))
    return firsts


@one
def _dynamic_update_slice(code, out, a, update, *starts):
    made = new(code, out.shape, out.dtype)
    fill(code, made, a)
    if not update.size:
        return made
    places = _known_window(out.shape, update.shape, starts)
    if places is not None:
        fill(code, part(code, made, places), update)
        return made
    firsts, update = _clamped(code, out.shape, update.shape, starts), as_large(code, update)

    def body(index):
        at = {axis: _whole(code, k) for axis, k in enumerate(index)}
        made.put_lanes(code, _place(code, made, firsts, at), update.at(code, index))

    over(code, update.shape, body)
    return made


LOOPS |= {
    "gather": _gather,
    "scatter": _scatter("scatter", lambda code, dtype, old, new: new),
    "scatter-add": _scatter("scatter-add", add),
    "scatter-mul": _scatter("scatter-mul", multiply),
    "scatter-min": _scatter("scatter-min", smallest),
    "scatter-max": _scatter("scatter-max", largest),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
}
