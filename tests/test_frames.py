"""Chains that move in other coordinates keep the law of x: frames, and bonds as coordinates.

A target in a frame is held against the same target written by hand in these coordinates: moves with
the same random numbers end at the same places, with the same acceptance. What those moves satisfy
is in test_identities.py.

The exact laws below have 206 p-values, each at a level of 5e-5 / 206 = 2.4e-7, so that all of them
together raise a false alarm in at most 5e-5 of all choices of seeds.
"""

import functools
import inspect
import types

import exact
import identities
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from models import CASES

import limpet
from limpet import derivatives
from limpet import frame as frames
from limpet.engine.xla import RUN_ONCE
from limpet.frame import Directions, Frame
from limpet.geometry.bonds import bonds_of
from limpet.geometry.linalg import pairing
from limpet.run import shape as shapes
from limpet.run.shape import unit_determinant
from limpet.sparse import balance as balances
from limpet.sparse import forest as forests

LEVEL = 5e-5 / 206
PAIRS = 64
EPS = 0.1


def some_frame(n, kind, seed=0):
    """A frame that is far from plain, with determinant one."""
    rng = np.random.default_rng([seed, n])
    scale = np.exp(rng.normal(size=n) * 0.4)
    if kind == "full":
        scale = np.diag(scale) + np.tril(rng.normal(size=(n, n)), -1) * 0.3
    along = None
    if kind == "directed":  # one direction becomes wider, one narrower, and one is not used
        vectors = np.linalg.qr(rng.normal(size=(n, 2)))[0]
        along = Directions(np.pad(vectors, [(0, 0), (0, 1)]), np.array([1.5, -0.4, 0.0]))
    return Frame(rng.normal(size=n), unit_determinant(scale, along), along)


def matrix_of(frame):
    """B of a frame."""
    B = frame.scale if frame.scale.ndim == 2 else np.diag(frame.scale)
    if frame.along is None:
        return B
    U, s = frame.along
    return B @ (np.eye(len(B)) + U @ np.diag(s) @ U.T)


def balance_by_hand(forest):
    """The matrix S of a forest with rings, as its definition has it."""
    width, n = len(forest.blocks[0]), sum(map(len, forest.blocks))
    squares = np.eye(n)
    for path in () if forest.balance is None else forest.balance.paths:
        Q = np.zeros((width, n))
        for block, sign in path:
            Q[np.arange(width), list(forest.blocks[block])] = sign
        squares += Q.T @ Q
    lengths, vectors = np.linalg.eigh(squares)
    S = vectors / np.sqrt(lengths) @ vectors.T
    return S / np.linalg.det(S) ** (1 / n)


def dense_normals(normals):
    """All entries of normals, in what chains move in."""
    structure = normals.structure
    dense = np.zeros((structure.n, structure.m))
    dense[structure.unknowns, structure.constraints] = normals.entries
    if not isinstance(structure, balances.BalancedStructure):
        return dense
    return np.stack([structure.turn(column) for column in dense.T], axis=1)


def by_hand(target, frame, forest=None):
    """The target in a frame, as somebody would write it who has never heard of frames."""
    n = len(frame.centre)
    B = matrix_of(frame)
    T = np.eye(n)
    if forest is not None:
        for block, parent in zip(forest.blocks, forest.parents, strict=True):
            while parent >= 0:
                T[list(block), list(forest.blocks[parent])] = 1.0
                parent = forest.parents[parent]
        B = B @ balance_by_hand(forest)
    assert np.linalg.slogdet(T @ B) == pytest.approx((1.0, 0.0), abs=1e-9)

    def written(function):
        return None if function is None else lambda z: function(T @ (frame.centre + B @ z))

    return limpet.Target(
        written(target.q),
        target.eps,
        log_density=written(target.log_density),
        inside=written(target.inside),
    )


KERNELS = {
    "lifted": (limpet.Lifted(steps=3, step_size=0.1), (identities.STAY,)),
    "surface": (limpet.SurfaceSampler(steps=2, step_size=0.2), (identities.STAY,)),
    "sas": (
        limpet.SAS(sigma_hrd=0.3, sigma_sft=0.05, slide_probability=0.1, on_probability=0.5),
        (identities.STAY, identities.CROSS),
    ),
}


