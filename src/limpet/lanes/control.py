"""Calls, loops and branches."""

import functools

import numpy as np

from limpet.lanes.arithmetic import compare
from limpet.lanes.arrays import row
from limpet.lanes.code import (
    FLAG,
    STRUCTURAL_ZERO,
    UnsupportedError,
    is_known,
    is_structural,
    is_zero,
)
from limpet.lanes.elementwise import convert
from limpet.lanes.rules import RULES, Rule, are_zero, numbers, run

LONGEST = 64  # turns of a loop of fixed length, which is written out


# Variables for the entries of an array, without those that are zero and stay it.


def places_for(code, dtype, zero) -> dict[int, str]:
    """A variable for each other entry, by its number."""
    return {int(entry): code.variable(dtype) for entry in np.flatnonzero(~zero)}


def get(code, aval, places, zero) -> np.ndarray:
    """The array with the variables' values, and `zero` elsewhere."""
    return numbers(
        aval.shape,
        [
            code.get(places[entry], aval.dtype) if entry in places else zero
            for entry in range(aval.size)
        ],
    )


def put(code, dtype, places, array) -> bool:
    """Set the variables; whether the other entries are zero."""
    for entry, number in enumerate(array.flat):
        if entry in places:
            code.put(places[entry], convert(code, dtype, number))
        elif not is_zero(number):
            return False
    return True


def zero_of(dtype):
    """The zero of a sparse matrix, where the type has one."""
    return STRUCTURAL_ZERO if dtype == np.float64 else dtype.type(0)


class _FilledError(Exception):
    """An entry of an array was taken for zero, and is not after a turn of the loop."""


def _while(code, equation, arrays, cond_nconsts, cond_jaxpr, body_nconsts, body_jaxpr):
    first = arrays[cond_nconsts + body_nconsts :]
    loop = _Loop(
        code,
        functools.partial(_called, code, cond_jaxpr, arrays[:cond_nconsts]),
        functools.partial(_called, code, body_jaxpr, arrays[cond_nconsts:][:body_nconsts]),
        [variable.aval for variable in equation.outvars],
        getattr(cond_jaxpr, "jaxpr", cond_jaxpr).outvars[0].aval,
    )
    # Zeros of a matrix, such as a gradient's, mostly stay. If some do not, all entries are carried,
    # and the loop is known as one that fills: were it tried again inside of others that fill, the
    # time to write loops in loops would double with each.
    mark, active = code.mark(), code.active
    if id(equation) not in code.filling:
        try:
            return loop.written(first, [(a.ndim > 1) & are_zero(a) for a in first])
        except _FilledError:
            code.filling[id(equation)] = equation  # kept, so that no other has its place in memory
            code.back_to(mark)
            code.active = active
    return loop.written(first, [np.zeros(a.shape, bool) for a in first])


def _called(code, program, constants, state):
    return run(code, program, [*constants, *state])


class _Loop:
    """A `while` as it is written; one that was batched has a flag for each entry of its batch."""

    def __init__(self, code, test, body, avals, flag_aval):
        self.code, self.test, self.body, self.avals = code, test, body, avals
        self.shape = flag_aval.shape
        self.flags = [code.variable(FLAG) for _ in range(flag_aval.size)]
        self.outer = code.active

    def written(self, first, zero):
        """The loop, with the entries in `zero` left alone, and what is carried at its end."""
        self.zeros = [zero_of(aval.dtype) for aval in self.avals]
        for k, (array, none) in enumerate(zip(first, zero, strict=True)):
            if not all(map(is_structural, array[none])):
                self.zeros[k] = self.avals[k].dtype.type(0)
        self.places = [
            places_for(self.code, a.dtype, none) for a, none in zip(self.avals, zero, strict=True)
        ]
        if not self.flags:
            return first
        self._put(first)
        self._test()
        self.code.repeat(self._turn)
        self.code.active = self.outer
        return self._get()

    def _turn(self):
        code, state = self.code, self._get()
        flags = numbers(self.shape, [code.get(place, FLAG) for place in self.flags])
        code.active = functools.reduce(functools.partial(code, FLAG, "or"), flags.flat)
        chosen = []
        for new, old in zip(self.body(state), state, strict=True):
            each = flags.reshape(self.shape + (1,) * (new.ndim - flags.ndim))
            entries = zip(np.broadcast_to(each, new.shape).flat, new.flat, old.flat, strict=True)
            chosen.append(numbers(new.shape, [code.select(*entry) for entry in entries]))
        self._put(chosen)
        self._test()
        code.active = self.outer
        more = (code.get(place, FLAG) for place in self.flags)
        return functools.reduce(functools.partial(code, FLAG, "or"), more)

    def _test(self):
        (flags,) = self.test(self._get())
        for place, flag in zip(self.flags, flags.flat, strict=True):
            self.code.put(place, self.code.both(self.code.active, flag))

    def _put(self, state):
        entries = zip(self.avals, self.places, state, strict=True)
        if not all([put(self.code, a.dtype, places, array) for a, places, array in entries]):
            raise _FilledError

    def _get(self):
        entries = zip(self.avals, self.places, self.zeros, strict=True)
        return [get(self.code, *each) for each in entries]


