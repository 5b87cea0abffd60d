"""Loops and branches. What they carry is in variables, or in memory if it is large."""

import dataclasses
import functools

import numpy as np

from limpet.lanes.arithmetic import compare
from limpet.lanes.code import FLAG, is_known
from limpet.lanes.control import scan_parts
from limpet.lanes.elementwise import convert
from limpet.lanes.loops.memory import (
    Computed,
    Given,
    Shared,
    Stored,
    as_large,
    entry,
    fill,
    fits,
    is_large,
    new,
    over,
    plus,
    row_major,
    settle,
    store,
    times,
)
from limpet.lanes.loops.moves import view
from limpet.lanes.loops.program import LOOPS
from limpet.lanes.rules import is_key, numbers, run
from limpet.lanes.width import lanes


class Cell:
    """A variable array: numbers in variables, or one in memory."""

    def __init__(self, code, aval):
        self.code, self.shape, self.dtype = code, aval.shape, aval.dtype
        self.small = fits(code, aval.shape)
        if self.small:
            self.places = [code.variable(aval.dtype) for _ in range(int(np.prod(aval.shape)))]
        else:
            self.array = new(code, aval.shape, aval.dtype)
            code.workspace.retain(self.array)

    @classmethod
    def of(cls, code, array: Stored) -> "Cell":
        """One in memory that is there already."""
        cell = cls.__new__(cls)
        cell.code, cell.shape, cell.dtype = code, array.shape, array.dtype
        cell.small, cell.array = False, array
        return cell

    def get(self):
        """Its value."""
        if not self.small:
            return self.array
        return numbers(self.shape, [self.code.get(place, self.dtype) for place in self.places])

    def put(self, value, flag=None, old=None):
        """Set it, or, if a flag is given, only where that holds: elsewhere it is set to `old`."""
        code = self.code

        def chosen(index, number):
            number = convert(code, self.dtype, number)
            if flag is None:
                return number
            mine = entry(code, flag, index[: flag.ndim])
            return code.select(mine, number, entry(code, old, index))

        if not self.small:
            value = as_large(code, value)
            if flag is not None and flag.ndim:
                flag = as_large(code, flag)

            def set_entry(at):
                number = value.at(code, at)
                if old is self.array and flag is not None:
                    mine = entry(code, flag, at[: flag.ndim])
                    number = convert(code, self.dtype, number)
                    self.array.put_where(code, at, mine, number)
                else:
                    self.array.put(code, at, chosen(at, number))

            over(code, self.shape, set_entry)
            return
        value = settle(code, value)
        entries = [chosen(at, value[at]) for at in np.ndindex(*self.shape)]
        for place, number in zip(self.places, entries, strict=True):
            code.put(place, number)

    def load(self, number):
        """Set it, entry by entry: `number(k)` gives the k-th, counted row by row."""
        if self.small:
            for k, place in enumerate(self.places):
                self.code.put(place, number(k))
        else:
            flat = view(self.code, self.array, np.ravel)
            over(self.code, flat.shape, lambda at: flat.put(self.code, at, number(*at)))

    def release(self):
        """It is not needed by the loop any more."""
        if not self.small:
            self.code.workspace.release(self.array)


def unload(code, value, write):
    """Hand an array over, entry by entry: `write(k, number)` takes the k-th."""
    if not is_large(value):
        for k, number in enumerate(value.flat):
            write(k, number)
    else:
        over(
            code,
            value.shape,
            lambda at: write(row_major(code, value.shape, at), value.at(code, at)),
        )


def given_array(code, aval, array):
    """One of the arrays that a program is given, the same for all lanes."""
    if fits(code, aval.shape):
        given = [array.constant(k) for k in range(aval.size)]
        code.common.update(number.name for number in given)
        return numbers(aval.shape, given)
    return Given(aval.shape, aval.dtype, array.base)


def _cells(code, variables, values=None) -> list[Cell]:
    cells = [Cell(code, variable.aval) for variable in variables]
    for cell, value in zip(cells, values or (), strict=False):
        cell.put(value)
    return cells


def _ready(code, values) -> list:
    """Values that are there, before a loop that reads them at every turn."""
    return [
        store(code, value) if is_large(value) and not isinstance(value, Shared | Stored) else value
        for value in values
    ]


