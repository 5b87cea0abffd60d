"""Programs of JAX's operations, for all chains, in LLVM's language.

The rules for the operations are in `elementwise`, `arrays`, `matrices` and `control`.
"""

import contextlib
import functools
import math

import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr

from limpet.lanes import (  # (they register their rules)
    control,  # noqa: F401
    expanded,  # noqa: F401
    loops,
    matrices,  # noqa: F401
    width,
)
from limpet.lanes.code import MOST, Array, Code, UnsupportedError
from limpet.lanes.control import get, places_for, put, zero_of
from limpet.lanes.identity import inner_programs
from limpet.lanes.loops.control import Cell, given_array, overwrite, unload
from limpet.lanes.loops.forwarding import without_idle_stores
from limpet.lanes.loops.fusion import fused
from limpet.lanes.rules import RULES, are_zero, each, run, run_on_numbers

# Bytes of all arrays from which loops are joined. A chain of 60 beads, with half as many, gains
# nothing, and compiles a second longer; spheres in 1,000 dimensions take 0.4 to 0.7 of the time.
LARGE = 2**19


def zeros(program) -> list[np.ndarray]:
    """Which entries of a program's results are zero, whatever it is given."""
    code = Code(run_on_numbers, MOST // 30)  # a step is made of many such
    arrays = [Array(code, k, variable.aval) for k, variable in enumerate(program.jaxpr.invars)]
    given = [each(v, a.constant) for v, a in zip(program.jaxpr.invars, arrays, strict=True)]
    return [are_zero(result) for result in run(code, program, given)]


def count(program) -> int:
    """About how many operations on single numbers a program is made of."""
    total = 0
    for equation in getattr(program, "jaxpr", program).eqns:
        inner = sum(map(count, inner_programs(equation)))
        if inner:
            total += inner * int(equation.params.get("length", 1))
        else:
            entries = max((math.prod(v.aval.shape) for v in equation.outvars), default=0)
            total += entries * _work(equation)
    return total


def _work(equation) -> int:
    """Operations for each entry of a result."""
    name, shapes = equation.primitive.name, [v.aval.shape for v in equation.invars]
    if name == "dot_general":
        (over, _), _ = equation.params["dimension_numbers"]
        return 2 * math.prod(shapes[0][k] for k in over)
    if name in ("cholesky", "lu", "triangular_solve", "limpet_factor", "limpet_pivots"):
        return shapes[0][-1]
    if name == "limpet_plan":
        return equation.params["plan"].terms // max(1, equation.params["plan"].size) + 1
    if name == "limpet_solve":
        return shapes[0][-1] ** 2
    if name.startswith(("reduce_", "arg")):
        return math.prod(shapes[0]) // max(1, math.prod(equation.outvars[0].aval.shape))
    return 1 if name in RULES and RULES[name].entry else 0


def _arrays(code, program, carried):
    """A program's arguments, and the arrays that it is given for these and for its outputs."""
    every = (*program.jaxpr.invars, *program.jaxpr.outvars[carried:])
    return program.jaxpr.invars, [Array(code, k, v.aval) for k, v in enumerate(every)]


def _chains_in_lanes(code, first, last) -> list[str]:
    """The chains from the first on, one for each lane; spare lanes do the last one once more."""
    return [code.least(code.line(f"add i64 {first}, {k}"), last) for k in range(width.lanes())]


def written(program, constants: int, carried: int, zero) -> str:
    """The text of a scan of a program, for all chains: lanes by lanes, all turns of each.

    The program's first arguments are constants, the next are carried from turn to turn, the rest
    are new at every turn; its first results are the new carry, the rest are outputs. `zero` tells
    of each array that is carried which of its entries are zero, and stay it: they are left alone.
    """
    code = Code(run_on_numbers)
    variables, arrays = _arrays(code, program, carried)
    known, given = constants + carried, len(variables)
    carry, fed, made = arrays[constants:known], arrays[known:given], arrays[given:]
    fixed = [each(v, a.constant) for v, a in zip(variables, arrays[:constants], strict=False)]
    last = code.line("sub i64 %chains, 1")
    kept = [places_for(code, array.dtype, none) for array, none in zip(carry, zero, strict=True)]

    def lanes(first):
        chains = _chains_in_lanes(code, first, last)
        for array, places in zip(carry, kept, strict=True):
            for entry, place in places.items():
                code.put(place, array.load(entry, chains))
        code.count("%turns", 1, functools.partial(turn, chains))
        for array, places in zip(carry, kept, strict=True):
            for entry, place in places.items():
                array.store(code.get(place, array.dtype), entry, chains)

    def turn(chains, t):
        state = [
            get(code, v.aval, places, zero_of(v.aval.dtype))
            for v, places in zip(variables[constants:], kept, strict=False)
        ]
        new = [
            each(v, functools.partial(array.load, chains=chains, turn=t))
            for v, array in zip(variables[known:], fed, strict=True)
        ]
        results = run(code, program, [*fixed, *state, *new])
        for array, places, result in zip(carry, kept, results, strict=False):
            if not put(code, array.dtype, places, result):
                raise UnsupportedError("an entry that was taken for zero, and changes")
        for array, result in zip(made, results[carried:], strict=True):
            for entry, number in enumerate(result.flat):
                array.store(number, entry, chains, t)

    code.count("%chains", width.lanes(), lanes)
    return code.text()


def _without_idle(program):
    """The program without operations that no result needs: loops, unlike lines, are not dropped."""
    needed = dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars), instantiate=True)[0]
    return program.replace(jaxpr=needed)


