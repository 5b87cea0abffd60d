"""Few of many constraints that hold: rooms for these lead to where all constraints would."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sticky
from exact import mapped
from hypothesis import given, settings
from hypothesis import strategies as st

import limpet
from limpet.kernels import stratum
from limpet.kernels.noise import draw, generators
from limpet.kernels.states import Outcome
from limpet.layout import Layout

HEIGHTS = (-1.5, -0.4, 0.7, 2.0)  # of parallel surfaces, in each of three directions
KAPPA = 1.7


def sheets(x):
    """Bent surfaces, of which those of one direction never meet."""
    return (straight(x)[:, None] - jnp.array(HEIGHTS)).ravel()


def straight(x):
    """Coordinates in which they are planes; volumes are the same."""
    first, last = x[0] + 0.3 * jnp.sin(x[1]), x[2] + 0.2 * x[0] ** 2
    return jnp.array([first, x[1], last])


def log_density(x):
    """A Gaussian in these."""
    return -jnp.sum(straight(x) ** 2) / 2


def shares_of_sheets(eps, most):
    """How likely so many of them hold, of which at most one in a direction does."""
    heights, width = np.array(HEIGHTS), 1 + eps**2
    held = KAPPA * np.sum(np.exp(-(heights**2) / (2 * width)) / np.sqrt(width))
    loose = np.sqrt(2 * np.pi)
    ways = np.array([1, 3, 3, 1])[: most + 1]
    weights = ways * held ** np.arange(most + 1) * loose ** (3.0 - np.arange(most + 1))
    return weights / weights.sum()


def sheets_target(eps, most):
    """Twelve constraints, with so many rooms."""
    return limpet.Strata(sheets, eps, KAPPA, two_sided=True, at_once=most, log_density=log_density)


@pytest.mark.parametrize(("eps", "most", "measure"), [(0.05, 3, None), (1e-5, 2, "soft")])
def test_exact_shares(eps, most, measure):
    """Also where what may hold is cut off; at 4.5 standard errors."""
    target, kernel = sheets_target(eps, most), limpet.StrataSampler(measure)
    options = {"draws": 700, "seed": 4, "progress": False}
    with pytest.warns(limpet.LimpetWarning, match=f"at_once={most} allows"):
        draws = limpet.sample(target, [0.1, 0.2, 0.0], kernel=kernel, **options)
    held = draws.posterior["bonds"].values.sum(axis=-1)
    truth = shares_of_sheets(eps if measure is None else 0.0, most)
    assert held.max() == most
    for number, share in enumerate(truth):
        assert sticky.agrees(held == number, share)


@settings(max_examples=8)
@given(
    spheres=st.integers(4, 7),
    dimension=st.sampled_from([2, 3]),
    rooms=st.integers(7, 20),
    seed=st.integers(0, 2**20),
)
def test_rooms_lead_where_all_constraints_do(spheres, dimension, rooms, seed):
    """Rigid spheres: trajectories and changes of bonds, with the same random numbers."""
    row = np.array(sticky.zigzag(spheres))[:, :dimension]
    target = limpet.sticky_spheres(row, sticky.in_a_row(spheres), 2.0, at_once=rooms)
    labels = np.zeros(len(target.pairs))
    layout = Layout.of({"bonds": labels, "position": target.start["position"]})
    x = np.concatenate([labels, target.start["position"].ravel()])
    flat = target.on_vectors(layout).freeze(jnp.asarray(x))
    kernel = limpet.StrataSampler("soft", step_size=0.1, reach=0.6, tries=1).fitted(flat)

    def go(x, generator):
        def step(carry, _):
            state, generator = carry
            generator, noise = draw(generator, kernel.noise_size(state))
            state, info = kernel.move(flat, {}, noise, state)
            return (state, generator), (state.x, info.outcome)

        begin = kernel.start(flat, x), generator
        return jax.lax.scan(step, begin, None, 9)[1]

    many, ends = np.tile(x, (32, 1)), []
    for packed_from in (np.inf, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stratum, "PACKED_FROM", packed_from)
            ends.append(mapped(go)(many, generators(seed, 0, len(many))))
    (x, met), (x_of_rooms, met_of_rooms) = ends
    same = np.cumprod(met == met_of_rooms, axis=1).astype(bool)
    assert same.mean() > 0.99  # a coin may fall between two roundings
    assert np.mean(met == Outcome.ACCEPTED) > 0.3
    np.testing.assert_allclose(x[same], x_of_rooms[same], atol=1e-8)


def test_what_is_of_rooms_and_back():
    """Of every set of three constraints that may hold at one time."""
    target = sheets_target(0.1, 3)
    layout = Layout.of({"bonds": np.zeros(12), "x": np.zeros(3)})
    x = jnp.concatenate([jnp.zeros(12), jnp.array([0.3, -0.2, 0.5])])
    flat = target.on_vectors(layout).freeze(x)
    values, normals = flat.values_and_normals(x)
    dense = np.zeros((15, 12))
    dense[normals.structure.unknowns, normals.structure.constraints] = normals.entries
    for held in itertools.combinations(range(12), 3):
        labels = np.isin(np.arange(12), held) * 1.0
        surface = stratum.surface_of(flat, jnp.asarray(labels), True, 15, 3)
        assert isinstance(surface, stratum.Packed)
        found = surface.of_constraints(values)
        np.testing.assert_array_equal(found, values[np.array(held)])
        np.testing.assert_array_equal(surface.of_all(found), labels * values)
        np.testing.assert_array_equal(surface.of_normals(normals), dense[12:, list(held)])
        np.testing.assert_array_equal(surface.of_normals(jnp.asarray(dense)), dense[12:, held])


@pytest.mark.parametrize(
    ("at_once", "said"),
    [(0, "at_once=0"), (2.5, "at_once=2.5"), (2, "no room for another"), ("all", "at_once='all'")],
)
def test_numbers_that_cannot_be_are_refused(at_once, said):
    def draw_some():
        target = limpet.sticky_spheres(sticky.zigzag(3), sticky.in_a_row(3), at_once=at_once)
        limpet.sample(target, draws=2, chains=1, progress=False)

    with pytest.raises(limpet.InputError, match=said):
        draw_some()


def test_a_start_with_too_many_is_refused():
    triangle = [[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]]
    target = limpet.sticky_spheres(triangle, [(0, 1)], at_once=2, box=3.0)
    with pytest.raises(limpet.InputError, match="At the start 3 constraints hold, and at_once=2"):
        limpet.sample(target, draws=2, chains=1, progress=False)


@pytest.mark.parametrize(("spheres", "rooms"), [(2, None), (14, None), (17, None), (18, 51)])
def test_few_spheres_may_all_touch(spheres, rooms):
    """In crystals of 14 some have more than three contacts: rooms are for where they save time."""
    bonds = sticky.in_a_row(spheres - 1)
    assert limpet.sticky_spheres(sticky.zigzag(spheres), bonds, box=99.0).at_once == rooms


def test_many_spheres_without_naming_pairs():
    """A chain of 40 in space, of whose 780 pairs any may touch."""
    target = limpet.sticky_spheres(
        sticky.zigzag(40), sticky.in_a_row(40), 3.0, eps=1e-3, at_once=60
    )
    assert len(target.pairs) == 780 - 39
    with pytest.warns(limpet.LimpetWarning):  # so few draws say nothing of how chains mix
        draws = limpet.sample(target, draws=4, chains=9, warmup=150, seed=2, progress=False)
    assert draws.attrs["acceptance"]["hard"] > 0.2
    places = np.concatenate([np.zeros((9, 4, 1, 3)), draws.posterior["position"].values], axis=2)
    i, j = np.array(target.pairs).T
    gaps = np.linalg.norm(places[:, :, i] - places[:, :, j], axis=-1) - 1
    held = draws.posterior["bonds"].values == 1
    assert (gaps[~held] > 0).all()
    assert np.abs(gaps[held]).max(initial=0.0) < 0.01
