"""Models of NumPyro and PyMC as targets: the same density, and the way back to their variables."""

import os
import subprocess
import sys
from functools import partial

import arviz
import bayes
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pymc as pm
import pytest
from numpyro.infer import log_likelihood
from numpyro.infer.util import potential_energy

import limpet
from limpet.models import target as model_target

QUIET = {"progress": False}
FEW = {"draws": 20, "chains": 3, "warmup": 20, **QUIET}
# variables are the same whatever sampler moves them, and this one needs no derivatives
WALK = FEW | {"kernel": limpet.RandomWalk()}
DATA = np.array([[0.3, 1.2], [0.7, 0.4], [2.0, 0.9]])


def every_kind(data, count):
    """Sites of every kind: what may be a constraint, and what is log density."""
    scale = numpyro.sample("scale", dist.LogNormal(0, 1))
    upper = numpyro.sample("upper", dist.Uniform(scale, scale + 2))  # a support that is unknown
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(3)))
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 1.5))
    with numpyro.handlers.scale(scale=0.5):
        numpyro.sample("tempered", dist.Normal(upper, 0.3), obs=1.0)
    with numpyro.plate("row", 3, dim=-2), numpyro.plate("column", 2, dim=-1):
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.deterministic("twice", 2 * x)
        numpyro.sample("known", dist.Normal(x, 0.01), obs=data)
        numpyro.sample("positive", dist.LogNormal(x + upper, scale), obs=data)
        mask = np.array([[True, False], [True, True], [False, True]])
        numpyro.sample("masked", dist.Normal(x, 0.1).mask(mask), obs=data)
    vectors = dist.MultivariateNormal(shares[:2], scale_tril=scale * factor)
    with numpyro.plate("vector", 3):
        numpyro.sample("vectors", vectors, obs=data)
    numpyro.sample("event", dist.Normal(x[0], 0.2).to_event(1), obs=data[1])
    numpyro.sample("scalar", dist.Normal(x, scale).to_event(2), obs=0.5)  # counts six times
    numpyro.sample("count", dist.Poisson(scale), obs=count)
    numpyro.factor("term", -(x[0, 0] ** 4))


GAUSSIAN = ["known", "positive", "vectors", "event", "scalar"]


def points_of(target, count=3):
    for seed in range(count):
        random = np.random.default_rng(seed)
        yield {name: random.normal(size=value.shape) for name, value in target.start.items()}


def log_posterior(target):
    def of(point):
        q, eps = target.q(point), target.eps_at(point)
        divided = 0.0 if target.has_fixed_eps else jnp.sum(jnp.log(eps))
        return target.log_density(point) - divided - jnp.sum((q / eps) ** 2) / 2

    return jax.jit(of)


@pytest.mark.parametrize(
    "sites", [None, pytest.param(["vectors", "event"], marks=pytest.mark.slow)]
)
def test_the_density_is_numpyros(sites):
    target = limpet.from_numpyro(every_kind, DATA, count=2, sites=sites)
    chosen = [sites] if isinstance(sites, str) else sites or GAUSSIAN
    assert sorted(target.sites) == sorted(chosen)
    potential = jax.jit(partial(potential_energy, every_kind, (DATA,), {"count": 2}))
    mine = log_posterior(target)
    for point in points_of(target):
        theirs = {name.removesuffix("_unconstrained"): value for name, value in point.items()}
        np.testing.assert_allclose(mine(point), -potential(theirs), rtol=1e-12)


def test_known_noise_is_eps_and_unknown_noise_is_not():
    def model():
        x = numpyro.sample("x", dist.LogNormal(0, 1))
        numpyro.sample("a", dist.Normal(x, 0.1), obs=np.ones(2))
        numpyro.sample("b", dist.LogNormal(x, 0.2), obs=3.0)
        numpyro.sample("c", dist.Normal(x, jnp.where(x > 1, 0.1, 0.2)), obs=3.0)

    assert limpet.from_numpyro(model, sites=["a", "b"]).eps.tolist() == [0.1, 0.1, 0.2]
    for sites in (None, "c"):  # its derivative is zero, but it is not the same everywhere
        assert not limpet.from_numpyro(model, sites=sites).has_fixed_eps


