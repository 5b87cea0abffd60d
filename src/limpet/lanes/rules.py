"""Rules: how each of JAX's operations is written, and which of its parameters that honours.

An array is a NumPy array of numbers (`code.Number`, or NumPy's scalars where they are known), so
operations that only move entries about are NumPy's own. A rule is registered under the name of its
operation, with three kinds of parameters: those that it `honours`, which are handed to it; those
that it `ignores`, for they change no result; and those that must be left `unset` (None). A
parameter of no kind, or an operation without a rule, is refused: the program is left to XLA.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from limpet.lanes.code import STRUCTURAL_ZERO, UnsupportedError, is_known, is_structural, is_zero


@dataclasses.dataclass(frozen=True)
class Rule:
    """How an operation is written: `write(code, equation, arrays, **honoured)` gives its results.

    JAX itself computes an operation that `folds` on known whole numbers or flags, so that they stay
    known: indices and the lengths of loops are made of them.
    """

    write: Callable
    honours: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    folds: bool = False
    entry: Callable | None = None  # of an operation entry by entry: what it does with one
    in_memory: bool = False  # its arrays are in memory, however small: it is in `loops` only

    def parameters(self, name: str, given: dict) -> dict[str, Any]:
        """The parameters to be honoured; refused if there are others that matter."""
        for key, value in given.items():
            if key in self.unset and value is None:
                continue
            if key not in (*self.honours, *self.ignores):
                raise UnsupportedError(f"{name} with {key}")
        return {key: given[key] for key in self.honours if key in given}


RULES: dict[str, Rule] = {}
# Called while a program is written, it might raise an error that belongs to a branch not taken.
CALLBACK = "pure_callback"


def in_memory(*, honours: tuple[str, ...] = (), ignores: tuple[str, ...] = ()) -> Rule:
    """The rule of an operation that is written as loops over arrays in memory, or not at all."""
    return Rule(_not_on_numbers, honours, ignores, in_memory=True)


def _not_on_numbers(code, equation, arrays, **parameters):
    raise UnsupportedError(f"{equation.primitive.name} on numbers")


def run(code, closed, arguments) -> list:
    """The results of one of JAX's programs, which may have constants of its own."""
    return code.run(code, closed, arguments)