def difference(framed, hand, kernel, choices, points, on, seed=0):
    """How far moves of the two targets end from each other, and how many were accepted.

    Sparse and dense normals have two ways to project, which differ where a landing is doubtful.
    """
    z = framed.coordinates(points)
    size, accepted, worst = (
        z.shape[1],
        0,
        np.abs(np.asarray(jax.vmap(framed.point)(jnp.asarray(z))) - points).max(),
    )
    for choice in choices:
        ends = []
        for target in (framed, hand):
            states = identities.on_states(kernel, target, z)._replace(on=np.full(len(z), on))
            if type(kernel) is limpet.Lifted:
                size = z.shape[1] + len(states.values)
            noise = np.random.default_rng(seed).normal(size=(size, len(z)))
            ends.append(identities.go(kernel, target, states, noise, choice))
        (ours, info), (theirs, expected) = ends
        same = info.outcome == expected.outcome
        accepted += np.mean(info.outcome == 0)
        assert np.mean(same) > 0.9
        worst = max(worst, np.abs(ours.x - theirs.x)[:, same].max())
        worst = max(worst, np.abs(info.acceptance - expected.acceptance)[same].max())
        worst = max(worst, np.abs(ours.log_density - theirs.log_density)[same].max())
    return worst, accepted / len(choices)


@functools.cache
def points_of(case):
    target, start, _ = CASES[case]
    return limpet.find_start(target, start, PAIRS, seed=1)


@pytest.mark.parametrize("kind", ["diagonal", "full", "directed"])
@pytest.mark.parametrize("name", KERNELS)
def test_moves_in_a_frame_are_those_of_the_target_written_in_it(name, kind):
    target, (kernel, choices) = CASES["ellipsoid-sphere"].target, KERNELS[name]
    points = points_of("ellipsoid-sphere")
    frame = some_frame(3, kind)
    framed = target.freeze(jnp.asarray(points[0])).in_frame(frame, None)
    hand = by_hand(target, frame)  # once: functions made anew are compiled anew
    for on in (False,) if name == "lifted" else (True,) if name == "surface" else (True, False):
        worst, accepted = difference(framed, hand, kernel, choices, points, on)
        assert worst < 1e-8
        assert accepted > 0.1


def necklace(beads, closed):
    """Beads in a row, the first held to the origin, with a bond more if closed, and a wall."""
    joined = np.stack([np.arange(beads - 1), np.arange(1, beads)])
    if closed:
        joined = np.concatenate([joined, [[0], [beads - 1]]], axis=1)
    k = np.arange(beads)
    radius = 0.5 / np.sin(np.pi / beads)
    circle = np.stack([np.cos(2 * np.pi * k / beads), np.sin(2 * np.pi * k / beads), 0 * k], axis=1)
    at = radius * circle - radius * circle[0] + [1.0, 0.0, 0.0]
    at += 0.1 * np.random.default_rng(0).normal(size=at.shape)
    lengths = np.sum((at[joined[1]] - at[joined[0]]) ** 2, axis=1)

    def q(x):
        at = x.reshape(-1, 3)
        bonds = jnp.sum((at[joined[1]] - at[joined[0]]) ** 2, axis=1) - lengths
        return jnp.append(bonds, at[0] @ at[0] - 1)

    def log_density(x):
        at = x.reshape(-1, 3)
        return jnp.sum((at[2:] - at[1:-1]) * (at[1:-1] - at[:-2])) - jnp.sum(at[:, 2] ** 2)

    target = limpet.Target(q, EPS, log_density=log_density, inside=lambda x: x[2::3] + 3.0)
    return target, at.ravel()


@functools.cache
def bonded(closed):
    target, start = necklace(10, closed)
    points = limpet.find_start(target, start, PAIRS, seed=2, jitter=0.1)
    frozen = target.freeze(jnp.asarray(points[0]))
    bonds = bonds_of(frozen, points, ())
    frame = some_frame(30, "diagonal")
    return target, frozen, bonds, frame, points


