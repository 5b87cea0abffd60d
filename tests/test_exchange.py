"""Ladders of eps: identities, invariance, mutants, truths, stores, and what is refused.

Invariance: chains start from exact draws of the law of every rung, and make some steps; then the
points of every rung are taken back to independent uniforms. There are 33 p-values, each at a level
of 1e-5 / 33, so that all of them together raise a false alarm in at most 1e-5 of all choices of
seeds. Truths are compared at 4 standard errors, 8 times: a false alarm in 5e-4 of all choices.
"""

import dataclasses

import exact
import exchange_identities as identities
import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest
import xarray as xr

import limpet
from limpet.kernels import rungs
from limpet.kernels.noise import draw, generators
from limpet.kernels.states import Outcome
from limpet.report.ladder import sit_in_heaps

PAIRS = 40
LEVEL = 1e-5 / 33
# P(x1 > 0) by quadrature
PIECES = {0.1: 0.356156, 0.01: 0.353175, 1e-6: 0.353145}
STARTS = [[2.0, 0.0, 0.0, 0.0, 0.9], [-2.0, 0.0, 0.0, 0.0, 1.0]]


def two_pieces(x):
    """Two ellipsoids, nearly, of unequal weight."""
    return jnp.array([((x[0] ** 2 - 4) ** 2 + 0.1 * x[0] + jnp.sum(x[1:] ** 2) - 1) / 2])


def two_circles(x):
    """Distances from the nearer of two circles, of radius 1 and 1/4: so much they weigh."""
    large, small = x - jnp.array([1.3, 0.0]), x + jnp.array([1.3, 0.0])
    return jnp.array([jnp.minimum(jnp.sqrt(large @ large) - 1.0, jnp.sqrt(small @ small) - 0.25)])


def share_of(flags):
    """The share of chains' draws with a flag, and its standard error."""
    means = flags.mean(axis=1)
    return means.mean(), means.std(ddof=1) / np.sqrt(len(means))


def test_exchanges_are_in_detailed_balance():
    found = identities.compare("bent", rungs.exchange, PAIRS, seed=1)
    assert found.possible.mean() > 0.7
    assert found.outside == found.irreversible == 0
    assert len(found.errors) > 0.8 * found.possible.sum()
    assert np.abs(found.errors).max() < 1e-8


def test_swaps_are_in_detailed_balance():
    swap = identities.swap_by(rungs.swap_log_ratio)
    found = identities.compare("bent", swap, PAIRS, seed=2)
    assert found.possible.all()
    assert found.irreversible == 0
    assert np.abs(found.errors).max() < 1e-8


def test_what_does_not_lead_back_is_refused():
    found = identities.compare("pieces", rungs.exchange, 3 * PAIRS, seed=3)
    assert found.reversed.sum() > 2
    assert found.irreversible == 0
    assert np.median(np.abs(found.errors)) < 1e-8


@pytest.mark.slow  # each is compiled anew
@pytest.mark.parametrize("name", mutants.EXCHANGE_MUTANTS)
def test_mutants_of_exchanges_are_caught(name):
    case, mutant = mutants.EXCHANGE_MUTANTS[name]
    built = mutants.build(mutant)
    swaps = case == "swaps"
    exchange = identities.swap_by(built["swap_log_ratio"]) if swaps else built["exchange"]
    found = identities.compare("bent" if swaps else case, exchange, 3 * PAIRS, 3)
    fine = found.possible.mean() > 0.3 and not found.outside and not found.irreversible
    assert not fine or np.median(np.abs(found.errors)) > 1e-6


@pytest.mark.slow
def test_a_copy_without_a_change_is_not_caught():
    exchange = mutants.build(mutants.Mutant("kernels.rungs", ()))["exchange"]
    found = identities.compare("bent", exchange, 3 * PAIRS, 3)
    assert found.possible.mean() > 0.3
    assert not found.outside
    assert not found.irreversible
    assert np.median(np.abs(found.errors)) < 1e-8


# Invariance.


