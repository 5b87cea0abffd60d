"""Which unknowns each constraint involves, read off the program of its derivative.

The derivative of q along t, as JAX computes it, is a program that is linear in t. Each of its
arrays is followed with a sparse matrix that says which entries of t an entry depends on; what does
not depend on t is no concern, but for arrays that are the same at every point, such as indices,
which are known. Operations without a rule make everything depend on everything they are given:
then some zeros are overlooked, but none is invented.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax.extend.core import Literal

from limpet.lanes.expanded import HIGH, lowered
from limpet.lanes.rules import folded, is_key

MOST_TERMS = 20_000_000  # of a product of matrices that are told apart: some seconds of work
MOST_ENTRIES = 100_000_000  # of what an array depends on: half a gigabyte, and some seconds of work

Depends = sp.csr_matrix  # entries of an array, row by row; which entries of t each depends on


class TooManyError(Exception):
    """An array whose entries depend on so many that it is not worth to follow them."""


class Unknown:
    """An array that depends on the point, but not on t."""


UNKNOWN = Unknown()


def dependence(function: Callable, x: Any) -> sp.csr_matrix:
    """Which entries of x each entry of the function's result depends on, at any x.

    `TooManyError` if these are too many to be told.
    """
    derivative = jax.make_jaxpr(lambda x, t: jax.jvp(function, (x,), (t,))[1])(x, x)
    n = x.shape[0]
    (result,) = _run(derivative, [UNKNOWN, sp.csr_matrix(sp.eye(n, dtype=bool))], n)
    if isinstance(result, sp.csr_matrix):
        return result
    m = math.prod(jax.eval_shape(function, x).shape)
    return sp.csr_matrix((m, n), dtype=bool)


def _run(closed, arguments, n):
    """The results of a program: what each depends on, what it is, or UNKNOWN."""
    program, constants = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())
    values: dict[Any, Any] = dict(zip(program.constvars, map(_known, constants), strict=True))
    values.update(zip(program.invars, arguments, strict=True))

    def read(atom):
        if not isinstance(atom, Literal):
            return values[atom]
        kind: Any = atom.aval
        return np.asarray(atom.val, kind.dtype)

    for equation in program.eqns:
        results = _evaluate(equation, [read(atom) for atom in equation.invars], n)
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in program.outvars]


def _known(value):
    return value if is_key(value) else np.asarray(value)


def _evaluate(equation, values, n):
    name = equation.primitive.name
    if name in CALLS and (inner := _called(equation)) is not None:
        return _run(inner, values, n)
    if not any(isinstance(value, sp.csr_matrix) for value in values):
        if any(value is UNKNOWN for value in values) or equation.effects:
            return [UNKNOWN for _ in equation.outvars]
        return folded(equation, values)
    if name == "cond" and not isinstance(values[0], sp.csr_matrix):
        return _branches(equation, values, n)
    if name in RULES:
        made = RULES[name](equation, values, n)
        if made is not None:
            return [made]
    if name == "split":
        return _split(equation, values[0])
    return [_everything(equation, values, variable) for variable in equation.outvars]


def _called(equation):
    """The program that an operation is another name for."""
    if equation.primitive.name == HIGH:
        return lowered(equation)
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if key in equation.params:
            return equation.params[key]
    return None


CALLS = {"jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_jvp_call"}
CALLS |= {"custom_vjp_call", "eval_jaxpr", HIGH}


def _branches(equation, values, n):
    """What some branch makes depend on t, does."""
    every = [_run(branch, values[1:], n) for branch in equation.params["branches"]]
    return [
        _union([_depends(value, variable.aval.size, n) for value in results])
        for variable, *results in zip(equation.outvars, *every, strict=True)
    ]


def _everything(equation, values, variable):
    """Every entry of the result depends on all that any argument does."""
    if not _varies(variable.aval.dtype):
        return UNKNOWN
    given = [value for value in values if isinstance(value, sp.csr_matrix)]
    row = _union([sp.csr_matrix(value.sum(axis=0) > 0) for value in given])
    return _copies(row, variable.aval.size)


def _copies(row, size):
    return _rows(row, np.zeros(size, int))


def _rows(value, rows) -> Depends:
    if np.sum(np.diff(value.indptr)[rows]) > MOST_ENTRIES:
        raise TooManyError
    return sp.csr_matrix(value[rows])


def _varies(dtype):
    """Whether numbers of this type have derivatives: whole numbers and flags have none."""
    return jnp.issubdtype(dtype, jnp.floating)


def _depends(value, size, n) -> Depends:
    return value if isinstance(value, sp.csr_matrix) else sp.csr_matrix((size, n), dtype=bool)


def _union(parts):
    return functools.reduce(lambda a, b: a + b, parts)


# Rules, given how many entries t has: what the result depends on, or None if nothing can be said.


def _entry_by_entry(equation, values, n):
    """Each entry depends on what the entries beside it do; a factor that is zero takes it away."""
    out = equation.outvars[0].aval
    parts = [
        _repeated(value, atom, out)
        for value, atom in zip(values, equation.invars, strict=True)
        if isinstance(value, sp.csr_matrix)
    ]
    made = _union(parts)
    if equation.primitive.name == "mul":
        for value in values:
            if value is not UNKNOWN and not isinstance(value, sp.csr_matrix):
                kept = np.ravel(np.broadcast_to(np.asarray(value) != 0, out.shape))
                made = sp.csr_matrix(sp.diags(kept.astype(bool), dtype=bool) @ made)
    return made


def _repeated(value, atom, out):
    """JAX repeats axes of length one."""
    numbers = np.arange(value.shape[0]).reshape(atom.aval.shape)
    return _rows(value, np.ravel(np.broadcast_to(numbers, out.shape)))


def _select(equation, values, n):
    return _entry_by_entry(equation, [UNKNOWN, *values[1:]], n)


def _moved(equation, values, n):
    """An operation that moves entries about: done to their numbers, it tells where they went."""
    parts, numbers, first = [], [], 1
    for value, atom in zip(values, equation.invars, strict=True):
        if isinstance(value, sp.csr_matrix):
            numbers.append(first + np.arange(atom.aval.size).reshape(atom.aval.shape))
            parts.append(value)
            first += atom.aval.size
        elif _varies(atom.aval.dtype):  # depends on no t: entry zero
            numbers.append(np.zeros(atom.aval.shape, int))
        elif value is UNKNOWN:  # an index that depends on the point
            return None
        else:
            numbers.append(np.asarray(value))
    params = dict(equation.params)
    if equation.primitive.name == "gather":
        params["fill_value"] = 0
    with jax.ensure_compile_time_eval():
        moved = equation.primitive.bind(*map(jnp.asarray, numbers), **params)
    nothing = sp.csr_matrix((1, n), dtype=bool)
    source = sp.csr_matrix(sp.vstack([nothing, *parts], format="csr"))
    return _rows(source, np.ravel(np.asarray(moved)))


def _split(equation, value):
    """Parts of an array."""
    shape = equation.invars[0].aval.shape
    numbers = np.arange(value.shape[0]).reshape(shape)
    ends = np.cumsum(equation.params["sizes"])[:-1]
    return [value[np.ravel(part)] for part in np.split(numbers, ends, axis=equation.params["axis"])]


def _summed(equation, values, n):
    """A sum over axes depends on what its terms do."""
    (value,), axes = values, equation.params["axes"]
    shape = equation.invars[0].aval.shape
    out = np.arange(equation.outvars[0].aval.size)
    kept = [1 if k in axes else size for k, size in enumerate(shape)]
    rows = np.ravel(np.broadcast_to(out.reshape(kept), shape))
    return _pairs(rows, np.arange(value.shape[0]), (len(out), value.shape[0])) @ value


def _pairs(rows, columns, shape) -> sp.csr_matrix:
    return sp.csr_matrix((np.ones(len(rows), bool), (rows, columns)), shape)


def _product(equation, values, n):
    """A product of matrices, of which one side does not depend on t; its known zeros count."""
    side = 0 if isinstance(values[0], sp.csr_matrix) else 1
    if isinstance(values[1 - side], sp.csr_matrix):
        return None
    (over, batch) = equation.params["dimension_numbers"]
    shapes = [atom.aval.shape for atom in equation.invars]
    free = [[k for k in range(len(shapes[i])) if k not in (*over[i], *batch[i])] for i in range(2)]
    sizes = [
        [shapes[0][k] for k in batch[0]],
        [shapes[0][k] for k in free[0]],
        [shapes[1][k] for k in free[1]],
        [shapes[0][k] for k in over[0]],
    ]
    if math.prod(itertools.chain(*sizes)) > MOST_TERMS:
        return None
    lengths = [math.prod(size) for size in sizes]
    numbers = []
    for i, shape in enumerate(shapes):
        array = np.arange(math.prod(shape)).reshape(shape)
        array = np.transpose(array, [*batch[i], *free[i], *over[i]])
        mine = [lengths[0], lengths[1 + i], lengths[3]]
        array = array.reshape(mine)
        array = array[:, :, None] if i == 0 else array[:, None]
        numbers.append(np.ravel(np.broadcast_to(array, lengths)))
    rows = np.repeat(np.arange(math.prod(lengths[:3])), lengths[3])
    other = values[1 - side]
    if other is not UNKNOWN:
        there = np.ravel(np.asarray(other) != 0)[numbers[1 - side]]
        rows, numbers = rows[there], [part[there] for part in numbers]
    shape = math.prod(lengths[:3]), values[side].shape[0]
    return _pairs(rows, numbers[side], shape) @ values[side]


def _running(equation, values, n):
    """A running sum depends on all before."""
    (value,), axis = values, equation.params["axis"]
    shape = equation.invars[0].aval.shape
    if value.shape[0] * shape[axis] > MOST_TERMS:
        return None
    numbers = np.moveaxis(np.arange(value.shape[0]).reshape(shape), axis, -1)
    if equation.params["reverse"]:
        numbers = numbers[..., ::-1]
    pairs = [
        (np.ravel(numbers[..., end:]), np.ravel(numbers[..., : shape[axis] - end]))
        for end in range(shape[axis])
    ]
    rows, columns = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return _pairs(rows, columns, (value.shape[0], value.shape[0])) @ value


ENTRY_BY_ENTRY = ("add", "sub", "mul", "div", "neg", "add_any", "convert_element_type", "copy")
MOVES = ("reshape", "transpose", "broadcast_in_dim", "squeeze", "expand_dims", "slice", "rev")
MOVES += ("concatenate", "stack", "pad", "gather", "dynamic_slice", "dynamic_update_slice")
RULES: dict[str, Callable] = dict.fromkeys(ENTRY_BY_ENTRY, _entry_by_entry)
RULES |= dict.fromkeys(MOVES, _moved)
RULES |= {
    "select_n": _select,
    "reduce_sum": _summed,
    "dot_general": _product,
    "cumsum": _running,
}