def difference_of_bonds(closed, name="lifted"):
    target, frozen, bonds, frame, points = bonded(closed)
    kernel, _ = KERNELS[name]
    hand = by_hand(target, frame, bonds.forest)
    framed = frozen.in_frame(frame, bonds)
    return difference(framed, hand, kernel, (identities.STAY,), points, name != "lifted")


@pytest.mark.parametrize(
    ("name", "closed"), [("lifted", True), pytest.param("sas", False, marks=pytest.mark.slow)]
)
def test_moves_in_bonds_are_those_of_the_target_written_in_them(name, closed):
    worst, accepted = difference_of_bonds(closed, name)
    assert worst < 1e-8
    assert accepted > 0.1


# Mutants: each is a change of the source of frames or forests, and must be seen.


def inconsistency(closed):
    """How far values, normals and points in bonds are from what they are by hand."""
    target, frozen, bonds, frame, points = bonded(closed)
    framed, hand = frozen.in_frame(frame, bonds), by_hand(target, frame, bonds.forest)
    z = framed.coordinates(points[0])
    values, normals = derivatives.values_and_normals(framed, jnp.asarray(z))
    dense = dense_normals(normals)
    expected = jax.jacfwd(hand.values)(jnp.asarray(z)).T
    return max(
        np.abs(framed.point(jnp.asarray(z)) - points[0]).max(),
        np.abs(values - hand.values(z)).max(),
        np.abs(dense - expected).max(),
    )


def test_values_and_normals_in_bonds_are_those_by_hand():
    assert inconsistency(closed=False) < 1e-9
    assert inconsistency(closed=True) < 1e-9


MUTANTS = {
    "no centre": (frames, "Frame", "return self.centre + self.scale * y", "return self.scale * y"),
    "upside down": (frames, "Frame", "/ self.scale\n", "* self.scale\n"),
    "entries in old units": (
        forests,
        "ForestColouring",
        " * frame.scale[self.structure.unknowns]",
        "",
    ),
    "roots move": (forests, "Forest", "padded[..., self._parent_unknowns]", "padded[..., :-1]"),
    "never left": (forests, "Forest", "signs[:, None]", "abs(signs)[:, None]"),
    "a ring the other way": (balances, "Balance", "squares**0.5 - 1, u", "squares**-0.5 - 1, u"),
    "a ring turned twice": (balances, "Balance", "-0.5 - 1, v[:n]", "-1.0 - 1, v[:n]"),
    "entries of another size": (forests, "ForestColouring", "balance.size * entries", "entries"),
    "a bead too late": (forests, "Forest", "u[walk]", "u[walk[::-1]]"),
}


def mutated(module, old, new, monkeypatch):
    """A module with one thing wrong, beside the right one."""
    source = inspect.getsource(module)
    assert old in source
    mutant = types.ModuleType(module.__name__)
    monkeypatch.setitem(__import__("sys").modules, module.__name__, mutant)
    exec(source.replace(old, new), mutant.__dict__)
    monkeypatch.undo()
    return mutant


DIRECTED_MUTANTS = {
    "longer, not shorter": (frames, "-self.extra / (1 + self.extra)", "self.extra"),
    "shorter by as much": (frames, "-self.extra / (1 + self.extra)", "-self.extra"),
    "determinant forgotten": (shapes, "np.sum(np.log1p(along.extra)) / len(axes)", "0.0"),
    "mean over directions": (
        shapes,
        "np.sum(np.log1p(along.extra)) / len(axes)",
        "np.log1p(along.extra).mean()",
    ),
}


def inconsistency_of_directions(frames, shapes):
    """How far a frame with directions is from its matrix, and that from determinant one."""
    frame = some_frame(5, "directed")
    along = frames.Directions(*frame.along)
    frame = frames.Frame(frame.centre, shapes.unit_determinant(frame.scale, along), along)
    B, z = matrix_of(frame), np.random.default_rng(0).normal(size=(4, 5))
    u = frame.centre + z @ B.T
    return max(
        np.abs(frame.stretch(z) - u).max(),
        np.abs(frame.shrink(u) - z).max(),
        np.abs(frame.shrink(jnp.asarray(u[0])) - z[0]).max(),
        np.abs(frame.widths - np.linalg.norm(B, axis=1)).max(),
        abs(np.linalg.slogdet(B)[1]),
    )