def steps_on_ladder(kernel, problems, chains, steps, seed):
    """The points of all rungs after some steps from exact draws, and how exchanges went."""
    rng = np.random.default_rng(seed)
    points = np.stack([each.draw(rng, chains, on=False) for each in problems], axis=1)
    target = problems[-1].target.freeze(jnp.asarray(points[0, -1]))

    def go(points, generator):
        def step(carry, _):
            state, generator = carry
            generator, noise = draw(generator, kernel.noise_size(state))
            state, info = kernel.move(target, {}, noise, state)
            return (state, generator), info

        state = kernel.start(target, points[-1])
        state = state._replace(above=state.above._replace(x=points[:-1]))
        (state, _), info = jax.lax.scan(step, (state, generator), None, steps)
        return jnp.concatenate([state.above.x, state.x[None]]), info

    ends, info = jax.jit(jax.vmap(go))(points, generators(seed, 0, chains))
    return points, np.asarray(ends), info


def ladder_p_values(kind, chains=2_000):
    """P-values of a run from exact draws, with this kind of kernel; and that it moved."""
    bottom = exact.bent_problem(np.random.default_rng(7), (3, 2), 1, eps=(0.1, 0.2), half=True)
    eps = [(0.5, 0.6), (0.25, 0.4), bottom.eps]
    problems = [dataclasses.replace(bottom, eps=each) for each in eps]
    kernel = kind(eps, steps=2, step_size=0.25)
    points, ends, info = steps_on_ladder(kernel, problems, chains, 6, seed=8)
    found = {}
    for k, problem in enumerate(problems):
        found |= exact.uniformity(f"rung {k}", problem.uniforms(ends[:, k], on=False))
    return found, points, ends, info


def test_every_rung_keeps_its_law():
    found, points, ends, info = ladder_p_values(limpet.Exchange)
    assert len(found) == 33
    assert min(found.values()) > LEVEL, found
    assert np.mean(np.any(ends != points, axis=2)) > 0.95
    accepted = np.mean(np.asarray(info.exchanges.outcome) == Outcome.ACCEPTED, axis=(0, 1))
    assert accepted.min() > 0.3
    assert np.mean(np.asarray(info.exchanges.round_trip)) > 0.01


@pytest.mark.slow  # each is compiled anew
@pytest.mark.parametrize("name", mutants.LADDER_MUTANTS)
def test_mutants_of_ladders_are_caught(name):
    kind = mutants.build(mutants.LADDER_MUTANTS[name])["Exchange"]
    found, *_ = ladder_p_values(kind, chains=40_000)  # one coin for two shows in so many only
    assert min(found.values()) < LEVEL


# Runs.

CIRCLES = {"start": [[0.3, 0.0], [-1.05, 0.0]], "progress": False, "seed": 4}
LADDER = [0.8, 0.4, 0.2]


def test_two_circles_have_their_weights_at_any_eps():
    """The small one has a fifth; points come round as often at 1e-6 as at 0.05."""
    trips = []
    for eps in (0.05, 1e-6):
        kernel = limpet.Exchange([*LADDER, eps], steps=5, step_size=0.45)
        target = limpet.Target(two_circles, eps)
        draws = limpet.sample(target, kernel=kernel, draws=600, chains=130, warmup=100, **CIRCLES)
        share, error = share_of(draws.posterior["x"].values[..., 0] < 0)
        assert error < 0.01
        assert abs(share - 0.2) < 4 * error
        trips.append(float(draws["exchanges"]["round_trips"].mean()))
        found = limpet.summary(draws)
        assert found.exchanges["acceptance"].min() > 0.4
        assert np.allclose(found.exchanges["share"].sum("outcome"), 1)
        assert "round trips a chain" in str(found)
    assert trips[1] > 0.9 * trips[0] > 100


def test_a_ladder_is_found(tmp_path):
    """From starts on both circles; a store has it, and a run goes on bit for bit."""
    target, options = limpet.Target(two_circles, 1e-3), CIRCLES | {"chains": 6, "warmup": 60}
    whole = limpet.sample(target, kernel=limpet.Exchange(steps=5), draws=90, thin=3, **options)
    store, words = tmp_path / "run.zarr", {"kernel": limpet.Exchange(steps=5), "thin": 3}
    limpet.sample(target, draws=40, store=store, **words, **options)
    longer = limpet.resume(store, target, draws=90, progress=False)
    assert np.array_equal(longer.posterior["x"].values, whole.posterior["x"].values)
    for name, counted in whole["exchanges"].to_dataset().items():
        assert np.allclose(longer["exchanges"][name].values, counted.values, rtol=1e-12)
    ladder = longer.attrs["parameters"]["ladder"]
    assert 0.3 < ladder[0] < 3
    assert ladder[-1] == 1e-3
    told = []
    one_piece = options | {"start": [0.3, 0.0], "jitter": 0.01, "progress": told.append}
    with pytest.raises(limpet.InputError, match=r"chains agree at eps=0.001 without a ladder"):
        limpet.sample(target, draws=9, **words, **one_piece)
    assert [now.phase for now in told] == ["start", "ladder"]