def _cond(code, equation, arrays, branches):
    which, *operands = arrays
    which, outer = which.item(), code.active
    if is_known(which):
        return run(code, branches[int(np.clip(which, 0, len(branches) - 1))], operands)
    chosen = None
    for k, branch in enumerate(branches):
        how = "le" if k == 0 else "eq" if k < len(branches) - 1 else "ge"
        mine = compare(how)(code, FLAG, which, which.dtype.type(k))
        code.active = code.both(outer, mine)
        results = run(code, branch, operands)
        code.active = outer
        if chosen is not None:
            pick = functools.partial(code.select, mine)
            pairs = zip(results, chosen, strict=True)
            results = [numbers(new.shape, map(pick, new.flat, old.flat)) for new, old in pairs]
        chosen = results
    return chosen


def scan_parts(equation, jaxpr) -> tuple[int, int, int]:
    """Of a scan: how many arguments are constants, how many are those or carried, and the latter.

    What is carried, or given to all turns, has the same axes outside the loop and inside.
    """
    program = getattr(jaxpr, "jaxpr", jaxpr)
    given, carried = (
        sum(a.aval.ndim == b.aval.ndim for a, b in zip(outside, inside, strict=True))
        for outside, inside in (
            (equation.invars, program.invars),
            (equation.outvars, program.outvars),
        )
    )
    return given - carried, given, carried


def _scan(code, equation, arrays, jaxpr, length, reverse):
    consts, given, carried = scan_parts(equation, jaxpr)
    if length > LONGEST:
        raise UnsupportedError(f"a loop of {length} turns")
    fixed, state = arrays[:consts], arrays[consts:given]
    outputs = {}
    for t in range(length)[:: -1 if reverse else 1]:
        fed = [row(array, 0, t) for array in arrays[given:]]
        results = run(code, jaxpr, [*fixed, *state, *fed])
        state, outputs[t] = results[:carried], results[carried:]
    stacked = [
        numbers(variable.aval.shape, [n for t in range(length) for n in outputs[t][k].flat])
        for k, variable in enumerate(equation.outvars[carried:])
    ]
    return [*state, *stacked]


def _call(parameter):
    """A call of the program under a parameter."""

    def write(code, equation, arrays, **parameters):
        return run(code, parameters[parameter], arrays)

    return write


def _linear_solve(code, equation, arrays, const_lengths, jaxprs):
    """A solution as its own program has it; the others are there for derivatives."""
    before = const_lengths.matvec + const_lengths.vecmat
    ends = before + const_lengths.solve
    right_sides = arrays[ends + const_lengths.transpose_solve :]
    return run(code, jaxprs.solve, [*arrays[before:ends], *right_sides])


PLACEMENT = ("in_shardings", "out_shardings", "in_layouts", "out_layouts", "ctx_mesh")
COMPILING = ("donated_invars", "name", "keep_unused", "inline", "compiler_options_kvs")
DERIVATIVES = ("num_consts", "symbolic_zeros")
REVERSE = ("fwd_jaxpr_thunk", "bwd", "out_trees")
REMATERIALISED = Rule(_call("jaxpr"), ("jaxpr",), ("prevent_cse", "differentiated", "policy"))
RULES |= {
    "while": Rule(_while, ("cond_nconsts", "cond_jaxpr", "body_nconsts", "body_jaxpr")),
    # which platform it is, is known
    "cond": Rule(_cond, honours=("branches",), ignores=("branches_platforms",)),
    "scan": Rule(
        _scan,
        honours=("jaxpr", "length", "reverse"),
        ignores=("unroll", "num_consts", "num_carry", "ft_in", "ft_out"),
    ),
    "jit": Rule(_call("jaxpr"), honours=("jaxpr",), ignores=(*PLACEMENT, *COMPILING)),
    "pjit": Rule(_call("jaxpr"), honours=("jaxpr",), ignores=(*PLACEMENT, *COMPILING)),
    "closed_call": Rule(_call("call_jaxpr"), honours=("call_jaxpr",)),
    "eval_jaxpr": Rule(_call("call_jaxpr"), honours=("call_jaxpr",)),  # the same of a later JAX
    "custom_linear_solve": Rule(_linear_solve, honours=("const_lengths", "jaxprs")),
    "remat2": REMATERIALISED,
    "checkpoint": REMATERIALISED,
    "custom_jvp_call": Rule(
        _call("call_jaxpr"), honours=("call_jaxpr",), ignores=("jvp_jaxpr_fun", *DERIVATIVES)
    ),
    "custom_vjp_call": Rule(
        _call("call_jaxpr"), honours=("call_jaxpr",), ignores=(*REVERSE, *DERIVATIVES)
    ),
}
