"""Plans as loops over their entries: in blocks that are all alike, or run by run (`stretches`).

Factors with many products are made by supernodes instead, and what is short is no loop.
"""

import functools

import numpy as np

from limpet.lanes.arithmetic import add, multiply, subtract
from limpet.lanes.loops.deferred import Unwritten
from limpet.lanes.loops.memory import (
    UNROLLED,
    Stored,
    needed,
    new,
    plus,
    read,
    stored_or_known,
    times,
)
from limpet.lanes.loops.program import LOOPS, one
from limpet.lanes.loops.stretches import Column, divided, reads_result, steps
from limpet.lanes.loops.supernodes import write_supernodes
from limpet.lanes.matrices import DOUBLE, inverse, written_out
from limpet.lanes.plans import NONE, RESULT, SHORT, Plan

# Products and entries of what is written out where no blocks are alike, and products of an entry
# there, in the mean. A run of few products is little but table and branches: on all pairs of six
# particles, steps take 0.6 of the time; written out up to 3,000, they take no less, and a quarter
# more time to compile. A network of 25 beads has 7 products to an entry of its substitutions:
# written out, steps take 0.85 of the time, and 2.6 times as long to compile.
SHORTEST_LOOP = 500
FEW_PRODUCTS = 6


@one
def _plan(code, out, *values, plan: Plan):
    if plan.supernodes is not None:
        return write_supernodes(code, plan, plan.supernodes, values[plan.start])
    if reads_result(plan):
        return _written(code, plan, values, new(code, (plan.size,), DOUBLE))
    arrays = [stored_or_known(code, value) for value in values]

    def stored():
        return _written(code, plan, arrays, new(code, (plan.size,), DOUBLE))

    return Unwritten(
        (plan.size,),
        DOUBLE,
        _no_entry,
        needed(*arrays),
        several=_no_entry,
        stored=stored,
        into=functools.partial(_written, code, plan, arrays),
    )


def _no_entry(_):
    raise AssertionError("entries of a plan are written before they are read")


def _written(code, plan: Plan, values, result: Stored) -> Stored:
    arrays = [*(stored_or_known(code, value) for value in values), result]  # RESULT is the last
    for part in divided(plan):
        if isinstance(part, Plan) and _is_short(part):
            _entry_by_entry(code, part, arrays)
        elif isinstance(part, Plan):
            _run_by_run(code, part, arrays)
        else:
            _Blocks(code, plan, arrays, part).write()
    return result


