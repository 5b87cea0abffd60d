"""Where chains start: of sane density, on every piece of the surface, or where they are told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import limpet
from limpet.geometry.pieces import pieces, spread_over
from limpet.geometry.start import ABSURD_DEPTH, SMALLEST_RANK, _smallest_singular_value
from limpet.paper import two_spheres

pytestmark = pytest.mark.optimized  # by XLA, as users' searches are where problems are small

BEADS = 12
PAIRS = np.array([(i, j) for i in range(BEADS) for j in range(i + 2, BEADS) if j - i < BEADS - 1])
ANGLES = 2 * np.pi * np.arange(BEADS) / BEADS
ROUND = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1).ravel() / (2 * np.sin(np.pi / BEADS))


def ring(x):
    """A ring of beads in the plane, with bonds of length 1."""
    position = x.reshape(BEADS, 2)
    return jnp.sum((position - jnp.roll(position, 1, axis=0)) ** 2, axis=1) - 1


def repulsion(x):
    """Beads that are not neighbours repel each other at short distances, steeply."""
    first, second = PAIRS.T
    position = x.reshape(BEADS, 2)
    r6 = 0.9**6 / jnp.sum((position[first] - position[second]) ** 2, axis=1) ** 3
    return -jnp.sum(jnp.where(r6 > 0.5, 4 * (r6**2 - r6) + 1, 0.0))


def two_pieces(x):
    """Four-dimensional, at x1 = 2 and at -2: 35 % of the law is where x1 > 0."""
    return jnp.array([(x[0] ** 2 - 4) ** 2 + 0.1 * x[0] + jnp.sum(x[1:] ** 2) - 1]) / 2


def bonds(x):
    return jnp.array([jnp.linalg.norm(x[:3]), jnp.linalg.norm(x[3:] - x[:3])]) - 1


def tube(x):
    return jnp.array([(jnp.hypot(x[0], x[1]) - 1) ** 2 + x[2] ** 2 - 0.25])


RING = limpet.Target(ring, 0.05, log_density=repulsion)
PIECES, ONE_SIDE = limpet.Target(two_pieces, 0.05), [2.0, 1.0, 0.0, 0.0, 0.0]
SPHERE, NORTH = limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.1), [0.0, 0.0, 1.0]
CONNECTED = {
    "circle": (limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.1), [1.0, 0.0]),
    "two spheres": (limpet.Target(two_spheres, 0.1), [1.0, 0.0, 0.0]),
    "torus": (limpet.Target(tube, 0.1), [1.4, 0.1, 0.1]),
    "trimer": (limpet.Target(bonds, 0.1), [1.0, 0.2, 0.0, 1.5, 1.0, 0.3]),
}


# of sane density


@pytest.mark.parametrize("count", [5, 16, 130])
def test_no_start_is_of_absurd_density(count):
    starts = np.array(limpet.find_start(RING, ROUND, count, seed=count))
    level = np.array(jax.vmap(repulsion)(jnp.asarray(starts)))
    assert level.min() > level.max() - ABSURD_DEPTH * len(ROUND)
    np.testing.assert_allclose(starts[0], ROUND, atol=1e-9)
    assert len(np.unique(starts, axis=0)) == count
    np.testing.assert_allclose(jax.vmap(ring)(jnp.asarray(starts)), 0, atol=1e-9)
    np.testing.assert_array_equal(starts, limpet.find_start(RING, ROUND, count, seed=count))


def test_several_starts_are_taken_as_they_are():
    folded = ROUND.reshape(BEADS, 2) * [1, 0.1]
    (folded,) = limpet.find_start(limpet.Target(ring, 0.05), folded.ravel())
    assert float(repulsion(jnp.asarray(folded))) < -1e6
    starts = limpet.find_start(RING, [ROUND, folded], 6)
    np.testing.assert_allclose(starts[:2], [ROUND, folded], atol=1e-9)
    level = np.array(jax.vmap(repulsion)(jnp.asarray(starts)))
    assert level[2::2].min() > -ABSURD_DEPTH * len(ROUND)  # from the round one, perturbed


# on every piece


@pytest.mark.parametrize("chains", [4, 16, 32])
def test_few_chains_start_on_both_pieces(chains):
    for seed in range(9):
        starts = np.array(limpet.find_start(PIECES, ONE_SIDE, chains, seed=seed))
        assert 0 < np.mean(starts[:, 0] < 0) <= 0.5
        np.testing.assert_allclose(jax.vmap(two_pieces)(jnp.asarray(starts)), 0, atol=1e-9)


def test_few_chains_on_two_pieces_disagree():
    """Which unknown has the largest R-hat depends on the processor; x[0] tells the pieces apart."""
    with pytest.warns(limpet.MixingWarning, match=r"R-hat of x\[\d\] is .*the chains disagree"):
        draws = limpet.sample(PIECES, ONE_SIDE, draws=100, chains=4, progress=False)
    assert limpet.summary(draws).variables["r_hat"].sel(variable="x[0]") > 2


@pytest.mark.parametrize(("target", "start"), CONNECTED.values(), ids=CONNECTED)
def test_on_one_piece_few_chains_start_where_many_do(target, start):
    for seed in range(10):
        many = limpet.find_start(target, start, 128, seed=seed)
        np.testing.assert_array_equal(limpet.find_start(target, start, 4, seed=seed), many[:4])


def cloud(seed, dimension, count):
    """Points on a sphere of this dimension."""
    x = np.random.default_rng(seed).normal(size=(count, dimension + 1))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@given(st.integers(0, 10**6), st.integers(1, 16), st.integers(4, 60), st.integers(4, 60))
@settings(max_examples=100)
def test_pieces_that_are_far_apart_are_told_apart(seed, dimension, first, second):
    far = 10 * 16 ** (1 / dimension) * np.eye(dimension + 1)[0]  # beyond any gap within a sphere
    x = np.concatenate([cloud(seed, dimension, first), far + cloud(seed + 1, dimension, second)])
    order = np.random.default_rng(seed).permutation(len(x))
    piece, is_far = pieces(x[order], dimension), order >= first
    assert not set(piece[is_far]) & set(piece[~is_far])
    count = min(first, second) + 1
    rows = spread_over(piece, count)
    assert rows[0] == 0
    assert len(set(rows)) == count
    assert set(piece[rows]) == set(piece)


@pytest.mark.parametrize("dimension", [1, 2, 4, 16])
def test_a_sphere_is_one_piece(dimension):
    # in one dimension a gap is taken for the end of a piece once in some thousand circles
    alarms = [len(set(pieces(cloud(seed, dimension, 128), dimension))) > 1 for seed in range(50)]
    assert sum(alarms) == 0


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_few_points_are_one_piece(count):
    assert set(pieces(np.arange(float(count))[:, None] ** 3, 1)) == {0}
    assert set(pieces(np.zeros((count, 2)), 1)) == {0}


# where they are told


@pytest.mark.parametrize("chains", [1, 3, 5, 129])
def test_without_jitter_all_chains_begin_at_the_start(chains):
    walk = limpet.RandomWalk(step_size=1e-9)
    options = dict(draws=1, warmup=0, chains=chains, kernel=walk, progress=False)
    x = limpet.sample(SPHERE, NORTH, jitter=0, **options).posterior["x"].values
    np.testing.assert_allclose(x[:, 0], np.tile(NORTH, (chains, 1)), atol=1e-7)


def test_jitter_is_how_far_points_are_from_the_guess():
    starts = [limpet.find_start(SPHERE, NORTH, 200, jitter=size) for size in (0, 1e-3, 1e-2, 1)]
    spread = [np.std(points, axis=0).max() for points in starts]
    assert spread[0] == 0
    assert 3e-4 < spread[1] < 3e-3 < spread[2] < 3e-2 < 0.3 < spread[3]
    np.testing.assert_array_equal(starts[3], limpet.find_start(SPHERE, NORTH, 200))


def test_without_jitter_guesses_take_turns():
    guesses = np.eye(3)[:2]
    points = limpet.find_start(SPHERE, guesses, 5, jitter=0)
    np.testing.assert_allclose(points, guesses[[0, 1, 0, 1, 0]], atol=1e-12)


def test_without_jitter_a_search_that_fails_is_not_repeated():
    with pytest.raises(limpet.StartError, match=r"^No start: 3 of 3"):
        limpet.find_start(limpet.Target(lambda x: jnp.array([x @ x + 1]), 0.1), NORTH, 3, jitter=0)


# and if that was no good


def steep(x):
    return -1e3 * x[0] ** 2


def trap(x):
    """Low at 5, and lower still around it: no chain leaves."""
    around = jnp.where(jnp.abs(x[0] - 5) < 1e-9, -1e5, -1e9)
    return jnp.where(jnp.abs(x[0] - 5) < 1, around, -(x[0] ** 2) / 2)


STARTS = [[0.0, 0.0], [5.0, 0.0], [0.01, 0.0], [0.02, 0.0]]


def test_chains_where_the_density_is_absurd_are_named():
    target = limpet.Target(lambda x: x[1:], 0.1, log_density=steep)
    message = r"^Chains 1 hardly left .*is -2\.5e\+04 or less, .* others about -.*smaller jitter"
    walk = limpet.RandomWalk(step_size=1e-6)
    with pytest.warns(limpet.LimpetWarning, match=message):
        limpet.sample(target, STARTS, draws=100, warmup=0, kernel=walk, progress=False)


def test_chains_that_are_trapped_where_the_density_is_absurd_are_named():
    target = limpet.Target(lambda x: x[1:], 0.1, log_density=trap)
    options = dict(draws=100, warmup=0, progress=False)
    with pytest.warns(limpet.LimpetWarning, match=r"^Chains 1 never left .*is -1e\+05 or less"):
        limpet.sample(target, STARTS, kernel=limpet.RandomWalk(step_size=0.1), **options)
    with pytest.raises(limpet.StuckError, match=r"^Chains 1 made .*is -1e\+05 or less"):
        limpet.sample(target, STARTS, kernel=limpet.SAS(sigma_hrd=0.1), **options)


@pytest.mark.parametrize("m", [1, 2, 5, 8, 9, 20])
def test_the_rank_is_that_of_singular_values(m):
    """Near enough to tell what is lost from what is not: a factor of two."""
    rng = np.random.default_rng(m)
    for size in (1.0, 1e-2, 1e-4, 1e-7, 0.0):
        left, right = (np.linalg.qr(rng.normal(size=(k, m)))[0] for k in (m + 3, m))
        normals = left * np.append(np.ones(m - 1), size) @ right.T
        found = float(_smallest_singular_value(jnp.asarray(normals)))
        assert size / 1.01 <= found <= 2 * size or max(size, found) < SMALLEST_RANK / 10


@pytest.mark.parametrize("m", [2, 12])
def test_a_constraint_given_twice_has_no_rank(m):
    normals = np.random.default_rng(m).normal(size=(m + 4, m))
    normals[:, 1] = normals[:, 0]
    assert _smallest_singular_value(jnp.asarray(normals)) < SMALLEST_RANK / 10


def test_a_point_of_many_numbers():
    target = limpet.Target(lambda x: jnp.array([jnp.sum(x**2) - 1]), eps=0.01)
    found = limpet.find_start(target, np.eye(10_000)[0], count=3, seed=1)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-12)


# some searches fail


@pytest.mark.parametrize("count", [3, 16, 130])
def test_chains_whose_search_failed_begin_where_others_do(count):
    inside = limpet.Target(
        lambda x: jnp.array([x @ x - 1]), 0.1, inside=lambda x: 1.2 - x[:1] - x[1]
    )
    guess = [0.5, 0.5]  # the nearest point of the circle is outside
    with pytest.warns(limpet.LimpetWarning, match=rf"\d+ of {count} searches .* outside the walls"):
        starts = limpet.find_start(inside, guess, count, seed=3)
    assert starts.shape == (count, 2)
    assert np.all(starts.sum(axis=1) <= 1.2)
    assert np.allclose(np.linalg.norm(starts, axis=1), 1)
    assert len(np.unique(starts, axis=0)) > count // 16  # of three, all but one may fail
    with pytest.raises(limpet.StartError, match="outside the walls"):
        limpet.find_start(inside, guess, count, jitter=0)
    with pytest.raises(limpet.StartError, match=r"1 of 1 searches .* outside the walls"):
        limpet.find_start(inside, guess, 1, jitter=0)