def test_directions_are_stretched_as_by_hand():
    assert inconsistency_of_directions(frames, shapes) < 1e-12


@pytest.mark.parametrize("name", DIRECTED_MUTANTS)
def test_mutants_of_directions_are_caught(name, monkeypatch):
    module, old, new = DIRECTED_MUTANTS[name]
    mutant = mutated(module, old, new, monkeypatch)
    both = (mutant, shapes) if module is frames else (frames, mutant)
    assert inconsistency_of_directions(*both) > 1e-3


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    module, kind, old, new = MUTANTS[name]
    mutant = mutated(module, old, new, monkeypatch)
    for key, value in vars(getattr(mutant, kind)).items():
        if isinstance(value, types.FunctionType):
            monkeypatch.setattr(getattr(module, kind), key, value)
    assert inconsistency(closed=True) > 1e-4


# Exact laws.


@pytest.mark.parametrize("kind", ["diagonal", "full", "directed"])
@pytest.mark.parametrize("number", [71, 3])
def test_the_exact_law_is_kept_in_a_frame(number, kind):
    problem = exact.random_problem(number)
    size = 0.25 / np.sqrt(problem.n - problem.m)
    kernel = limpet.Lifted(steps=3, step_size=size) if number == 71 else limpet.SAS(sigma_hrd=size)
    frame = some_frame(problem.n, kind, seed=number)
    framed = problem.target.freeze(jnp.zeros(problem.n)).in_frame(frame, None)
    rng, chains = np.random.default_rng(number), exact.WIDTH * 16
    on = rng.random(chains) >= problem.share_off(kernel)
    draws = [problem.draw(rng, chains, place) for place in (False, True)]
    x = np.where(on[:, None], draws[True], draws[False])
    path = exact.advance(kernel, framed, framed.coordinates(x), on, 8, seed=number)
    points = jax.jit(jax.vmap(jax.vmap(framed.point)))(path.x)
    path = path._replace(x=np.asarray(points))
    assert np.mean(np.any(path.x[0] != path.x[-1], axis=-1)) > 0.5
    p_values = exact.p_values(problem, kernel, path)
    assert not {name: p for name, p in p_values.items() if not p > LEVEL}


def chain_law(r2):
    """The distribution function of a squared bond length with the density of a chain of squares."""
    r = np.linspace(0.0, 2.0, 20_001)
    density = r**2 * np.exp(-((r**2 - 1) ** 2) / (2 * EPS**2))
    whole = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return np.interp(np.sqrt(r2), r, whole / whole[-1]), lambda u: np.interp(
        u, whole / whole[-1], r
    )


def test_a_chain_keeps_its_exact_law_in_bonds():
    beads, chains = 12, exact.WIDTH * 8

    def q(x):
        at = jnp.concatenate([jnp.zeros((1, 3)), x.reshape(-1, 3)])
        return jnp.sum(jnp.diff(at, axis=0) ** 2, axis=1) - 1

    rng = np.random.default_rng(5)
    directions = rng.normal(size=(chains, beads, 3))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    lengths = chain_law(np.ones(1))[1](rng.random((chains, beads, 1)))
    x = np.cumsum(lengths * directions, axis=1).reshape(chains, -1)
    target = limpet.Target(q, EPS).freeze(jnp.asarray(x[0]))
    bonds = bonds_of(target, x, ())
    assert bonds.structure.factor_size == beads  # the Gram matrix is diagonal
    framed = target.in_frame(some_frame(3 * beads, "diagonal"), bonds)
    kernel = limpet.Lifted(steps=4, step_size=0.15)
    off = np.zeros(chains, bool)
    path = exact.advance(kernel, framed, framed.coordinates(x), off, 6, seed=5)
    points = np.asarray(jax.jit(jax.vmap(framed.point))(path.x[-1]))
    assert np.mean(np.any(path.x[0] != path.x[-1], axis=-1)) > 0.5
    at = np.concatenate([np.zeros((chains, 1, 3)), points.reshape(chains, beads, 3)], axis=1)
    bond = np.diff(at, axis=1)
    r2 = np.sum(bond**2, axis=2)
    unit = bond / np.sqrt(r2)[..., None]
    columns = [*chain_law(r2)[0].T, *((1 + np.moveaxis(unit, 0, 2)) / 2).reshape(-1, chains)]
    columns += [*((1 + np.sum(unit[:, 1:] * unit[:, :-1], axis=2)) / 2).T]
    for column in columns:
        assert scipy.stats.kstest(column, "uniform").pvalue > LEVEL


