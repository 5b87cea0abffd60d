"""A function of one point as a program for many points, which runs once or a few times."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limpet import lanes
from limpet.engine.apart import compiled
from limpet.engine.cache import load_or_make
from limpet.engine.interrupts import interruptible
from limpet.engine.xla import RUN_ONCE

BATCH = 64  # rows side by side by XLA; fixed, so that the bits of one depend on nothing else

Function = Callable[..., Any]  # constants, one row of each array -> a pytree


def of_rows(function: Function, constants: Any, *rows: np.ndarray, apart: bool) -> Any:
    """`function(constants, *row)` of each row, as NumPy's arrays.

    By `limpet.lanes`, small programs compiled quickly, for compiling is what takes their time: XLA
    takes several times as long. By XLA what lanes refuse; `apart`: one row after the other.
    """
    leaves, tree = jax.tree.flatten(constants)
    shapes = tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    row_shapes = tuple((a.shape[1:], a.dtype) for a in rows)
    program = _compile(function, tree, shapes, row_shapes, apart)
    parts = [
        program(constants, *(a[first : first + BATCH] for a in rows))
        for first in range(0, len(rows[0]), BATCH)
    ]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


@functools.lru_cache(maxsize=64)
def _compile(function: Function, tree: Any, shapes: Any, row_shapes: Any, apart: bool) -> Function:
    constants = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*each) for each in shapes])
    row = [jax.ShapeDtypeStruct(*each) for each in row_shapes]

    def step(constants: Any, carry: Any, row: Any) -> tuple[Any, Any]:
        return carry, function(constants, *row)

    quick = not lanes.is_large(step, constants, (), row)
    try:
        scan = lanes.scan(
            step, constants, (), row, keep=load_or_make, compiled=compiled, quick=quick
        )
    except lanes.UnsupportedError:
        return functools.partial(_padded, function, apart)

    def run(constants: Any, *rows: np.ndarray) -> Any:
        _, outputs = interruptible(scan)(constants, (), [a[:, None] for a in rows])
        return jax.tree.map(lambda a: a[:, 0], outputs)

    return run


def _padded(function: Function, apart: bool, constants: Any, *rows: np.ndarray) -> Any:
    """A batch by XLA, filled up with copies of its last row."""
    count = len(rows[0])
    full = [np.pad(a, [(0, BATCH - count)] + [(0, 0)] * (a.ndim - 1), "edge") for a in rows]
    results = _batch(function, apart, constants, *full)
    return jax.tree.map(lambda a: np.asarray(a)[:count], results)


@functools.partial(jax.jit, static_argnums=(0, 1), compiler_options=RUN_ONCE)
def _batch(function: Function, apart: bool, constants: Any, *rows: Any) -> Any:
    one = functools.partial(function, constants)
    if apart:
        return jax.lax.map(lambda row: one(*row), rows)
    return jax.vmap(one)(*rows)