def test_units_are_found_with_a_ladder(tmp_path):
    """Beside two circles, in a valley that holds them, is a number a thousandth as wide."""

    def log_density(x):
        return -(x[0] ** 2 + x[1] ** 2) / 18 - (x[2] / 1e-3) ** 2 / 2

    target = limpet.Target(lambda x: two_circles(x[:2]), 1e-3, log_density=log_density)
    options = {"start": [[0.3, 0.0, 0.0], [-1.05, 0.0, 0.0]], "progress": False, "chains": 6}
    options |= {"warmup": 400, "seed": 0}
    whole = limpet.sample(target, kernel=limpet.Exchange(steps=5), draws=60, **options)
    x, y, z = whole.scale["x"].values[0]
    assert 100 < x / z < 10_000
    assert 100 < y / z < 10_000
    store = tmp_path / "run.zarr"
    limpet.sample(target, kernel=limpet.Exchange(steps=5), draws=20, store=store, **options)
    longer = limpet.resume(store, target, draws=60, progress=False)
    assert np.array_equal(longer.posterior["x"].values, whole.posterior["x"].values)


@pytest.mark.slow
def test_two_moons_have_their_weights():
    """Those of sbibm, one the mirror image of the other, from nothing but a start on each."""
    observed = np.array([-0.6396706, 0.16234657])

    def miss(x):
        moon = x["radius"] * jnp.array([jnp.cos(x["angle"]), jnp.sin(x["angle"])])
        (a, b), root = x["theta"], np.sqrt(2)
        return moon + jnp.array([0.25 - jnp.abs(a + b) / root, (b - a) / root]) - observed

    def inside(x):
        return jnp.append(1 - jnp.abs(x["theta"]), jnp.pi / 2 - jnp.abs(x["angle"]))

    target = limpet.Target(
        miss,
        1e-5,
        log_density=lambda x: -(((x["radius"] - 0.1) / 0.01) ** 2) / 2,
        inside=inside,
    )
    noise = {"angle": 0.0, "radius": 0.1}
    starts = [noise | {"theta": np.array([side, side])} for side in (0.6, -0.6)]
    options = {"kernel": limpet.Exchange(), "chains": 128, "seed": 6, "progress": False}
    draws = limpet.sample(target, starts, draws=2_000, **options)
    share, error = share_of(draws.posterior["theta"].values.sum(axis=-1) > 0)
    print(f"two moons: {share:.4f} +- {error:.4f} for 0.5")
    assert error < 0.01
    assert abs(share - 0.5) < 4 * error


@pytest.mark.slow
@pytest.mark.parametrize("eps", [0.01, 1e-6])
def test_two_pieces_in_five_dimensions(eps):
    target = limpet.Target(two_pieces, eps)
    options = {"kernel": limpet.Exchange(), "chains": 128, "seed": 5, "progress": False}
    draws = limpet.sample(target, STARTS, draws=2_000, **options)
    share, error = share_of(draws.posterior["x"].values[..., 0] > 0)
    assert error < 0.01
    assert abs(share - PIECES[eps]) < 4 * error


def test_several_eps_and_one_chain_by_hand():
    def spheres(x):
        return jnp.array([x[:2] @ x[:2] - 1, x[2] ** 2 - 1])

    target = limpet.Target(spheres, [0.1, 0.2])
    kernel = limpet.Exchange([[1.0, 2.0], [0.1, 0.2]], steps=2, step_size=0.3)
    start = [[1.0, 0.0, 1.0], [1.0, 0.0, -1.0]]
    draws = limpet.sample(target, start, kernel=kernel, draws=30, warmup=0, progress=False)
    assert draws["exchanges"]["upper_eps"].values.tolist() == [[1.0, 2.0]]
    assert "1, 2 - 0.1, 0.2" in str(limpet.summary(draws))
    state = kernel.init(target, start[0])
    _, info = jax.eval_shape(kernel.step, target, jax.random.key(0), state)
    assert info.exchanges.outcome.shape == (1,)