# Forests.


@settings(max_examples=10)
@given(
    st.integers(10, 24),
    st.integers(0, 6),
    st.sampled_from([2, 3, 4]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_normals_through_a_forest_are_derivatives(beads, more, width, held, columns, seed):
    rng = np.random.default_rng(seed)
    tree = [(int(rng.integers(k)), k) for k in range(1, beads)]
    extra = [tuple(rng.choice(beads, 2, replace=False)) for _ in range(more)]
    begins, ends = rng.permutation(np.array([*tree, *extra])).T
    shape = (width, beads) if columns else (beads, width)

    def q(x):
        at = x.reshape(shape).T if columns else x.reshape(shape)
        bonds = jnp.sum((at[ends] - at[begins]) ** 2, axis=1)
        return jnp.append(bonds, at[3] @ at[3]) if held else bonds

    x = rng.normal(size=(2, beads * width))
    target = limpet.Target(q, 0.1).freeze(jnp.asarray(x[0]))
    bonds = bonds_of(target, x, (width,))
    if bonds is None:  # too full
        assert more
        return
    framed = target.in_frame(some_frame(beads * width, "diagonal", seed), bonds)
    z = framed.coordinates(x[0])

    def everything(z, x):
        _, normals = framed.values_and_normals(z)
        return framed.point(z), framed.coordinates(x), normals, jax.jacfwd(framed.values)(z)

    compute = jax.jit(everything, compiler_options=RUN_ONCE)
    there, back, normals, jacobian = compute(z, x[0])
    np.testing.assert_allclose(there, x[0], atol=1e-12)
    np.testing.assert_allclose(back, z, atol=1e-12)
    largest = np.abs(jacobian).max()
    np.testing.assert_allclose(dense_normals(normals), jacobian.T, atol=1e-11 * largest)


def algebra_of_a_ring(lifts):
    """How far the algebra of balanced normals is from that of full matrices."""
    _, frozen, bonds, frame, points = bonded(closed=True)
    bonds = bonds.balanced(bonds.rings)  # again, for mutants
    framed = frozen.in_frame(frame, bonds)
    z, other = framed.coordinates(points[:2])
    rng, (n, m) = np.random.default_rng(0), (41, 11) if lifts else (30, 11)
    v, b = rng.normal(size=n), rng.normal(size=m)

    @jax.jit
    def by_entries(z, other):
        G, H = (derivatives.values_and_normals(framed, at)[1] for at in (z, other))
        if lifts:
            G, H = G.lifted(jnp.asarray(-0.3)), H.lifted(jnp.asarray(-0.3))
        L, A = G.factor(), G.inner(H)
        half = L.solve_lower(b)
        parts = G.along(b), G.less_along(v, b), G.across(v), L.solve_upper(half), A.inverse()(b)
        numbers = jnp.sum(half**2), L.half_log_det(), A.log_abs_det(), pairing(G.dual(L), H)
        return G, H, (*parts, jnp.stack([*numbers, *G.lengths()]))

    G, H, found = by_entries(z, other)
    assert G.structure.whole.m == m + 3
    G, H = dense_normals(G), dense_normals(H)
    K, A = G.T @ G, G.T @ H
    inverse = np.linalg.inv(K)
    numbers = b @ inverse @ b, np.linalg.slogdet(K)[1] / 2, np.linalg.slogdet(A)[1]
    numbers += (np.sum(G @ inverse * H), *np.linalg.norm(G, axis=0))
    parts = G @ b, v - G @ b, G.T @ v, inverse @ b, np.linalg.solve(A, b), np.array(numbers)
    return max(
        np.abs(ours - theirs).max() / np.abs(theirs).max()
        for ours, theirs in zip(found, parts, strict=True)
    )


@pytest.mark.parametrize("lifts", [False, True])
def test_the_algebra_of_a_ring_is_that_of_full_matrices(lifts):
    assert algebra_of_a_ring(lifts) < 1e-10


RING_MUTANTS = {
    "columns of the wrong length": ("np.sqrt(1 - 1 / squares)", "np.sqrt(1 / squares)"),
    "too much below columns": ("self._spectrum[1] ** -0.5, len", "self._spectrum[1] ** -1.0, len"),
    "lengths as in differences": (
        "columns = self.balance.columns.T\n",
        "columns = 0 * self.balance.columns.T\n",
    ),
}


@pytest.mark.parametrize("name", RING_MUTANTS)
def test_mutants_of_a_ring_are_caught(name, monkeypatch):
    mutant = mutated(balances, *RING_MUTANTS[name], monkeypatch)
    for kind in (balances.Balance, balances.BalancedStructure):
        for key, value in vars(getattr(mutant, kind.__name__)).items():
            if isinstance(value, functools.cached_property) and key not in ("lifted", "digest"):
                monkeypatch.setattr(kind, key, value)
    assert algebra_of_a_ring(lifts=False) > 1e-3


def test_all_bonds_of_a_ring_are_as_fast():
    """The bond that closes it, too: that is what it is balanced for."""
    _, _, bonds, _, _ = bonded(closed=True)
    ((closing, path),) = bonds.rings
    assert len(path) == 9
    S = balance_by_hand(bonds.forest)
    u = S @ S.T
    speeds = [np.trace(u[np.ix_(block, block)]) for block in bonds.forest.blocks[1:]]
    Q = np.zeros((3, 30))
    for block, sign in path:
        Q[:, list(bonds.forest.blocks[block])] = sign * np.eye(3)
    assert [np.trace(Q @ u @ Q.T)] * 9 == pytest.approx(speeds)
    x = np.random.default_rng(0).normal(size=30)
    bond = Q @ bonds.forest.differences(x)
    at = x.reshape(-1, 3)
    assert np.abs(bond) == pytest.approx(np.abs(at[closing + 1] - at[closing]))


def test_rings_whose_last_bond_is_long_or_no_bond_are_left_alone():
    """The sum of all others is not kept small then, and would only be slow."""
    for q in (
        lambda x: jnp.sum(x[-3:] ** 2) - 81.0,
        lambda x: x[-3] - 3.0,
        lambda x: jnp.sum((x[-3:] - 5.0) ** 2) - 1.0,
    ):
        at = np.cumsum(np.eye(3)[np.arange(12) % 3], axis=0)

        def every(x, q=q):
            beads = jnp.concatenate([jnp.zeros((1, 3)), x.reshape(-1, 3)])
            return jnp.append(jnp.sum(jnp.diff(beads, axis=0) ** 2, axis=1) - 1, q(x))

        x = np.stack([at.ravel(), at[:, [1, 2, 0]].ravel()])
        bonds = bonds_of(limpet.Target(every, 0.1).freeze(jnp.asarray(x[0])), x, (3,))
        assert len(bonds.rings) == 1
        assert (bonds.forest.balance is not None) == (q(jnp.full(36, 5.0)) == -1.0)


def test_a_bond_of_the_forest_is_a_constraint_on_one_block():
    _, _, bonds, _, _ = bonded(closed=False)
    assert (np.bincount(bonds.structure.constraints) == 3).all()
    _, _, bonds, _, _ = bonded(closed=True)
    assert sorted(np.bincount(bonds.structure.constraints))[:-1] == [3] * 10


@pytest.mark.parametrize(
    "q",
    [
        lambda x: jnp.sum(x.reshape(-1, 3) ** 2, axis=1) - 1,  # no differences
        lambda x: (x[1:] * x[:-1])[:12],  # products
        lambda x: jnp.sum((x.reshape(-1, 3)[1:] - x.reshape(-1, 3)[:-1]) ** 2, axis=1)[:5],  # few
    ],
    ids=["spheres", "products", "few"],
)
def test_other_constraints_are_left_as_they_are(q):
    x = np.random.default_rng(0).normal(size=(2, 36))
    target = limpet.Target(q, 0.1).freeze(jnp.asarray(x[0]))
    assert bonds_of(target, x, (3,)) is None
