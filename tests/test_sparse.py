"""Sparse constraints: who involves whom, the algebra against NumPy's, and the samplers on it.

Of the statistical tests, all p-values together raise a false alarm in at most 5e-5 of all choices
of seeds: each is held against `FALSE_ALARMS` divided by their number.
"""

import dataclasses
import functools
from typing import NamedTuple

import exact
import identities
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import CASES

import limpet
from limpet import lanes
from limpet.engine.xla import RUN_ONCE
from limpet.lanes.loops import plans, stretches
from limpet.lanes.plans import NONE, Plan
from limpet.sparse import colours
from limpet.sparse.colours import Colouring, cheaper_colouring, find_colouring
from limpet.sparse.dependence import dependence
from limpet.sparse.normals import SparseFactor, SparseNormals
from limpet.sparse.tables import Structure

FALSE_ALARMS = 5e-5
# One program for many operations. Without it JAX compiles each, once for all tables of one size.
by_xla = functools.partial(jax.jit, compiler_options=RUN_ONCE)


@pytest.fixture
def always(monkeypatch):
    """All constraints are taken for sparse, be they few or dense."""
    monkeypatch.setattr(colours, "FEWEST", 1)
    monkeypatch.setattr(colours, "DENSEST", 2.0)
    find_colouring.cache_clear()
    yield
    find_colouring.cache_clear()