class _Blocks:
    """A loop over blocks of entries.

    Within a block, an entry is read once. What the block before has just computed stays in a
    register: memory would take longer to hand it on than the arithmetic takes.
    """

    def __init__(self, code, plan: Plan, arrays, columns: list[Column]):
        self.code, self.plan, self.arrays, self.columns = code, plan, arrays, columns
        self.places = {column.place.tobytes(): j for j, column in enumerate(columns)}
        before = {column.place[:-1].tobytes(): j for j, column in enumerate(columns)}
        # of indices of the result that are places of the block before, those, and a variable
        self.carried = {
            indices.tobytes(): (before[indices[1:].tobytes()], indices, code.variable(DOUBLE))
            for column in columns
            for indices in self._of_result(column)
            if indices.tobytes() not in self.places and indices[1:].tobytes() in before
        }

    def _of_result(self, column):
        """The indices of the result that a column reads."""
        plan = self.plan
        yield from (term[0] for term in column.terms if plan.left == RESULT)
        yield from (term[1] for term in column.terms if plan.right == RESULT)
        if column.start is not None and plan.start == RESULT:
            yield column.start
        if column.scale is not None and plan.scale == RESULT:
            yield column.scale

    def write(self):
        """The loop."""
        code = self.code
        for _, indices, variable in self.carried.values():
            code.put(variable, self.arrays[RESULT].at(code, (int(indices[0]),)))
        code.count(len(self.columns[0].place), 1, self._block)

    def _block(self, i):
        code = self.code
        self.i, self.seen, self.made = i, {}, []
        for key, (_, _, variable) in self.carried.items():
            self.seen[RESULT, key] = code.get(variable, DOUBLE)
        for column in self.columns:
            number = self._number(column)
            self.arrays[RESULT].put(code, (self._index(column.place),), number)
            self.seen[RESULT, column.place.tobytes()] = number
            self.made.append(number)
        for j, _, variable in self.carried.values():
            code.put(variable, self.made[j])

    def _number(self, column):
        """An entry. What has just been computed comes last: the rest does not wait for it."""
        code, plan = self.code, self.plan
        number = np.float64(0) if column.start is None else self._at(plan.start, column.start)
        scale = None if column.scale is None else self._at(plan.scale, column.scale)
        late = [term for term in column.terms if any(self._are_late(term))]
        for a, b in (term for term in column.terms if not any(self._are_late(term))):
            number = self._with(number, self._at(plan.left, a), self._at(plan.right, b))
        scales_first = scale is not None and not self._is_late(plan.scale, column.scale)
        if scales_first and not any(all(self._are_late(term)) for term in late):
            # not fused with what follows, which would make that wait for two operations
            number = code(DOUBLE, "fmul", number, scale)
            for a, b in late:
                pair = [self._at(plan.left, a), self._at(plan.right, b)]
                known = 1 if self._are_late((a, b))[0] else 0
                pair[known] = multiply(code, DOUBLE, pair[known], scale)
                number = self._with(number, *pair)
        else:
            for a, b in late:
                number = self._with(number, self._at(plan.left, a), self._at(plan.right, b))
            number = number if scale is None else multiply(code, DOUBLE, number, scale)
        return inverse(code, number, plan.root) if column.inverse else number

    def _with(self, number, left, right):
        """The number with one more term."""
        combine = add if self.plan.sign > 0 else subtract
        return combine(self.code, DOUBLE, number, multiply(self.code, DOUBLE, left, right))

    def _are_late(self, term) -> tuple[bool, bool]:
        return self._is_late(self.plan.left, term[0]), self._is_late(self.plan.right, term[1])

    def _is_late(self, which, indices) -> bool:
        """Whether an entry was computed in this block, or the one before."""
        return which == RESULT and (which, indices.tobytes()) in self.seen

    def _at(self, which, indices):
        """An entry of an array."""
        key = which, indices.tobytes()
        number = self.seen.get(key)
        if number is None:
            number = self.arrays[which].at(self.code, (self._index(indices),))
            if which != RESULT:
                self.seen[key] = number
        return number

    def _index(self, indices):
        """The index of this block."""
        code, step = self.code, steps(indices)
        if step is None:
            return read(code, indices, self.i)
        return plus(code, times(code, self.i, step), int(indices[0]))


def _is_short(plan: Plan) -> bool:
    few = plan.terms <= FEW_PRODUCTS * plan.size
    return few and plan.terms + plan.size <= SHORTEST_LOOP


def _entry_by_entry(code, plan, arrays):
    seen = {}

    def at(which, k):
        if (which, k) not in seen:
            seen[which, k] = arrays[which].at(code, (int(k),))
        return seen[which, k]

    for place, number in written_out(code, plan, at):
        arrays[RESULT].put(code, (int(place),), number)
        seen[RESULT, place] = number


def _run_by_run(code, plan, arrays):
    total = _Total(code, plan, arrays)

    def entry(k):
        number = total.of(k)
        if plan.starts is not None:
            number = _start(code, plan, arrays, k, number)
        elif plan.sign < 0:
            number = subtract(code, DOUBLE, np.float64(0), number)
        if plan.scales is not None or plan.inverses is not None:
            number = _finish(code, plan, arrays, k, number)
        arrays[RESULT].put(code, (read(code, plan.places, k),), number)

    code.count(plan.size, 1, entry)


