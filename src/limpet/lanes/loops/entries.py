"""Operations entry by entry: nothing is computed before an entry is read."""

from collections.abc import Callable

import numpy as np

from limpet.lanes.code import UnsupportedError
from limpet.lanes.loops.memory import (
    Computed,
    Known,
    as_large,
    entry,
    is_large,
    needed,
    stored_or_known,
)
from limpet.lanes.loops.program import LOOPS, one
from limpet.lanes.rules import RULES


def _in_all(values):
    masks = [value.zero for value in values if is_large(value) and value.zero is not None]
    return np.logical_and.reduce(masks) if len(masks) == len(values) else None


def _in_some(values):
    masks = [value.zero for value in values if is_large(value) and value.zero is not None]
    return np.logical_or.reduce(masks) if masks else None


# Which zeros of sparse matrices an operation keeps.
ZEROS: dict[str, Callable] = dict.fromkeys(("add", "add_any", "sub", "neg", "copy"), _in_all)
ZEROS |= {
    "mul": _in_some,
    "div": lambda values: _in_some(values[:1]),
    "select_n": lambda values: _in_all(values[1:]),
}


def _entry_by_entry(name, operation):
    def compute(code, out, *values, **parameters):
        if any(value.ndim not in (0, out.ndim) for value in values):
            raise UnsupportedError(f"{name} to shape {out.shape}")

        values = [_spread_over(code, value, out.shape) for value in values]

        def number(index):
            numbers = (entry(code, value, index) for value in values)
            return operation(code, out.dtype, *numbers, **parameters)

        zero = ZEROS[name](values) if name in ZEROS else None
        large = tuple(value for value in values if is_large(value))
        by_entry = large if all(value.shape == out.shape for value in large) else None
        return Computed(out.shape, out.dtype, number, needed(*values), zero, by_entry)

    return one(compute)


def _spread_over(code, value, shape):
    """The array as one of this shape: JAX repeats axes of length one."""
    if value.size == 1 or value.shape == shape:
        return value
    a, repeated = stored_or_known(code, value), [size == 1 for size in value.shape]

    def number(index):
        return a.at(code, [0 if one else k for one, k in zip(repeated, index, strict=True)])

    zero = None if a.zero is None else np.broadcast_to(a.zero, shape)
    return Computed(shape, a.dtype, number, a.buffers, zero)


@one
def _sparse(code, out, a):
    a = as_large(code, a)
    if isinstance(a, Known) and a.dtype == np.float64:
        return Known(a.values, a.values == 0)
    return a


LOOPS |= {name: _entry_by_entry(name, rule.entry) for name, rule in RULES.items() if rule.entry}
LOOPS["limpet_sparse"] = _sparse