def every_kind_in_pymc():
    with pm.Model(coords={"row": ["a", "b", "c"], "column": [10, 20]}) as model:
        scale = pm.LogNormal("scale", 0, 1)
        upper = pm.Uniform("upper", scale, scale + 2)
        shares = pm.Dirichlet("shares", np.ones(3))
        factor, _, _ = pm.LKJCholeskyCov("factor", n=2, eta=1.5, sd_dist=pm.HalfNormal.dist(1.0))
        x = pm.Normal("x", 0, 1, dims=("row", "column"))
        pm.Deterministic("twice", 2 * x, dims=("row", "column"))
        pm.Normal("known", x, 0.01, observed=DATA, dims=("row", "column"))
        pm.LogNormal("positive", x + upper, scale, observed=pm.Data("data", DATA))
        pm.MvNormal("vectors", shares[:2], chol=factor, observed=DATA)
        pm.Poisson("count", scale, observed=2)
        pm.Potential("term", -(x[0, 0] ** 4))
    return model


@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
@pytest.mark.parametrize("sites", [None, pytest.param(["vectors"], marks=pytest.mark.slow)])
def test_the_density_is_pymcs(sites):
    model = every_kind_in_pymc()
    target = limpet.from_pymc(model, sites=sites)
    chosen = [sites] if isinstance(sites, str) else sites or ["known", "positive", "vectors"]
    assert list(target.sites) == chosen
    # in Python: the same bits, without half a minute of a C compiler for three points
    theirs, mine = model.compile_logp(mode="FAST_COMPILE"), log_posterior(target)
    difference = [float(mine(point)) - float(theirs(point)) for point in points_of(target)]
    # PyTensor has the logarithm of a small integer in single precision, here a constant
    assert abs(difference[0]) < 1e-6
    np.testing.assert_allclose(difference, difference[0], rtol=0, atol=1e-8)


@pytest.mark.filterwarnings("ignore::limpet.SlowPathWarning")
def test_draws_are_the_models_own_variables():
    target = limpet.from_numpyro(every_kind, DATA, 2)
    draws = limpet.sample(target, **WALK)
    posterior = draws.posterior
    names = {"scale", "upper", "shares", "factor", "x", "twice"}
    assert set(posterior.data_vars) == names
    assert posterior["x"].dims == ("chain", "draw", "row", "column")
    assert posterior["twice"].dims == ("chain", "draw", "row", "column")
    assert posterior["factor"].dims == ("chain", "draw", "factor_dim_0", "factor_dim_1")
    np.testing.assert_allclose(posterior["twice"], 2 * posterior["x"])
    np.testing.assert_allclose(posterior["shares"].sum("shares_dim"), 1)
    np.testing.assert_allclose((posterior["factor"] ** 2).sum("factor_dim_1"), 1)
    assert (posterior["upper"] > posterior["scale"]).all()
    assert (posterior["upper"] < posterior["scale"] + 2).all()
    assert draws.observed_data["known"].dims == ("row", "column")
    assert draws.log_likelihood["known"].dims == ("chain", "draw", "row", "column")
    assert draws.log_likelihood["vectors"].dims == ("chain", "draw", "vector")
    assert set(draws.observed_data.data_vars) == set(draws.log_likelihood.data_vars)
    assert "term" not in draws.observed_data

    unknowns = {name: posterior[name].values for name in names - {"twice"}}
    theirs = log_likelihood(every_kind, unknowns, DATA, 2, batch_ndims=2)
    for name, mine in draws.log_likelihood.data_vars.items():
        np.testing.assert_allclose(mine, theirs[name], rtol=0, atol=1e-10)
    assert limpet.summary(draws)

    seen = target.predict(draws.isel(draw=slice(10)), seed=3)
    assert seen.posterior_predictive["known"].dims == ("chain", "draw", "row", "column")
    off = (seen.posterior_predictive["known"] - seen.posterior["x"]) / 0.01
    assert 0.8 < float(off.std()) < 1.2  # of 180 numbers: less than one false alarm in 10,000
    again = target.predict(draws.isel(draw=slice(10)), seed=3)
    np.testing.assert_array_equal(*(s.posterior_predictive["count"] for s in (seen, again)))