def _kept(code, values, cells):
    """Let go of the cells, and of values that were kept for the loop; what the cells have stays."""
    results = [cell.get() for cell in cells]
    for value in values:
        code.workspace.release(value)
    for cell in cells:
        cell.release()
    return results


def _hold(code, values):
    values = _ready(code, values)
    for value in values:
        code.workspace.retain(value)
    return values


def overwrite(code, cells, values, flag=None, old=None):
    """Set all cells, none before all new values were computed from the old."""
    temporary, mine = [], {cell.array.buffer for cell in cells if not cell.small}
    for cell, value in zip(cells, values, strict=True):
        there = isinstance(value, Stored) and mine.isdisjoint(value.buffers)
        if not cell.small and not there and not _in_place(cell, value, values, mine):
            ready = new(code, cell.shape, cell.dtype)
            fill(code, ready, as_large(code, value))
            value = ready
        code.workspace.retain(value)
        temporary.append(value)
    for k, (cell, value) in enumerate(zip(cells, temporary, strict=True)):
        cell.put(value, flag, None if old is None else old[k])
    for value in temporary:
        code.workspace.release(value)


def _in_place(cell, value, values, mine) -> bool:
    """Whether each entry of a cell may be set as soon as it is computed.

    So it may if nothing else reads the cell, and what is computed reads no other one of `mine`,
    which may have been set by then.
    """
    buffer = cell.array.buffer
    others = (other for other in values if other is not value)
    return (
        isinstance(value, Computed)
        and buffer not in value.elsewhere
        and mine.isdisjoint({*value.buffers} - {buffer})
        and not any(buffer in getattr(other, "buffers", ()) for other in others)
    )


def _while(code, equation, values, cond_nconsts, cond_jaxpr, body_nconsts, body_jaxpr):
    consts = _hold(code, values[: cond_nconsts + body_nconsts])
    of_test, of_body = consts[:cond_nconsts], consts[cond_nconsts:]
    cells = _cells(code, equation.outvars, values[cond_nconsts + body_nconsts :])
    test_aval = getattr(cond_jaxpr, "jaxpr", cond_jaxpr).outvars[0]
    flag, outer = Cell(code, test_aval.aval), code.active

    def state():
        return [cell.get() for cell in cells]

    def test():
        (going,) = run(code, cond_jaxpr, [*of_test, *state()])
        if outer is not None:
            going = _and(code, outer, going)
        flag.put(going)

    def any_going():
        flags = flag.get()
        if isinstance(flags, np.ndarray):
            return functools.reduce(functools.partial(code, FLAG, "or"), flags.flat, np.False_)
        some = code.variable(FLAG)
        code.put(some, np.False_)
        over(
            code,
            flags.shape,
            lambda at: code.put(some, code(FLAG, "or", code.get(some, FLAG), flags.at(code, at))),
        )
        return code.get(some, FLAG)

    def turn():
        flags, before = flag.get(), state()
        code.active = any_going()
        overwrite(code, cells, run(code, body_jaxpr, [*of_body, *before]), flags, before)
        code.active = outer
        test()
        return any_going()

    test()
    code.where_any(any_going(), lambda: code.repeat(turn))
    flag.release()
    return _kept(code, consts, cells)


def _and(code, outer, going):
    """Flags where the lanes are at work at all."""
    if not is_large(going):
        return numbers(going.shape, [code(FLAG, "and", outer, number) for number in going.flat])
    made = new(code, going.shape, FLAG)
    over(
        code,
        going.shape,
        lambda at: made.put(code, at, code(FLAG, "and", outer, going.at(code, at))),
    )
    return made


def _cond(code, equation, values, branches):
    which, *operands = values
    which, outer = which.item(), code.active
    if is_known(which):
        return run(code, branches[int(np.clip(which, 0, len(branches) - 1))], operands)
    operands = _hold(code, operands)
    passed = [_passed_on(branches, operands, k) for k in range(len(equation.outvars))]
    cells = [
        _Alias(code, variable.aval, operands[at[1]]) if at else Cell(code, variable.aval)
        for variable, at in zip(equation.outvars, passed, strict=True)
    ]
    for k, branch in enumerate(branches):
        how = "le" if k == 0 else "eq" if k < len(branches) - 1 else "ge"
        mine = compare(how)(code, FLAG, which, which.dtype.type(k))
        flags = numbers((), [mine])

        def taken(k=k, branch=branch, mine=mine, flags=flags):
            code.active = code.both(outer, mine)
            results = run(code, branch, operands)
            code.active = outer
            for cell, result, at in zip(cells, results, passed, strict=True):
                if at is None:  # before the first branch, there is nothing to keep
                    cell.put(result, *((flags, cell.get()) if k else ()))
                elif at[0] != k:
                    cell.put(result, flags)

        code.where_any(code.both(outer, mine), taken)
    return _kept(code, operands, cells)