def bonds(kind, beads, rng):
    """Pairs of beads, in any order."""
    every = {
        "chain": [(k, k + 1) for k in range(beads - 1)],
        "ring": [(k, (k + 1) % beads) for k in range(beads)],
        "star": [(0 if k <= beads // 3 else k - beads // 3, k) for k in range(1, beads)],
        "network": [(k, int(rng.integers(k))) for k in range(1, beads)]
        + [tuple(rng.choice(beads, 2, replace=False)) for _ in range(beads // 2)],
    }[kind]
    pairs = np.array(sorted({(min(p), max(p)) for p in every}))
    return rng.permutation(pairs)


def bond_lengths(pairs, dimension=3):
    i, j = pairs.T

    def q(x):
        position = x.reshape(-1, dimension)
        return (jnp.sum((position[i] - position[j]) ** 2, axis=1) - 1) / 2

    return q


# Which unknowns a constraint involves.

BRANCHES = np.array([1.0, 0.0, 2.0])


def swap(x):
    return jax.lax.cond(x[0] > 0, lambda: x[:2], lambda: x[1:3])


FUNCTIONS = {
    "differences": lambda x: jnp.diff(x) ** 2,
    "one by one": lambda x: jnp.stack([x[0] * x[1], jnp.sin(x[2])]),
    "constants with zeros": lambda x: jnp.array([[1.0, 0, 2], [0, 0, 1]]) @ x[:3] ** 2,
    "a sum": lambda x: jnp.array([jnp.sum(x[::2])]),
    "where": lambda x: jnp.where(x[1:] > 0, x[:-1], 0.0) * BRANCHES[0],
    "a branch": swap,
    "padded": lambda x: jnp.pad(x, 1)[2:] * x,
    "turned": lambda x: x[::-1] * x,
    "running": lambda x: jnp.cumsum(x**2),
    "running back": lambda x: jax.lax.cumsum(x, reverse=True),
    "at an index": lambda x: x[jnp.array([3, 3, 0])] ** 3,
    "at an index of the point": lambda x: jnp.stack([x[jnp.argmax(x)], x[0]]),
    "sorted": lambda x: jnp.sort(x)[:2],
    "scattered": lambda x: jnp.zeros(4).at[jnp.array([1, 1])].add(x[:2]),
    "a loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y * x[0], x[:2]),
    "vmap": lambda x: jax.vmap(lambda a: jnp.sum(a**2))(x[:4].reshape(2, 2)),
    "jit": jax.jit(lambda x: x[:2] * x[2]),
    "a table": lambda x: jnp.interp(x, jnp.linspace(-3, 3, 7), jnp.arange(7.0) ** 2) * x[0],
    "relu": lambda x: jax.nn.relu(x[:3]) + x[1:4],
    "split": lambda x: jnp.concatenate(jnp.split(x[:4], 2)[::-1]),
    "updated": lambda x: jax.lax.dynamic_update_slice(x**2, x[:2], (1,)),
    "nothing": lambda x: jnp.ones(2),
    "whole numbers": lambda x: jnp.round(x).astype(int) * 1.0 + x[0],
    "outer": lambda x: jnp.outer(x[:2], x[2:4]).ravel(),
}
ROUGH = {"at an index of the point", "sorted", "scattered", "a loop", "padded"}
EXACT = set(FUNCTIONS) - ROUGH


@pytest.mark.parametrize("name", FUNCTIONS)
def test_dependence_overlooks_nothing(name):
    function, rng = FUNCTIONS[name], np.random.default_rng(0)
    found = dependence(function, jnp.zeros(5)).toarray()
    points = [rng.normal(size=5) for _ in range(8)]
    slopes = by_xla(jax.jacobian(function))
    there = np.any([np.asarray(slopes(x)) != 0 for x in points], axis=0)
    assert found.shape == there.shape
    assert not (there & ~found).any()
    if name in EXACT:
        assert (found == there).all()


# Algebra.


def random_structure(rng, kind):
    """That of bonds, or of constraints that involve unknowns at random."""
    if kind == "random":
        m = int(rng.integers(1, 9))
        n = m + int(rng.integers(1, 9))
        involved = rng.random((m, n)) < 0.3
        involved[np.arange(m), rng.permutation(n)[:m]] = True  # so that the rank is full
        constraints, unknowns = np.nonzero(involved)
        order = rng.permutation(len(unknowns))
        return Structure(unknowns[order], constraints[order], n, m)
    pairs = bonds(kind, int(rng.integers(4, 14)), rng)
    involved = dependence(bond_lengths(pairs), jnp.zeros(3 * (pairs.max() + 1))).tocoo()
    return Structure(involved.col.astype(int), involved.row.astype(int), *involved.shape[::-1])


def dense(structure, entries):
    matrix = np.zeros((structure.n, structure.m))
    matrix[structure.unknowns, structure.constraints] = entries
    return matrix


def sparse_results(structure, g, h, v, b):
    """All that is computed of sparse normals."""
    G, H = SparseNormals(g, structure), SparseNormals(h, structure)
    L, A = G.factor(), G.inner(H)
    lifted = G.lifted(jnp.asarray(-0.3))
    return {
        "across": G.across(v),
        "along": G.along(b),
        "less along": G.less_along(v, b),
        "lengths": G.lengths(),
        "solve": L.solve_upper(L.solve_lower(b)),
        "square": jnp.sum(L.solve_lower(b) ** 2),
        "half log det": L.half_log_det(),
        "dual": G.dual(L).entries,
        "solve any": A.inverse()(b),
        "log det of any": A.log_abs_det(),
        "damped": G.factor(jnp.asarray(1.5)).half_log_det(),
        "lifted": lifted.factor().half_log_det(),
        "lowered": lifted.lowered().entries,
        "scaled": G.scaled(b).entries,
    }


def numpy_results(structure, g, h, v, b):
    """The same of dense matrices."""
    G, H = dense(structure, g), dense(structure, h)
    K, A = G.T @ G, G.T @ H
    inverse = np.linalg.inv(K)
    at = structure.unknowns, structure.constraints
    return {
        "across": G.T @ v,
        "along": G @ b,
        "less along": v - G @ b,
        "lengths": np.linalg.norm(G, axis=0),
        "solve": inverse @ b,
        "square": b @ inverse @ b,
        "half log det": np.linalg.slogdet(K)[1] / 2,
        "dual": (G @ inverse)[at],
        "solve any": np.linalg.solve(A, b),
        "log det of any": np.linalg.slogdet(A)[1],
        "damped": np.linalg.slogdet(K + 0.5 * np.diag(np.diag(K)))[1] / 2,
        "lifted": np.linalg.slogdet(K + 0.09 * np.eye(structure.m))[1] / 2,
        "lowered": g,
        "scaled": (G * b)[at],
    }


def inputs(rng, structure):
    g = rng.choice([-1.0, 1.0], structure.size) * rng.uniform(0.5, 2, structure.size)
    return (
        g,
        g * rng.uniform(0.9, 1.1, len(g)),
        rng.normal(size=structure.n),
        rng.normal(size=structure.m),
    )


def worst_error(found, expected, condition):
    """The largest relative error, in units of what rounding explains."""
    errors = [
        np.max(np.abs(found[name] - e)) / (1e-12 * condition * (1 + np.max(np.abs(e))))
        for name, e in expected.items()
    ]
    return np.max(errors)  # NaN if one of them is


def algebra_error(structure, rng, compile=False, way=lambda results: results):
    given = inputs(rng, structure)
    expected = numpy_results(structure, *given)
    G = dense(structure, given[0])
    condition = np.linalg.cond(G.T @ G) * np.linalg.cond(G.T @ dense(structure, given[1]))
    if not compile:
        results = way(functools.partial(sparse_results, structure))
        return worst_error(results(*map(jnp.asarray, given)), expected, condition)
    program = lanes.scan(
        lambda _, carry, given: (carry, sparse_results(structure, *given)),
        (),
        jnp.zeros(()),
        tuple(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in given),
        registers=compile,
    )
    rows = tuple(np.broadcast_to(part, (5, 1, *part.shape)) for part in given)
    found = jax.tree.map(lambda leaf: leaf[4, 0], program((), np.zeros(5), rows)[1])
    return worst_error(found, expected, condition)


KINDS = ("random", "chain", "ring", "star", "network")


@settings(max_examples=6)
@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_algebra_is_that_of_dense_matrices(seed, kind):
    rng = np.random.default_rng(seed)
    assert algebra_error(random_structure(rng, kind), rng, way=by_xla) < 1


@pytest.mark.parametrize(("registers", "shortest"), [(1, 0), (16, 0), (16, 100), (16, 500)])
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_algebra(kind, registers, shortest, monkeypatch):
    """All of it as loops, and what is short written out."""
    monkeypatch.setattr(plans, "SHORTEST_LOOP", shortest)
    rng = np.random.default_rng(7)
    assert algebra_error(random_structure(rng, kind), rng, compile=registers) < 1


@pytest.mark.parametrize(
    "kind", ["random", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])]
)
def test_compiled_algebra_without_memory(kind):
    """All numbers in registers: programs that take ten seconds to compile."""
    rng = np.random.default_rng(7)
    assert algebra_error(random_structure(rng, kind), rng, compile=10**6) < 1


@pytest.mark.parametrize("fewest", [2, 16])
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_compiled_algebra_in_blocks(kind, in_order, fewest, monkeypatch):
    """Bonds enough for loops over blocks of entries; with two to a loop, most loops are such."""
    monkeypatch.setattr(stretches, "FEWEST_BLOCKS", fewest)
    rng = np.random.default_rng(9)
    pairs = bonds(kind, 45, rng)
    if in_order:
        pairs = np.array(sorted(map(tuple, pairs)))
    involved = dependence(bond_lengths(pairs), jnp.zeros(3 * (pairs.max() + 1))).tocoo()
    structure = Structure(involved.col.astype(int), involved.row.astype(int), *involved.shape[::-1])
    blocks = [part for part in stretches.divided(structure.along) if not isinstance(part, Plan)]
    assert blocks
    assert algebra_error(structure, rng, compile=16) < 1


def test_a_star_has_long_runs():
    """The Gram matrix of bonds that share a bead is full: its rows are few runs, not many terms."""
    pairs = np.array([(0, k) for k in range(1, 60)])
    involved = dependence(bond_lengths(pairs), jnp.zeros(180)).tocoo()
    structure = Structure(involved.col.astype(int), involved.row.astype(int), 180, 59)
    assert structure.factor.terms > 10 * len(structure.factor.runs)
    rng = np.random.default_rng(3)
    assert algebra_error(structure, rng, compile=16) < 1


def test_cost_grows_with_the_number_of_bonds():
    sizes = []
    for beads in (100, 200):
        pairs = np.random.default_rng(0).permutation([(k, k + 1) for k in range(beads - 1)])
        involved = dependence(bond_lengths(pairs), jnp.zeros(3 * beads)).tocoo()
        structure = Structure(
            involved.col.astype(int), involved.row.astype(int), 3 * beads, len(pairs)
        )
        plans = structure.across, structure.along, structure.gram, structure.factor
        plans += structure.solve_lower, structure.solve_upper, structure.inverse, structure.dual
        sizes.append(sum(plan.terms + plan.size for plan in plans))
    assert sizes[1] < 2.1 * sizes[0]


# Every table of every plan matters.

PLANS = {
    "across": ("ends", "runs"),
    "along": ("ends", "runs"),
    "squares": ("runs",),
    "less_along": ("ends", "runs", "starts", "sign"),
    "gram": ("ends", "runs"),
    "inner": ("ends", "runs"),
    "factor": ("ends", "runs", "starts", "scales", "inverses", "sign"),
    "elimination_of_any": ("runs", "starts", "scales", "inverses", "sign"),
    "solve_lower": ("runs", "starts", "scales", "sign"),
    "solve_upper": ("places", "runs", "starts", "scales", "sign"),
    "solve_unit_lower": ("runs", "starts", "sign"),
    "solve_other_upper": ("places", "runs", "starts", "scales", "sign"),
    "inverse": ("places", "runs", "starts", "scales", "sign"),
    "dual": ("ends", "runs"),
}


def broken(plan: Plan, table: str) -> Plan:
    """The plan with one thing wrong: a sign, a term left out, an entry in another's place."""
    value = getattr(plan, table)
    if table == "sign":
        return dataclasses.replace(plan, sign=-value)
    value = value.copy()
    if table == "ends":
        k = int(np.argmax(np.diff(value)))
        value[k + 1 :] -= 1
    elif table == "runs":
        value[len(value) // 2, 1] = value[len(value) // 2, 1] - 1 if value.any() else 1
    elif table == "inverses":
        value[-1] = 0
    else:
        k = np.flatnonzero(value != NONE)[:2]
        value[k] = value[k[::-1]] if table == "places" else NONE
    return dataclasses.replace(plan, **{table: value})


@pytest.mark.parametrize(("name", "table"), [(n, t) for n, ts in PLANS.items() for t in ts])
def test_mutants_are_caught(name, table):
    rng = np.random.default_rng(11)
    structure = random_structure(rng, "ring")
    structure.__dict__[name] = broken(getattr(structure, name), table)
    structure.lifted.__dict__["factor"] = Structure.factor.func(structure.lifted)
    assert not algebra_error(structure, rng) < 1


# Colours.


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_coloured_derivatives(kind, reverse):
    rng = np.random.default_rng(5)
    pairs = bonds(kind, 17, rng)
    q, x = bond_lengths(pairs), jnp.asarray(rng.normal(size=3 * (pairs.max() + 1)))
    involved = dependence(q, x).tocoo()
    structure = Structure(involved.col.astype(int), involved.row.astype(int), len(x), len(pairs))
    coloured = functools.partial(Colouring(structure, reverse).values_and_entries, q)
    values, entries = by_xla(coloured)(x)
    np.testing.assert_allclose(values, q(x), rtol=1e-13)
    expected = np.asarray(by_xla(jax.jacobian(q))(x)).T
    np.testing.assert_allclose(dense(structure, entries), expected, atol=1e-13)


def test_few_colours_for_a_chain():
    pairs = bonds("chain", 200, np.random.default_rng(0))
    involved = dependence(bond_lengths(pairs), jnp.zeros(600)).tocoo()
    structure = Structure(involved.col.astype(int), involved.row.astype(int), 600, 199)
    assert cheaper_colouring(structure).colours.max() + 1 <= 6


def test_what_is_small_or_dense_is_not_sparse():
    assert find_colouring(bond_lengths(np.array([(0, 1), (1, 2)])), 9) is None
    A = np.random.default_rng(0).normal(size=(40, 60))
    assert find_colouring(lambda x: A @ x, 60) is None
    rng = np.random.default_rng(0)
    assert find_colouring(bond_lengths(bonds("chain", 60, rng)), 180) is not None


# Samplers.

PAIRS = 300  # of states, for each move


@pytest.mark.parametrize("case", ["beads", "ellipsoid-sphere"])
def test_identities(always, case):
    """Detailed balance, pair by pair, as in test_identities."""
    target, start, size = CASES[case]
    kernel = limpet.SAS(
        sigma_hrd=size,
        sigma_prp=0.13,
        sigma_tan=0.06,
        sigma_on=0.04,
        sigma_sft=0.06,
        off_probability=0.3,
        on_probability=0.5,
        slide_probability=0.3,
        tolerance=1e-14,
    )
    points = limpet.find_start(target, start, PAIRS, seed=1)
    target = target.freeze(jnp.asarray(points[0]))
    assert target.colouring is not None
    begin = {
        True: identities.on_states(kernel, target, points),
        False: identities.off_states(kernel, target, points, seed=2),
    }
    assert isinstance(begin[True].factor, SparseFactor)
    for k, move in enumerate(("hard", "off", "on", "slide")):
        states = begin[move in ("hard", "off")]
        z = np.random.default_rng(k).normal(size=states.x.shape)
        pairs = getattr(identities, move)(kernel, target, states, z)
        assert pairs.irreversible == pairs.outside == 0, move
        assert len(pairs.errors) > 0.85 * PAIRS, move
        assert pairs.errors.max() <= 1e-8, move
    kernel = limpet.Lifted(steps=3, step_size=size / 3, tolerance=1e-14)
    states = identities.on_states(kernel, target, np.asarray(begin[False].x).T)
    size = len(states.x) + len(states.values), states.x.shape[1]
    z = np.random.default_rng(30).normal(size=size)
    pairs = identities.lifted(kernel, target, states, z)
    assert pairs.irreversible == pairs.outside == 0
    assert pairs.errors.max() <= 1e-8


class Steps(NamedTuple):
    """Positions of beads from bonds, which are independent: a linear map of determinant one."""

    dimension: int

    def there(self, z):
        """Positions."""
        return z.reshape(len(z), -1, self.dimension).cumsum(axis=1).reshape(z.shape)

    def back(self, x):
        """Bonds."""
        position = x.reshape(*x.shape[:-1], -1, self.dimension)
        first = position[..., :1, :]
        return np.concatenate([first, np.diff(position, axis=-2)], axis=-2).reshape(x.shape)


def chain(beads, eps):
    """A chain that begins at the origin: all that is known about it, and the target."""
    problem = exact.Problem((3,) * beads, 0, eps, False, exact.EVERYWHERE, (Steps(3),))

    def q(x):
        position = jnp.concatenate([jnp.zeros((1, 3)), x.reshape(-1, 3)])
        return jnp.sum(jnp.diff(position, axis=0) ** 2, axis=1) - 1

    return problem, limpet.Target(q, eps)


KERNELS = {
    "lifted": lambda n: limpet.Lifted(steps=3, step_size=0.3 / np.sqrt(n)),
    "sas": lambda n: limpet.SAS(sigma_hrd=0.5 / np.sqrt(n), sigma_tan=1e-3, sigma_on=1e-3),
    "surface": lambda n: limpet.SurfaceSampler(step_size=0.5 / np.sqrt(n)),
}


# of every sampler a short chain; a long one of Lifted, which has all that the others have
FIRST = {("lifted", 1000), *((name, 33) for name in KERNELS)}


@pytest.mark.parametrize(
    ("name", "beads"),
    [
        pytest.param(name, beads, marks=[pytest.mark.slow] * ((name, beads) not in FIRST))
        for name in KERNELS
        for beads in (33, 100, 1000)
    ],
)
def test_chains_keep_their_law(name, beads):
    problem, target = chain(beads, 0.05)
    kernel, chains, steps = KERNELS[name](problem.n), 48, 6
    rng = np.random.default_rng(beads)
    on = rng.random(chains) >= problem.share_off(kernel)
    draws = [problem.draw(rng, chains, place) for place in (False, True)]
    x = np.where(on[:, None], draws[True], draws[False])
    target = target.freeze(jnp.asarray(x[0]))
    assert target.colouring is not None
    path = exact.advance(kernel, target, x, on, steps, seed=beads)
    moved = np.any(path.x[-1] != path.x[0], axis=1)
    assert moved.mean() > 0.5
    for place in (False, True):
        there = path.on[-1] == place
        if there.sum() > 8:
            # all bonds of all chains have one law, and are independent
            u = problem.uniforms(path.x[-1][there], place)
            p = exact.uniformity("", u.reshape(-1, 2 if place else 3)).values()
            assert min(p) > FALSE_ALARMS / (len(KERNELS) * 3 * 2 * len(p))