@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
@pytest.mark.filterwarnings("ignore:The effect of Potentials")
@pytest.mark.filterwarnings("ignore::limpet.SlowPathWarning")
def test_draws_have_pymcs_dims_and_coords():
    target = limpet.from_pymc(every_kind_in_pymc())
    draws = limpet.sample(target, **WALK)
    names = {"scale", "upper", "shares", "factor", "factor_corr", "factor_stds", "x", "twice"}
    assert set(draws.posterior.data_vars) == names
    assert draws.posterior["x"].sel(row="b", column=20).dims == ("chain", "draw")
    np.testing.assert_allclose(draws.posterior["shares"].sum("shares_dim"), 1)
    assert set(draws.observed_data.data_vars) == {"known", "positive", "vectors", "count"}
    z = (DATA - draws.posterior["x"]) / 0.01
    exact = -(z**2) / 2 - np.log(0.01 * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(draws.log_likelihood["known"], exact, atol=1e-10)
    seen = target.predict(draws, seed=3).posterior_predictive
    assert seen["known"].sel(row="b").dims == ("chain", "draw", "column")
    assert seen["count"].dtype.kind == "i"


def small(y):
    """Two numbers of which the product is known; scopes put a slash into their names."""
    with numpyro.handlers.scope(prefix="pair"):
        x = numpyro.sample("x", dist.LogNormal(0, 1).expand([2]))
    numpyro.sample("y", dist.Normal(x[0] * x[1], 1e-6), obs=y)


def test_stores_have_the_unconstrained_numbers_and_resume_the_models(tmp_path):
    target, store = limpet.from_numpyro(small, 2.0), tmp_path / "run.zarr"
    whole = limpet.sample(target, **FEW)
    assert list(whole.posterior.data_vars) == ["pair.x"]
    np.testing.assert_allclose(whole.posterior["pair.x"].prod("pair.x_dim"), 2, atol=1e-5)

    first = limpet.sample(target, **(FEW | {"draws": 7}), store=store)
    longer = limpet.resume(store, target, draws=20, **QUIET)
    again = limpet.resume(store, limpet.from_numpyro(small, 2.0), **QUIET)
    np.testing.assert_array_equal(first.posterior["pair.x"], whole.posterior["pair.x"][:, :7])
    for draws in (longer, again):
        np.testing.assert_array_equal(draws.posterior["pair.x"], whole.posterior["pair.x"])
        assert set(draws.children) == set(whole.children)
        assert draws.attrs["kernel"] == "Lifted"

    plain = limpet.open(store)
    assert list(plain.posterior.data_vars) == ["pair.x_unconstrained"]
    np.testing.assert_allclose(
        np.exp(plain.posterior["pair.x_unconstrained"]), whole.posterior["pair.x"].values
    )
    part = target.translate(plain.isel(draw=slice(5, 9), chain=[0, 2]))
    np.testing.assert_array_equal(
        part.posterior["pair.x"], whole.posterior["pair.x"].isel(draw=slice(5, 9), chain=[0, 2])
    )
    assert part.posterior["draw"].values.tolist() == [5, 6, 7, 8]
    with pytest.raises(limpet.StoreError, match="another target"):
        limpet.resume(store, limpet.from_numpyro(small, 3.0), **QUIET)


def test_the_surface_group_is_translated_too():
    target = limpet.from_numpyro(small, 2.0)
    draws = limpet.sample(target, keep_surface=True, **FEW)
    np.testing.assert_allclose(draws.surface["pair.x"].prod("pair.x_dim"), 2, rtol=1e-9)


def test_a_run_that_is_stopped_at_once_has_the_models_variables():
    target = limpet.from_numpyro(small, 2.0)
    with pytest.warns(limpet.InterruptedWarning):
        draws = limpet.sample(target, **(FEW | {"progress": lambda now: False}))
    assert draws.posterior["pair.x"].shape == (3, 0, 2)
    assert draws.log_likelihood["y"].shape == (3, 0)


def test_a_start_may_be_given_in_unconstrained_numbers():
    target = limpet.from_numpyro(small, 2.0)
    options = {"draws": 1, "chains": 1, "warmup": 0, "jitter": 0, **QUIET}
    kernel = limpet.Lifted(step_size=1e-9, steps=1)
    start = {"pair.x_unconstrained": [np.log(4.0), np.log(0.5)]}
    draws = limpet.sample(target, start, kernel=kernel, **options)
    np.testing.assert_allclose(draws.posterior["pair.x"][0, 0], [4.0, 0.5], atol=1e-5)


def test_a_log_likelihood_that_would_fill_the_memory_is_left_out(monkeypatch):
    monkeypatch.setattr(model_target, "MOST_LIKELIHOODS", 10)
    with pytest.warns(limpet.LimpetWarning, match="log_likelihood is left out: with 60 numbers"):
        draws = limpet.sample(limpet.from_numpyro(small, 2.0), **FEW)
    assert "log_likelihood" not in draws.children


@pytest.mark.parametrize("draws", [1, 5, 7, 16])
def test_batches_of_draws_are_put_together_as_they_were(monkeypatch, draws):
    monkeypatch.setattr(model_target, "BATCH", 5)
    point = {"a": np.arange(3.0 * draws).reshape(3, draws), "b": np.ones((3, draws, 2))}
    found = model_target.over_draws(lambda p: {"sum": p["a"] + p["b"]}, point)
    np.testing.assert_array_equal(found["sum"], point["a"][..., None] + point["b"])


def test_data_that_are_observed_in_part_are_unknowns_and_constraints():
    data = np.ma.masked_array([1.0, 0.0], [False, True])
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        with pytest.warns(pm.exceptions.ImputationWarning):
            pm.Normal("y", x, 0.1, observed=data)
    target = limpet.from_pymc(model)
    assert target.sites == ("y_observed",)
    assert set(target.model.unknowns) == {"x", "y_unobserved"}


def test_nothing_is_imported_or_changed_before_it_is_used():
    code = (
        "import os, sys, limpet; limpet.Target; print('numpyro' in sys.modules, 'pymc' in"
        " sys.modules); import pymc as pm\n"
        "with pm.Model() as model: pm.Normal('y', pm.Normal('x'), 0.1, observed=1.0)\n"
        "limpet.from_pymc(model); import jax; print(os.environ.get('XLA_FLAGS'), jax.devices())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "False False\nNone [CpuDevice(id=0)]\n"


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")  # few draws
def test_arviz_takes_the_result():
    target = limpet.from_numpyro(bayes.eight_schools, bayes.SCHOOLS, bayes.SCHOOLS_SCALE)
    assert repr(target) == "ModelTarget(eight_schools, sites=['y'])"
    assert isinstance(target, limpet.Target)
    draws = limpet.to_inference_data(limpet.sample(target, draws=1_000, chains=16, **QUIET))
    assert "theta[3]" in arviz.summary(draws).index
    loo = arviz.loo(draws)
    value = loo.elpd_loo if hasattr(loo, "elpd_loo") else loo.elpd  # ArviZ 0.x, and 1.x
    assert -31.5 < value < -30  # ArviZ 0.23 finds -30.72 for 16,000 draws


def crossed(a, b, noise):
    """Two data of one number that contradict each other, and another number without data."""
    x = numpyro.sample("x", dist.Normal(0, 1))
    numpyro.sample("free", dist.Normal(0, 1).expand([3]))
    scale = noise or numpyro.sample("scale", dist.LogNormal(-1, 0.5))
    numpyro.sample("a", dist.Normal(x, scale), obs=a)
    numpyro.sample("b", dist.Normal(x, scale), obs=b)


@pytest.mark.parametrize("noise", [0.01, None])
def test_data_need_not_fit_even_if_they_are_few(noise):
    target = limpet.from_numpyro(crossed, 1.0, 1.2, noise)
    draws = limpet.sample(target, draws=500, chains=16, warmup=300, **QUIET)
    x = draws.posterior["x"]
    assert abs(float(x.mean()) - 1.1) < (0.01 if noise else 0.2)
    if noise:  # Gaussian, with this deviation; of thousands of draws, and none in a million is off
        assert abs(float(x.std()) / np.sqrt(1 / (1 + 2 / noise**2)) - 1) < 0.1
