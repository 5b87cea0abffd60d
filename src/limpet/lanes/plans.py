"""Plans: sums of products by tables, of which all algebra of sparse matrices is made.

A plan computes the entries of an array one after the other, each as

    (start + sign * sum of left[a] * right[b]) * scale

where left, right, start and scale are entries of the arrays that it is given, or of the result as
far as that has been computed. Of some entries the reciprocal is kept, or that of the square root:
what would be divided by is multiplied with, which is faster. Products of sparse matrices, factors,
solutions and inverses differ in their tables only. Terms whose entries follow each other in both
arrays are one run, so that parts of a matrix that are full need no table of every term.
"""

import dataclasses
import functools
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from limpet.lanes.supernodes import Supernodes

RESULT = -1  # among the arrays: the result itself
NONE = -1  # among entries: there is none
SHORT = 4  # terms of runs that are written out, where all have one length
LONG = 8  # terms of runs, in the mean, that are worth a loop of their own


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """Tables with a row for each entry of the result, in the order in which they are computed."""

    places: np.ndarray  # which entry of the result it is
    ends: np.ndarray  # its runs are those from `ends[k]` to before `ends[k + 1]`
    runs: np.ndarray  # of each run, its first entries of left and right, and its length
    left: int = 0  # which array, or RESULT
    right: int = 1
    sign: int = 1
    start: int = 0
    starts: np.ndarray | None = None  # entries of that array, or NONE
    scale: int = 0
    scales: np.ndarray | None = None  # entries of that array, or NONE
    inverses: np.ndarray | None = None  # whether the reciprocal is kept
    root: bool = False  # or that of the root
    supernodes: Supernodes | None = None  # of a factor: a way to compute it that is faster

    @property
    def size(self) -> int:
        """How many entries the result has."""
        return len(self.places)

    @property
    def terms(self) -> int:
        """How many products it is made of."""
        return int(self.runs[:, 2].sum())

    @functools.cached_property
    def digest(self) -> bytes:
        """What it is: plans of one digest are the same."""
        digest = hashlib.sha256()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            table = _bytes(value)
            digest.update(len(table).to_bytes(8, "little") + table)
        return digest.digest()

    def __eq__(self, other) -> bool:
        return isinstance(other, Plan) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _bytes(value) -> bytes:
    if isinstance(value, Supernodes):
        return value.key
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()


def plan_of(
    places,
    pairs,
    *,
    left: int = 0,
    right: int = 1,
    sign: int = 1,
    start: int = 0,
    starts=None,
    scale: int = 0,
    scales=None,
    inverses=None,
    root: bool = False,
    supernodes: Supernodes | None = None,
) -> Plan:
    """A plan, given for each entry of the result the entries whose products it sums.

    `pairs` is a list of pairs of arrays, of left and right; neighbours among them become runs.
    """
    lengths = np.array([len(a) for a, _ in pairs], np.int64)
    a, b = (
        np.concatenate([np.asarray(pair[k], np.int64) for pair in pairs] or [np.zeros(0, np.int64)])
        for k in range(2)
    )
    owner = np.repeat(np.arange(len(pairs)), lengths)
    follows = (np.diff(a) == 1) & (np.diff(b) == 1) & (np.diff(owner) == 0)
    first = np.flatnonzero(np.concatenate([[True], ~follows])) if len(a) else np.zeros(0, np.int64)
    first, length = _of_one_length(first, np.diff(np.append(first, len(a))))
    ends = np.searchsorted(owner[first], np.arange(len(pairs) + 1))
    runs = np.stack([a[first], b[first], length], axis=-1)
    return Plan(
        _table(places),
        _table(ends),
        _table(runs),
        left=left,
        right=right,
        sign=sign,
        start=start,
        starts=None if starts is None else _table(starts),
        scale=scale,
        scales=None if scales is None else _table(scales),
        inverses=None if inverses is None else _table(inverses),
        root=root,
        supernodes=supernodes,
    )


def _of_one_length(first, length):
    """Runs of one length that is short, where those given can be parted into such."""
    common = int(np.gcd.reduce(length)) if len(length) else 0
    if not 0 < common <= SHORT or length.sum() > LONG * len(length):
        return first, length
    parts = length // common
    within = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    return np.repeat(first, parts) + common * within, np.full(parts.sum(), common)


def _table(values) -> np.ndarray:
    return np.asarray(values, np.int32)


def compute(plan: Plan, *arrays):
    """The result of a plan."""
    return PLAN.bind(*arrays, plan=plan)


def _by_jax(*arrays, plan: Plan):
    """The same in JAX's own operations: for XLA, which is slow at it."""
    lengths = plan.runs[:, 2]
    within = np.arange(plan.terms) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    a, b = (np.repeat(plan.runs[:, k], lengths) + within for k in range(2))
    ends = np.concatenate([[0], np.cumsum(lengths)])[plan.ends]
    a, b, ends, places = map(jnp.asarray, (a, b, ends, plan.places))

    def entry(k, result):
        def of(which, at):
            return (result if which == RESULT else arrays[which])[at]

        def term(t, total):
            return total + of(plan.left, a[t]) * of(plan.right, b[t])

        number = plan.sign * jax.lax.fori_loop(ends[k], ends[k + 1], term, 0.0)
        if plan.starts is not None:
            at = jnp.asarray(plan.starts)[k]
            number = number + jnp.where(at == NONE, 0.0, of(plan.start, at))
        if plan.scales is not None:
            at = jnp.asarray(plan.scales)[k]
            number = jnp.where(at == NONE, number, number * of(plan.scale, at))
        if plan.inverses is not None:
            inverse = 1 / (jnp.sqrt(number) if plan.root else number)
            number = jnp.where(jnp.asarray(plan.inverses)[k], inverse, number)
        return result.at[places[k]].set(number)

    if not plan.terms:
        a, b = jnp.zeros(1, int), jnp.zeros(1, int)
    return jax.lax.fori_loop(0, plan.size, entry, jnp.zeros(plan.size))


PLAN = Primitive("limpet_plan")
PLAN.def_impl(jax.jit(_by_jax, static_argnames="plan"))
PLAN.def_abstract_eval(lambda *avals, plan: ShapedArray((plan.size,), np.dtype(float)))
mlir.register_lowering(PLAN, mlir.lower_fun(_by_jax, multiple_results=False))


def _batch(arrays, axes, *, plan):
    return jax.vmap(functools.partial(_by_jax, plan=plan), axes)(*arrays), 0


batching.primitive_batchers[PLAN] = _batch