def test_pieces_are_told_with_a_remedy():
    target = limpet.Target(two_circles, 0.01)
    with pytest.warns(limpet.MixingWarning, match=r"heaps.*kernel=limpet.Exchange\(\)"):
        limpet.sample(target, draws=50, chains=8, warmup=50, **CIRCLES)


def test_pieces_between_which_some_chains_jumped_are_told_too():
    """Two loops of an oval of Cassini's, near enough for a slide to land on the other one."""

    def loops(x):
        return jnp.array([((x[0] - 1) ** 2 + x[1] ** 2) * ((x[0] + 1) ** 2 + x[1] ** 2) - 0.9**4])

    with pytest.warns(limpet.MixingWarning, match=r"heaps.*kernel=limpet.Exchange\(\)"):
        limpet.sample(limpet.Target(loops, 1e-3), [1.5, 0.0], chains=130, draws=300, progress=False)


@pytest.mark.parametrize("chains", [2, 8, 130])
def test_draws_of_one_piece_are_no_heaps(chains):
    """Chains that all were everywhere, of laws that are round, skew and flat."""
    rng = np.random.default_rng(chains)
    draws = rng.normal(size=(chains, 200, 3))
    draws[..., 1], draws[..., 2] = np.exp(draws[..., 1]), rng.random(size=(chains, 200))
    posterior = xr.Dataset({"x": (("chain", "draw", "x_dim"), draws)})
    assert not any(sit_in_heaps(posterior, k) for k in range(3))


def test_rungs_that_never_exchange_are_named():
    target, kernel = limpet.Target(two_pieces, 0.1), limpet.Exchange([999.0, 1.0, 0.1], 5, 0.3)
    # long enough for points on the highest rung to go away from where all rungs begin
    options = CIRCLES | {"start": STARTS[0], "draws": 30, "chains": 8, "warmup": 100}
    with pytest.warns(limpet.LimpetWarning, match=r"999.0 and 1.0 .*\[999.0, 333.0, 1.0, 0.1\]"):
        limpet.sample(target, kernel=kernel, **options)


@pytest.mark.parametrize(
    ("ladder", "said"),
    [
        ([0.1], "has 1 rungs: expected the eps of two rungs or more"),
        ([], "has 0 rungs"),
        ([0.1, 0.2], "does not fall after rung 0"),
        ([0.3, 0.1, 0.1], "does not fall after rung 1"),
        ([0.3, np.nan, 0.1], "has nan"),
        ([0.3, 0.1, 0.0], "has 0"),
        ([0.3, -0.1], "has -0.1"),
        ([np.inf, 0.1], "has inf"),
        ("steep", "expected the eps of two rungs"),
        (0.3, "expected the eps of two rungs"),
        ([[0.3, 0.3], [0.1]], "expected the eps of two rungs"),
        ([0.3, 0.2], "ends with 0.2: expected the target's own eps there, 0.1"),
        ([[0.3, 0.3], [0.1, 0.1]], "has 2 numbers for each rung"),
    ],
)
def test_ladders_that_make_no_sense_are_refused(ladder, said):
    target = limpet.Target(two_circles, 0.1)
    with pytest.raises(limpet.InputError, match=said):
        limpet.sample(target, kernel=limpet.Exchange(ladder), **CIRCLES)


def test_targets_that_have_no_ladder_are_refused():
    kernel = limpet.Exchange([0.2, 0.1])
    with pytest.raises(limpet.InputError, match="m < n"):
        limpet.sample(limpet.Target(lambda x: x, 0.1), [0.0, 1.0], kernel=kernel)
    noisy = limpet.Target(lambda x: x[:1], lambda x: jnp.exp(x[1]))
    with pytest.raises(limpet.InputError, match="has a function for eps"):
        limpet.sample(noisy, [0.0, 1.0], kernel=kernel)
    with pytest.raises(limpet.InputError, match="spread=0"):
        limpet.Exchange([0.2, 0.1], spread=0)
    with pytest.raises(limpet.InputError, match=r"limpet.sample finds a ladder"):
        limpet.Exchange().init(limpet.Target(two_circles, 0.1), [0.3, 0.0])