def _passed_on(branches, operands, k) -> tuple[int, int] | None:
    """Of two branches, the one whose k-th result is just an operand in memory, and which."""
    if len(branches) != 2:
        return None
    for number, branch in enumerate(branches):
        program = getattr(branch, "jaxpr", branch)
        result = program.outvars[k]
        if result in program.invars:
            at = program.invars.index(result)
            if isinstance(operands[at], Stored) and operands[at].is_whole:
                return number, at
    return None


class _Alias:
    """A result that is an operand where nobody takes the other branch: that is not copied."""

    def __init__(self, code, aval, operand: Stored):
        self.code, self.operand, self.array = code, operand, new(code, aval.shape, aval.dtype)
        self.place = code.index(self._from_array(operand))
        for value in (self.array, operand):
            code.workspace.retain(value)

    def _from_array(self, value: Stored) -> int:
        """Where an array begins, counted in entries from the one of its own."""
        size = lanes() * (1 if value.dtype == FLAG else value.dtype.itemsize)
        return (value.buffer.offset - self.array.buffer.offset) // size

    def put(self, value, flag):
        """The result of the other branch, for the lanes that take it."""
        cell = Cell.of(self.code, self.array)
        cell.put(value, flag, self.operand)
        self.code.set_index(self.place, 0)

    def get(self) -> Stored:
        """The result."""
        offset = self.code.get_index(self.place)
        return dataclasses.replace(self.array, offset=offset, also=(self.operand.buffer,))

    def release(self):
        """It is not needed by the branches any more."""
        for value in (self.array, self.operand):
            self.code.workspace.release(value)


def _scan(code, equation, values, jaxpr, length, reverse):
    consts, given, carried = scan_parts(equation, jaxpr)
    fixed = _hold(code, values[:consts])
    fed = _hold(code, [_in_memory(code, value) for value in values[given:]])
    cells = _cells(code, equation.outvars[:carried], values[consts:given])
    made = [_Stacked(code, variable.aval) for variable in equation.outvars[carried:]]

    def turn(t):
        t = plus(code, length - 1, times(code, t, -1)) if reverse else t
        rows = [settle(code, _row(code, value, t)) for value in fed]
        results = run(code, jaxpr, [*fixed, *(cell.get() for cell in cells), *rows])
        for stack, result in zip(made, results[carried:], strict=True):
            stack.put(t, result)
        overwrite(code, cells, results[:carried])

    if length:
        code.count(length, 1, turn)
    results = _kept(code, [*fixed, *fed], cells)
    for stack in made:
        code.workspace.release(stack.array)
    return [*results, *(stack.array for stack in made)]


def _in_memory(code, value):
    if is_key(value) or not value.size:
        return value
    value = as_large(code, value)
    return value if isinstance(value, Shared) else store(code, value)


def _stored_row(code, value: Stored, t) -> Stored:
    row = view(code, value, lambda array: array[0, ...])
    offset = plus(code, row.offset, times(code, t, value.strides[0]))
    return dataclasses.replace(row, offset=offset, zero=None)


def _row(code, value, t):
    """The row that belongs to a turn."""
    if isinstance(value, Stored):
        return _stored_row(code, value, t)
    if isinstance(value, Shared):
        return Computed(value.shape[1:], value.dtype, lambda at: value.at(code, (t, *at)))
    return numbers(value.shape[1:], [])


class _Stacked:
    """The outputs of all turns."""

    def __init__(self, code, aval):
        self.code, self.aval = code, aval
        self.array = new(code, aval.shape, aval.dtype)
        code.workspace.retain(self.array)

    def put(self, t, value):
        """The output of a turn."""
        if self.aval.size:
            fill(self.code, _stored_row(self.code, self.array, t), value)


LOOPS |= {"while": _while, "cond": _cond, "scan": _scan}
