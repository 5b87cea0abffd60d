"""What `limpet.sample` promises: shapes, counts that add up, and the same draws however it runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet.kernels import Outcome
from limpet.paper import ellipsoid_sphere
from limpet.run import tile

TARGET = limpet.Target(ellipsoid_sphere, 0.05)
START = [1.0, 0.3, 0.1]


def run(chains=4, warmup=100, **options):
    return limpet.sample(TARGET, START, draws=50, chains=chains, warmup=warmup, seed=5, **options)


@pytest.fixture(scope="module")
def draws():
    return run(keep_surface=True)


def test_groups_and_shapes(draws):
    assert set(draws.children) == {"posterior", "sample_stats", "surface", "moves", "scale"}
    assert dict(draws["posterior"].sizes) == {"chain": 4, "draw": 50, "x_dim": 3}
    assert dict(draws["surface"].sizes) == {"chain": 4, "draw": 50, "x_dim": 3}
    assert np.isfinite(draws["posterior"]["x"]).all()


def test_draws_are_off_the_surface_and_surface_draws_on_it(draws):
    q = jax.vmap(jax.vmap(ellipsoid_sphere))
    assert np.abs(q(draws["posterior"]["x"].values)).max(axis=-1).min() > 1e-6
    assert np.abs(q(draws["surface"]["x"].values)).max() < 1e-10


def test_log_density_of_a_draw(draws):
    q = jax.vmap(jax.vmap(ellipsoid_sphere))(draws["posterior"]["x"].values)
    lp = -np.sum((q / 0.05) ** 2, axis=-1) / 2
    np.testing.assert_allclose(draws["sample_stats"]["lp"], lp, rtol=1e-9, atol=1e-9)


def test_counts_add_up(draws):
    counts = draws.attrs["counts"]
    total = sum(sum(by_outcome.values()) for by_outcome in counts.values())
    assert total == draws.attrs["steps"] == int(draws["moves"]["counts"].sum())
    shares = limpet.summary(draws).moves["share"].sum("outcome")
    np.testing.assert_allclose(shares, 1)


def test_chains_end_their_count_with_their_last_draw():
    draws = run()
    steps = draws["moves"]["counts"].sum(["move", "outcome"]).values
    np.testing.assert_array_equal(steps, draws["sample_stats"]["step"][:, -1] + 1)


def test_even_a_short_run_takes_time(draws):
    assert draws.attrs["seconds"] > 0
    assert draws.attrs["compile_seconds"] > 0


def test_attrs_are_json(draws):
    import json

    assert json.loads(json.dumps(draws.attrs)) == draws.attrs


def test_same_seed_same_draws():
    np.testing.assert_array_equal(run().posterior["x"], run().posterior["x"])


def test_another_seed_other_draws():
    other = limpet.sample(TARGET, START, draws=50, chains=4, warmup=100, seed=6)
    assert not np.any(run().posterior["x"].values == other.posterior["x"].values)


@pytest.mark.parametrize("blocks", [1, 3, 20])
def test_bit_equal_whatever_the_block_size(blocks, monkeypatch):
    whole = run()
    monkeypatch.setattr(tile, "blocks_at_once", lambda width, block: blocks)
    cut = run()
    np.testing.assert_array_equal(whole.posterior["x"], cut.posterior["x"])
    assert whole.attrs["counts"] == cut.attrs["counts"]
    assert whole.attrs["acceptance"] == pytest.approx(cut.attrs["acceptance"], rel=1e-12)


def test_bit_equal_whatever_the_number_of_tiles():
    most = run(chains=300).posterior["x"].values
    for chains in (128, 200):
        np.testing.assert_array_equal(run(chains=chains).posterior["x"].values, most[:chains])


def test_thinning_keeps_every_nth_draw():
    every = limpet.sample(TARGET, START, draws=60, chains=4, warmup=10, seed=7)
    third = limpet.sample(TARGET, START, draws=20, thin=3, chains=4, warmup=10, seed=7)
    np.testing.assert_array_equal(third.posterior["x"], every.posterior["x"][:, 2::3])


def test_a_users_own_scan_samples_the_same_law():
    """`init` and `step` are pure, for one chain, and fit jit, vmap and scan."""
    kernel = limpet.SAS()
    start = limpet.find_start(TARGET, START, 64)

    @jax.jit
    def chain(x, key):
        def step(state, key):
            state, info = kernel.step(TARGET, key, state)
            return state, (state.x, state.on, info.outcome)

        return jax.lax.scan(step, kernel.init(TARGET, x), jax.random.split(key, 2_000))[1]

    x, on, outcome = jax.vmap(chain)(start, jax.random.split(jax.random.key(0), 64))
    off = ~np.asarray(on)
    assert off.mean() == pytest.approx(0.2, abs=0.02)
    assert (np.asarray(outcome) == Outcome.ACCEPTED).mean() > 0.5
    q = jax.vmap(ellipsoid_sphere)(np.asarray(x)[off])
    # |q / eps|^2 is chi-squared with two degrees of freedom, but for curvature
    assert np.mean((q / 0.05) ** 2) == pytest.approx(1, abs=0.1)


def test_step_keeps_the_users_point():
    target = limpet.Target(lambda x: jnp.array([x["r"] @ x["r"] - 1 + x["h"] ** 2]), 0.1)
    kernel = limpet.SAS()
    state = kernel.init(target, {"r": jnp.array([0.6, 0.8]), "h": jnp.array(0.0)})
    state, _ = kernel.step(target, jax.random.key(1), state)
    assert set(state.x) == {"r", "h"}
    assert state.x["r"].shape == (2,)
    assert state.x["h"].shape == ()


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_do_not_matter(factor):
    """The same target in other units of q, and of x, gives the same chains, scaled."""
    kernel = limpet.SAS(sigma_tan=0.05, sigma_on=0.05, sigma_sft=0.035)
    draws = run(kernel=kernel).posterior["x"].values

    other_q = limpet.Target(lambda x: factor * ellipsoid_sphere(x), 0.05 * factor)
    same = limpet.sample(other_q, START, draws=50, chains=4, warmup=100, seed=5, kernel=kernel)
    np.testing.assert_allclose(same.posterior["x"], draws, rtol=1e-6, atol=1e-6)

    other_x = limpet.Target(lambda x: ellipsoid_sphere(x / factor), 0.05)
    scaled = limpet.SAS(
        sigma_hrd=factor,
        sigma_tan=0.05 * factor,
        sigma_on=0.05 * factor,
        sigma_sft=0.035 * factor,
    )
    start = np.array(START) * factor
    same = limpet.sample(other_x, start, draws=50, chains=4, warmup=100, seed=5, kernel=scaled)
    np.testing.assert_allclose(same.posterior["x"] / factor, draws, rtol=1e-6, atol=1e-6)


def test_arviz_reads_the_draws(draws):
    from arviz_stats import summary

    table = summary(draws, var_names=["x"], kind="diagnostics")
    assert len(table) == 3


def test_autocorrelation_time_of_a_known_process():
    """An AR(1) process with coefficient a has tau = (1 + a) / (1 - a)."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(50, 20_000))
    x = np.zeros_like(noise)
    for t in range(1, noise.shape[1]):
        x[:, t] = 0.8 * x[:, t - 1] + noise[:, t]
    assert limpet.autocorrelation_time(x[:, 100:]) == pytest.approx(9, rel=0.03)


def test_autocorrelation_time_of_too_few_draws_warns():
    walk = np.cumsum(np.random.default_rng(0).normal(size=100))
    with pytest.warns(limpet.LimpetWarning, match="100 draws in chains of 100 are too few"):
        limpet.autocorrelation_time(walk)
