"""Derivatives through a few numbers: constraints of many pairs of particles, and alike.

With all pairs of N particles no two unknowns are without a constraint in common, so that their
derivatives take as many colours as there are unknowns. But the constraint of a pair depends on one
difference alone, q = h(A x), where A is known: the derivatives of h take three colours, and a
derivative of q is a sum of few of them. A x is what the program of q computes as long as it is
linear in x.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax.extend.core import Literal
from jaxtyping import Array, Float

from limpet.sparse.colours import Colouring, cheaper_colouring, structure_of
from limpet.sparse.dependence import ENTRY_BY_ENTRY, MOVES, TooManyError, dependence

FEWEST_COLOURS = 12  # of q, for it to be looked at: three for each of four colours of particles
# Times as many colours that q must have: sums of derivatives cost something, too. A choice.
WORTH_IT = 4
MOST_TERMS = 4  # of a derivative of q: of pairs it has one
CALLS = {"jit", "pjit", "closed_call", "core_call"}
LINEAR = {*MOVES, *ENTRY_BY_ENTRY, "split", "reduce_sum", "cumsum", "dot_general"}
PRODUCTS = {"mul", "dot_general"}  # linear if one factor is known

Vector = Float[Array, " n"]


class Split:
    """A function q of a vector as two programs: q = bent(linear(x))."""

    def __init__(self, function: Callable, n: int) -> None:
        x = jax.ShapeDtypeStruct((n,), jnp.float64)
        closed = jax.make_jaxpr(function)(x)
        self.program = jax.make_jaxpr(lambda x: _run(closed, x))(x)
        self.is_straight, self.cut = self._classify()
        self.shapes = [variable.aval.shape for variable in self.cut]
        self.ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes], dtype=int)

    def _classify(self) -> tuple[dict[Any, bool], list[Any]]:
        """Of what depends on x, whether it is linear in x; and what then is used otherwise."""
        program = self.program.jaxpr
        straight: dict[Any, bool] = dict.fromkeys(program.invars, True)
        cut: dict[Any, None] = {}
        for equation in program.eqns:
            varying = [v for v in equation.invars if not isinstance(v, Literal) and v in straight]
            if not varying:
                continue
            is_linear = all(straight[v] for v in varying) and _is_linear(equation, varying)
            straight.update(dict.fromkeys(equation.outvars, is_linear))
            if not is_linear:
                cut.update((v, None) for v in varying if straight[v])
        ends = [v for v in program.outvars if not isinstance(v, Literal)]
        cut.update((v, None) for v in ends if straight.get(v))
        return straight, list(cut)

    def linear(self, x: Vector) -> Float[Array, " between"]:
        """The numbers between."""
        values = self._go({self.program.jaxpr.invars[0]: x}, bent=False)
        return jnp.concatenate([jnp.ravel(values[v]) for v in self.cut])

    def bent(self, y: Float[Array, " between"]) -> Float[Array, " m"]:
        """The function of these."""
        parts = np.split(np.arange(self.ends[-1]), self.ends[:-1])
        given = (y[part].reshape(shape) for part, shape in zip(parts, self.shapes, strict=True))
        values = self._go(dict(zip(self.cut, given, strict=True)), bent=True)
        return values[self.program.jaxpr.outvars[0]]

    def _go(self, values: dict[Any, Any], bent: bool) -> dict[Any, Any]:
        """All values that follow from these, and those that are known."""
        program = self.program.jaxpr
        values.update(zip(program.constvars, self.program.consts, strict=True))
        for equation in program.eqns:
            straight = self.is_straight.get(equation.outvars[0])
            if straight is None or straight is not bent:
                _evaluate(equation, values)
        return values


def _is_linear(equation: Any, varying: list[Any]) -> bool:
    name = equation.primitive.name
    if name == "div":
        return varying == [equation.invars[0]]
    return name in LINEAR and (name not in PRODUCTS or len(varying) == 1)


def _run(closed: Any, *arguments: Any) -> Any:
    """The result of a program, without calls inside calls."""
    values = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(closed.jaxpr.invars, arguments, strict=True))
    for equation in closed.jaxpr.eqns:
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        if equation.primitive.name in CALLS and hasattr(inner, "consts"):
            given = [_read(values, atom) for atom in equation.invars]
            results = _run(inner, *given)
            results = results if isinstance(results, list) else [results]
            values.update(zip(equation.outvars, results, strict=True))
        else:
            _evaluate(equation, values)
    results = [_read(values, atom) for atom in closed.jaxpr.outvars]
    return results[0] if len(results) == 1 else results


def _evaluate(equation: Any, values: dict[Any, Any]) -> None:
    bound = equation.primitive.get_bind_params(equation.params)
    # earlier JAXes tell functions apart from other parameters
    functions, parameters = bound if isinstance(bound, tuple) else ((), bound)
    given = [_read(values, atom) for atom in equation.invars]
    results = equation.primitive.bind(*functions, *given, **parameters)
    results = results if equation.primitive.multiple_results else [results]
    values.update(zip(equation.outvars, results, strict=True))


def _read(values: dict[Any, Any], atom: Any) -> Any:
    return atom.val if isinstance(atom, Literal) else values[atom]


_split = functools.lru_cache(maxsize=16)(Split)


@dataclasses.dataclass(frozen=True)
class SplitColouring(Colouring):
    """How entries of normals are computed as sums of entries of those of h."""

    bent: Colouring
    table: tuple[tuple[int, ...], ...]  # entries to add up for each; the one behind the last is 0
    factors: tuple[tuple[float, ...], ...]

    def values_and_entries(
        self, given: Callable, x: Vector, *data: Any
    ) -> tuple[Float[Array, " m"], Float[Array, " entries"]]:
        """The function of a point at x, and the entries of its derivatives."""
        if data:  # A may depend on them
            return super().values_and_entries(given, x, *data)
        split = _split(given, len(x))
        values, entries = self.bent.values_and_entries(split.bent, split.linear(x))
        table, factors = np.array(self.table), np.array(self.factors)
        if table.shape[1] == 1 and (table < len(entries)).all():
            return values, entries[table[:, 0]] * factors[:, 0]
        return values, jnp.sum(jnp.append(entries, 0.0)[table] * factors, axis=1)


def split_colouring(function: Callable, plain: Colouring) -> Colouring:
    """The same normals through few numbers if that pays, else as they are."""
    structure = plain.structure
    if plain.cost < FEWEST_COLOURS:
        return plain
    split = _split(function, structure.n)
    if not split.cut:
        return plain
    x = jax.ShapeDtypeStruct((structure.n,), jnp.float64)
    y = jax.eval_shape(split.linear, x)
    try:
        bent = cheaper_colouring(structure_of(dependence(split.bent, y)))
        if WORTH_IT * bent.cost > plain.cost:
            return plain
        below = cheaper_colouring(structure_of(dependence(split.linear, x)))
    except TooManyError:
        return plain
    slopes = jax.jit(lambda x: below.values_and_entries(split.linear, x)[1])(np.zeros(structure.n))
    s = below.structure
    A = sp.csr_matrix((np.asarray(slopes), (s.constraints, s.unknowns)), (s.m, s.n))
    found = _sums(bent.structure, A, structure)
    return plain if found is None else SplitColouring(structure, plain.reverse, bent, *found)


def _sums(bent: Any, A: sp.csr_matrix, structure: Any) -> Any:
    """Which entries of h's normals make those of q's, and their factors; None if too many do."""
    counts = np.diff(A.indptr)[bent.unknowns]
    entry = np.repeat(np.arange(bent.size), counts)
    within = np.arange(len(entry)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = A.indptr[bent.unknowns[entry]] + within
    key = bent.constraints[entry] * structure.n + A.indices[place]
    keys = structure.constraints * structure.n + structure.unknowns
    order = np.argsort(keys, kind="stable")
    at = order[np.searchsorted(keys[order], key)]
    rank = np.argsort(at, kind="stable")
    firsts = np.searchsorted(at[rank], np.arange(structure.size + 1))
    most = int(np.diff(firsts).max())
    if most > MOST_TERMS or not np.array_equal(keys[at], key):
        return None
    table, factors = np.full((structure.size, most), bent.size), np.zeros((structure.size, most))
    column = np.arange(len(rank)) - firsts[at[rank]]
    table[at[rank], column], factors[at[rank], column] = entry[rank], A.data[place[rank]]
    return tuple(map(tuple, table.tolist())), tuple(map(tuple, factors.tolist()))
