"""A program, operation by operation: on numbers where all arrays are small, else by a loop."""

from collections import Counter
from collections.abc import Callable

import numpy as np
from jax.extend.core import Literal

from limpet.lanes.code import UnsupportedError
from limpet.lanes.expanded import EXPANDED
from limpet.lanes.loops.deferred import Unwritten, computed
from limpet.lanes.loops.memory import (
    Computed,
    Known,
    as_large,
    fits,
    is_large,
    settle,
    settle_known,
    store,
)
from limpet.lanes.loops.shared import MOST_ENTRIES, are_shared, beforehand, share
from limpet.lanes.rules import CALLBACK, RULES, are_known, evaluate, folded, is_key

LOOPS: dict[str, Callable] = {}
# From which argument on an operation has indices; numbers in registers have none that are computed.
INDICES = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2}
CALLS = {"jit", "pjit", "closed_call", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call"}
CALLS |= {"eval_jaxpr", "custom_linear_solve", *EXPANDED}
# what is known stays a loop or a branch, and zeros of sparse matrices are made of what is known
NEVER_FOLDED = CALLS | {"while", "cond", "scan", "limpet_sparse", CALLBACK}


def run(code, closed, arguments) -> list:
    """The results of one of JAX's programs."""
    program, constants = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())
    space, values = code.workspace, {}
    equations, uses = _needed(program)
    in_products = {a for e in equations for a in _factors(e) if uses[a] == 1}
    eliminated = {a for e in equations for a in _eliminated(e) if uses[a] == 1}

    def ready(variable, value):
        """A product of matrices in another one, or that is eliminated, may wait for that."""
        waits = variable in (eliminated if isinstance(value, Unwritten) else in_products)
        waits = waits and not fits(code, variable.aval.shape)
        return value if waits else settle(code, computed(value))

    def bind(variable, value):
        if not is_key(value) and not fits(code, value.shape):
            value = as_large(code, value)
        if isinstance(value, Computed) and uses[variable] > 1:
            value = store(code, value)
        values[variable] = value
        space.retain(value)

    def read(atom):
        return settle_known(code, atom.val) if isinstance(atom, Literal) else values[atom]

    for variable, constant in zip(program.constvars, constants, strict=True):
        bind(variable, settle_known(code, constant))
    for variable, value in zip(program.invars, arguments, strict=True):
        bind(variable, value)
    for equation in equations:
        space.collect()
        results = _evaluate(code, equation, [read(atom) for atom in equation.invars])
        for variable, result in zip(equation.outvars, results, strict=True):
            bind(variable, ready(variable, result))
        for atom in equation.invars:
            if not isinstance(atom, Literal):
                uses[atom] -= 1
                if not uses[atom]:
                    space.release(values.pop(atom))
    results = [read(atom) for atom in program.outvars]
    for value in values.values():
        space.release(value)
    return results


def _needed(program) -> tuple[list, Counter]:
    """The operations that some result needs, and how often each variable is read by them.

    Loops, unlike lines, are not dropped by LLVM; and JAX leaves what is idle in a loop's body.
    """
    uses = Counter(atom for atom in program.outvars if not isinstance(atom, Literal))
    needed = []
    for equation in reversed(program.eqns):
        if equation.effects or any(uses[variable] for variable in equation.outvars):
            needed.append(equation)
            uses.update(atom for atom in equation.invars if not isinstance(atom, Literal))
    return needed[::-1], uses


def _factors(equation) -> list:
    """The variables that an operation multiplies, if it is a product of matrices."""
    if equation.primitive.name != "dot_general":
        return []
    return [atom for atom in equation.invars if not isinstance(atom, Literal)]


def _eliminated(equation) -> list:
    """The matrix that an operation factors in place, if it does."""
    plan = equation.params.get("plan")
    if plan is None or plan.supernodes is None:
        return []
    return [atom for atom in equation.invars if not isinstance(atom, Literal)]


def _evaluate(code, equation, values):
    """The results of one operation."""
    name = equation.primitive.name
    if name in CALLS or any(map(is_key, values)):
        return evaluate(code, equation, values)
    foldable = name not in NEVER_FOLDED and not equation.effects
    if foldable and any(map(is_large, values)) and all(map(_is_plain, values)):
        return _fold(code, equation, values)
    if foldable and are_shared(code, values) and all(map(_may_be_kept, equation.outvars)):
        with beforehand(code):
            return [share(code, computed(a)) for a in _by_rule(code, equation, values)]
    return _by_rule(code, equation, values)


def _may_be_kept(variable) -> bool:
    return variable.aval.size <= MOST_ENTRIES


def _by_rule(code, equation, values):
    """The results of one operation, by its rule."""
    name, rule = equation.primitive.name, RULES.get(equation.primitive.name)
    foldable = name not in NEVER_FOLDED and not equation.effects
    every = [*values, *(variable.aval for variable in equation.outvars)]
    small = foldable and all(fits(code, array.shape) for array in every)
    small = small and not (rule is not None and rule.in_memory)
    if small and all(map(are_known, _indices(name, values))):
        return evaluate(code, equation, [settle(code, value) for value in values])
    if equation.effects and rule is None:
        raise UnsupportedError(f"{name}, which does more than compute")
    if name not in LOOPS or rule is None:
        raise UnsupportedError(f"{name} of many numbers" if rule else name)
    values = [
        value if value.size else Known(np.zeros(value.shape, variable.aval.dtype))
        for value, variable in zip(values, equation.invars, strict=True)
    ]
    return LOOPS[name](code, equation, values, **rule.parameters(name, equation.params))


def _indices(name, values):
    """The indices among the arguments of an operation."""
    if name.startswith("scatter"):
        return values[1:2]
    return values[INDICES[name] :] if name in INDICES else []


def _is_plain(value):
    """Whether an array is known, and none of a sparse matrix."""
    if is_large(value):
        return isinstance(value, Known) and value.zero is None
    return are_known(value)


def _fold(code, equation, values):
    """The results of an operation on known numbers."""
    given = zip(values, equation.invars, strict=True)
    results = folded(equation, [known_values(a, v.aval.dtype) for a, v in given])
    return [settle_known(code, result) for result in results]


def known_values(value, dtype) -> np.ndarray:
    """A known array as NumPy has it."""
    if is_large(value):
        return value.values
    return np.array([number.item() for number in value.flat], dtype).reshape(value.shape)


def one(rule):
    """A rule with one result: `rule(code, out, *values, **parameters)`."""

    def write(code, equation, values, **parameters):
        return [rule(code, equation.outvars[0].aval, *values, **parameters)]

    return write