def run_on_numbers(code, closed, arguments) -> list:
    """The same where all arrays are numbers."""
    program, constants = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())
    values = {v: known(c) for v, c in zip(program.constvars, constants, strict=True)}
    values.update(zip(program.invars, arguments, strict=True))

    def read(atom):
        return known(atom.val) if isinstance(atom, Literal) else values[atom]

    for equation in program.eqns:
        results = evaluate(code, equation, [read(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in program.outvars]


def evaluate(code, equation, arrays):
    """The results of one operation."""
    name, rule = equation.primitive.name, RULES.get(equation.primitive.name)
    # operations with a rule, such as calls and loops, have the effects of those inside
    if equation.effects and rule is None:
        raise UnsupportedError(f"{name}, which does more than compute")
    if name == CALLBACK:
        raise UnsupportedError(name)
    if not equation.effects and any(map(is_key, arrays)) and all(map(are_known, arrays)):
        return fold(equation, arrays)
    if rule is None or (rule.folds and not _is_float(equation.outvars[0].aval.dtype)):
        if all(map(are_known, arrays)):
            return fold(equation, arrays)
        if rule is None:
            raise UnsupportedError(name)
    parameters = rule.parameters(name, equation.params)
    return rule.write(code, equation, arrays, **parameters)


def _is_float(dtype):
    return jnp.issubdtype(dtype, jnp.floating)


# Arrays of numbers.


def numbers(shape, entries) -> np.ndarray:
    """An array of these; left alone, NumPy would make Python's numbers of some of its own."""
    entries = list(entries)
    flat = np.empty(len(entries), object)
    for k, number in enumerate(entries):
        flat[k] = number
    return flat.reshape(shape)


def each(variable, make) -> np.ndarray:
    """The array of a variable, entry by entry."""
    shape = variable.aval.shape
    return numbers(shape, [make(entry) for entry in range(int(np.prod(shape)))])


def are_zero(array) -> np.ndarray:
    """Which entries are known to be zero."""
    return np.array([is_zero(number) for number in array.flat], bool).reshape(array.shape)


def is_sparse(array) -> bool:
    """Whether some of the entries are zeros of a sparse matrix."""
    return any(is_structural(number) for number in array.flat)


def sparse(array) -> np.ndarray:
    """The array with all zeros that are known as zeros of a sparse matrix."""
    return numbers(
        array.shape,
        [STRUCTURAL_ZERO if _is_double_zero(number) else number for number in array.flat],
    )


def dense(array) -> np.ndarray:
    """The array with all zeros as numbers like others."""
    if not is_sparse(array):
        return array
    return numbers(array.shape, [np.float64(0) if is_structural(n) else n for n in array.flat])


def _is_double_zero(number):
    return is_zero(number) and number.dtype == np.float64


# Known arrays. Keys of random numbers are no arrays of numbers, and are left as JAX has them.


def known(values):
    """An array of known numbers."""
    if is_key(values):
        return values
    values = np.asarray(values)
    return numbers(values.shape, values.ravel())


def whole_numbers(name, array) -> np.ndarray:
    """The known array as NumPy has it; refused if it depends on the point."""
    if not are_known(array):
        raise UnsupportedError(f"{name} at an index that depends on the point")
    return np.array([int(number) for number in array.flat], np.int64).reshape(array.shape)


def is_key(values) -> bool:
    """Whether these are keys of JAX's random numbers."""
    return isinstance(values, jax.Array) and jnp.issubdtype(values.dtype, jax.dtypes.extended)


def are_known(array) -> bool:
    """Whether all numbers of an array are known."""
    return is_key(array) or all(is_known(number) for number in array.flat)


# Operations on whole numbers and flags that NumPy does as JAX does, at once: JAX compiles each, for
# each shape, in some ten milliseconds.
BY_NUMPY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "convert_element_type": np.asarray,
}


def _broadcast(array, shape, broadcast_dimensions):
    sides = dict(zip(broadcast_dimensions, array.shape, strict=True))
    return np.broadcast_to(array.reshape([sides.get(k, 1) for k in range(len(shape))]), shape)


def _cut(array, start_indices, limit_indices):
    return array[tuple(map(slice, start_indices, limit_indices))]


def _select(which, *cases):
    chosen = cases[-1]
    for k, case in reversed([*enumerate(cases[:-1])]):
        chosen = np.where(which <= k, case, chosen)  # JAX takes the nearest where there is no case
    return chosen


# Operations that move entries about, of any type, with the parameters that may be set.
MOVED_BY_NUMPY = {
    "broadcast_in_dim": (_broadcast, {"shape", "broadcast_dimensions"}),
    "reshape": (lambda array, new_sizes: array.reshape(new_sizes), {"new_sizes"}),
    "squeeze": (lambda array, dimensions: array.squeeze(dimensions), {"dimensions"}),
    "transpose": (lambda array, permutation: array.transpose(permutation), {"permutation"}),
    "rev": (lambda array, dimensions: np.flip(array, dimensions), {"dimensions"}),
    "slice": (_cut, {"start_indices", "limit_indices"}),
    "concatenate": (lambda *arrays, dimension: np.concatenate(arrays, dimension), {"dimension"}),
    "select_n": (_select, set()),
}


def fold(equation, arrays):
    """The results of an operation on known numbers, by JAX itself, or as it has them."""
    given = zip(arrays, equation.invars, strict=True)
    return [
        known(a) for a in folded(equation, [a if is_key(a) else _values(a, v) for a, v in given])
    ]


def folded(equation, given):
    """The same of NumPy's arrays, or keys."""
    name, variables = equation.primitive.name, (*equation.invars, *equation.outvars)
    if name in BY_NUMPY and all(variable.aval.dtype.kind in "iub" for variable in variables):
        return [np.asarray(BY_NUMPY[name](*given), equation.outvars[0].aval.dtype)]
    move, parameters = MOVED_BY_NUMPY.get(name, (None, set()))
    chosen = {key: value for key, value in equation.params.items() if value is not None}
    if move is not None and parameters == set(chosen) and not any(map(is_key, given)):
        return [np.array(move(*given, **chosen))]
    with jax.ensure_compile_time_eval():
        results = equation.primitive.bind(*given, **equation.params)
    results = results if equation.primitive.multiple_results else [results]
    return [result if is_key(result) else np.asarray(result) for result in results]


def _values(array, variable):
    flat = [number.item() for number in array.flat]
    return np.array(flat, variable.aval.dtype).reshape(array.shape)