def _start(code, plan, arrays, k, total):
    """The number that the sum is added to, or taken from."""
    combine = add if plan.sign > 0 else subtract
    at, array = read(code, plan.starts, k), arrays[plan.start]
    if (plan.starts != NONE).all():
        return combine(code, DOUBLE, array.at(code, (at,)), total)
    place = code.variable(DOUBLE)
    code.put(place, np.float64(0))
    there = code.line(f"icmp ne i64 {at}, {NONE}")
    code.when(there, lambda: code.put(place, array.at(code, (at,))))
    return combine(code, DOUBLE, code.get(place, DOUBLE), total)


def _finish(code, plan, arrays, k, number):
    """The number times its scale, or inverted."""
    place = code.variable(DOUBLE)
    code.put(place, number)
    if plan.scales is not None:
        at = read(code, plan.scales, k)

        def scaled():
            scale = arrays[plan.scale].at(code, (at,))
            code.put(place, multiply(code, DOUBLE, number, scale))

        if (plan.scales != NONE).all():
            scaled()
        else:
            code.when(code.line(f"icmp ne i64 {at}, {NONE}"), scaled)
    if plan.inverses is not None:
        flag = code.line(f"icmp ne i64 {read(code, plan.inverses, k)}, 0")
        code.when(flag, lambda: code.put(place, inverse(code, number, plan.root)))
    return code.get(place, DOUBLE)


class _Total:
    """The sums of a plan. Terms go to several by turns, for one alone waits for each addition."""

    def __init__(self, code, plan, arrays):
        self.code, self.plan = code, plan
        self.left, self.right = arrays[plan.left], arrays[plan.right]
        lengths = set(plan.runs[:, 2].tolist())
        even = lengths.pop() if len(lengths) == 1 else 0
        self.terms = even if even <= SHORT else 0  # of every run, if these are written out
        self.runs = plan.runs[:, :2].copy() if self.terms else plan.runs
        self.sums = [code.variable(DOUBLE) for _ in range(UNROLLED)]

    def of(self, k):
        """The sum of an entry."""
        code = self.code
        if not len(self.plan.runs):
            return np.float64(0)
        for place in self.sums:
            code.put(place, np.float64(0))
        begin, end = (read(code, self.plan.ends, plus(code, k, i)) for i in range(2))
        if self.terms:
            self._by_turns(begin, end, self._short_run)
        else:
            code.between(begin, end, self._run)
        numbers = [code.get(place, DOUBLE) for place in self.sums]
        halves = [add(code, DOUBLE, *numbers[i : i + 2]) for i in range(0, UNROLLED, 2)]
        return functools.reduce(functools.partial(add, code, DOUBLE), halves)

    def _by_turns(self, begin, end, body):
        """The body for each index and one of the sums."""
        code = self.code
        length = code.line(f"sub i64 {end}, {begin}")
        whole = code.line(f"add i64 {begin}, {code.line(f'and i64 {length}, {-UNROLLED}')}")

        def several(t):
            for turn, place in enumerate(self.sums):
                body(place, plus(code, t, turn))

        code.between(begin, whole, several, UNROLLED)
        code.between(whole, end, lambda t: body(self.sums[0], t))

    def _short_run(self, place, r):
        a, b = self._first(r, 2)
        for t in range(self.terms):
            self._take(place, plus(self.code, a, t), plus(self.code, b, t))

    def _run(self, r):
        a, b, length = self._first(r, 3)
        body = functools.partial(self._of_run, a, b)
        self._by_turns(0, length, body)

    def _of_run(self, a, b, place, t):
        self._take(place, plus(self.code, a, t), plus(self.code, b, t))

    def _first(self, r, columns):
        """What the table has about a run."""
        first = times(self.code, r, columns)
        return [read(self.code, self.runs, plus(self.code, first, i)) for i in range(columns)]

    def _take(self, place, a, b):
        """One term more."""
        code = self.code
        product = multiply(code, DOUBLE, self.left.at(code, (a,)), self.right.at(code, (b,)))
        code.put(place, add(code, DOUBLE, code.get(place, DOUBLE), product))


LOOPS["limpet_plan"] = _plan