def written_as_loops(
    program, constants: int, carried: int, registers=loops.REGISTERS, most_lanes=width.MANY
) -> str:
    """The same with arrays of more entries than fit in registers in memory, and loops over them."""
    program = _without_idle(program)
    if most_lanes == width.MANY:
        with contextlib.suppress(UnsupportedError), width.side_by_side(width.MANY):
            code = _written_as_loops(program, constants, carried, registers)
            given = program.jaxpr.invars[:constants]
            shared = sum(
                map(len, code.tables), sum(v.aval.size * v.aval.dtype.itemsize for v in given)
            )
            if code.workspace.size <= width.MOST_FOR_MANY + shared:
                return _text_of_few_passes(code)
    return _text_of_few_passes(_written_as_loops(program, constants, carried, registers))


def _written_as_loops(program, constants, carried, registers) -> Code:
    code = Code(loops.run)
    code.workspace, code.registers = loops.Workspace(), registers
    variables, arrays = _arrays(code, program, carried)
    known, given = constants + carried, len(variables)
    carry, fed, made = arrays[constants:known], arrays[known:given], arrays[given:]
    fixed = [
        given_array(code, v.aval, a) for v, a in zip(variables, arrays[:constants], strict=False)
    ]
    last = code.line("sub i64 %chains, 1")
    begun = len(code.lines)
    cells = [Cell(code, variable.aval) for variable in variables[constants:known]]
    new = [Cell(code, variable.aval) for variable in variables[known:]]

    def lanes(first):
        chains = _chains_in_lanes(code, first, last)
        for array, cell in zip(carry, cells, strict=True):
            cell.load(lambda k, array=array: array.load(k, chains))
        code.count("%turns", 1, functools.partial(turn, chains))
        for array, cell in zip(carry, cells, strict=True):
            unload(code, cell.get(), lambda k, n, array=array: array.store(n, k, chains))

    def turn(chains, t):
        for array, cell in zip(fed, new, strict=True):
            cell.load(lambda k, array=array: array.load(k, chains, t))
        state = [cell.get() for cell in (*cells, *new)]
        results = run(code, program, [*fixed, *state])
        for array, result in zip(made, results[carried:], strict=True):
            unload(code, result, lambda k, n, array=array: array.store(n, k, chains, t))
        overwrite(code, cells, results[:carried])

    code.count("%chains", width.lanes(), lanes)
    code.lines[begun:begun] = code.once
    return code


def _text_of_few_passes(code: Code) -> str:
    """The text of a program with loops, as few as can be where its arrays are large."""
    if code.workspace.size < LARGE:
        return code.text()
    sizes = code.workspace.sizes
    code.lines = fused(code.used(), sizes, code.names)
    code.lines = without_idle_stores(code.used(), sizes)
    return code.text()
