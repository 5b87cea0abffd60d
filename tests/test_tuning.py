"""Warm-up finds step sizes that are nearly the best, from wherever it starts."""

import numpy as np
import pytest
from models import torus
from scipy.optimize import isotonic_regression

import limpet
from limpet.paper import ellipsoid_sphere, two_spheres
from limpet.paper.sokal import windowed_time
from limpet.run.tuning import CELLS, DECADES, NEIGHBOURS, Tuner, _falling

pytestmark = pytest.mark.optimized

EPS = 0.005
MODELS = {
    "two spheres": (two_spheres, [1.0, 0.0, 0.0]),
    "ellipsoid-sphere": (ellipsoid_sphere, [1.0, 0.3, 0.1]),
    "torus": (torus, [1.4, 0.1, 0.1]),
}


def sample(model, **options):
    q, start = MODELS[model]
    given = {"draws": 30, "chains": 128, "seed": 8, "kernel": limpet.SAS(), "progress": False}
    return limpet.sample(limpet.Target(q, EPS), start, **given | options)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sft", [1e-3, 100])
@pytest.mark.parametrize("hrd", [1e-3, 100])
def test_sizes_are_found_from_afar(model, hrd, sft):
    draws = sample(model, kernel=limpet.SAS(sigma_hrd=hrd, sigma_sft=sft * EPS))
    found = draws.attrs["parameters"]
    # where the distance that slides go is within some per cent of its maximum (make test-slow)
    assert 0.55 < found["sigma_hrd"] < 1.2
    assert 0.25 < draws.attrs["acceptance"]["soft"] < 0.6
    assert found["sigma_tan"] == found["sigma_on"] == EPS


def effective_draws_per_step(model, warmup, kernel, seed):
    """Of the worst coordinate."""
    draws = sample(model, draws=3_000, warmup=warmup, kernel=kernel, seed=seed)
    x = draws.posterior["x"].values
    tau = max(windowed_time(x[:, :, k]).tau for k in range(x.shape[2]))
    return x[:, :, 0].size / tau / draws.attrs["steps"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::limpet.LimpetWarning")  # of the grid's worse points
@pytest.mark.parametrize("model", MODELS)
def test_sizes_are_nearly_as_good_as_the_best_of_a_grid(model):
    # standard error of each figure: about 2 %
    grid = [
        effective_draws_per_step(model, 0, limpet.SAS(sigma_hrd=hrd, sigma_sft=sft * EPS), 20)
        for hrd in np.geomspace(0.25, 4, 9)
        for sft in (0.3, 1.0, 3.0)
    ]
    for hrd in (1e-3, 100):
        for sft in (1e-3, 100):
            kernel = limpet.SAS(sigma_hrd=hrd, sigma_sft=sft * EPS)
            tuned = effective_draws_per_step(model, 1_000, kernel, 21)
            print(f"{model}, from {hrd:g} and {sft:g} eps: {tuned / max(grid):.2f} of the best")
            assert tuned >= 0.8 * max(grid)


def test_sizes_are_frozen_and_told():
    draws = sample("torus")
    for name in ("sigma_hrd", "sigma_tan", "sigma_on", "sigma_sft"):
        by_chain = draws["moves"][name]
        assert by_chain.sizes == {"chain": 128}
        assert len(np.unique(by_chain)) == 1
        assert float(by_chain[0]) == draws.attrs["parameters"][name]


def test_a_run_with_the_sizes_found_goes_on_as_the_tuned_one_did():
    tuned = sample("torus", draws=2_000)
    sizes = {name: size for name, size in tuned.attrs["parameters"].items() if "sigma" in name}
    given = sample("torus", draws=2_000, kernel=limpet.SAS(**sizes), warmup=0)
    for move, acceptance in tuned.attrs["acceptance"].items():
        # 50,000 proposals and more: five standard errors
        assert given.attrs["acceptance"][move] == pytest.approx(acceptance, abs=0.012)


def test_without_warm_up_the_kernel_is_used_as_it_is():
    kernel = limpet.SAS(sigma_hrd=0.123, sigma_sft=0.0045, sigma_tan=0.003, sigma_on=0.002)
    found = sample("torus", kernel=kernel, warmup=0).attrs["parameters"]
    for name in ("sigma_hrd", "sigma_sft", "sigma_tan", "sigma_on"):
        assert found[name] == getattr(kernel, name)


def test_slides_of_off_and_on_are_lowered_where_half_are_refused():
    q, start = MODELS["torus"]
    # in units of q the surface is a thousand times as thick as in units of x
    target = limpet.Target(lambda x: 1e3 * q(x), 1e3 * EPS)
    draws = limpet.sample(target, start, draws=30, seed=8, kernel=limpet.SAS(), progress=False)
    assert draws.attrs["parameters"]["sigma_tan"] < 0.3
    assert draws.attrs["acceptance"]["off"] > 0.45
    assert draws.attrs["acceptance"]["on"] > 0.45


@pytest.mark.parametrize("kernel", [limpet.RandomWalk(step_size=1.0), limpet.SurfaceSampler()])
def test_other_kernels_are_tuned_too(kernel):
    draws = sample("two spheres", kernel=kernel)
    (acceptance,) = draws.attrs["acceptance"].values()
    assert 0.3 < acceptance < 0.95


def test_one_chain_is_enough():
    draws = sample("two spheres", chains=1, kernel=limpet.SAS(sigma_hrd=1e-3), seed=2)
    assert 0.3 < draws.attrs["parameters"]["sigma_hrd"] < 3


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("hrd", [1e-3, 100])
def test_trajectories_are_found_from_afar(model, hrd):
    found = sample(model, kernel=limpet.Lifted(step_size=hrd)).attrs
    assert 0.7 < found["acceptance"]["hard"] < 0.95
    slides = found["parameters"]["steps"]
    assert isinstance(slides, int)
    assert 2 <= slides <= 20
    best = sample(model, kernel=limpet.Lifted()).attrs["parameters"]
    assert best["step_size"] / 1.5 < found["parameters"]["step_size"] < 1.5 * best["step_size"]


def test_long_trajectories_are_tried_by_neighbours_together_and_take_no_more_slides():
    tuner = Tuner(limpet.Lifted(), {"step_size": 1.0, "steps": 8}, (128, 3), None, False)
    assert (tuner.scales(0, 64)["steps"] == 8).all()
    tuner.narrowed = 1.0  # from here on numbers of slides are tried
    steps = tuner.scales(0, 64)["steps"]
    assert (steps.reshape(-1, NEIGHBOURS, 64) == steps[::NEIGHBOURS, None]).all()
    assert steps.min() == 1
    assert steps.max() > 70
    assert 7.5 < steps.mean() < 8.5  # 8, but for rounding


def test_a_number_of_slides_doubles_in_a_round_at_most():
    """However much a round speaks for more: here only those above fifty went anywhere."""
    tuner = Tuner(limpet.Lifted(), {"step_size": 1.0, "steps": 8}, (128, 3), None, False)
    tuner.narrowed, tuner.variances[:] = 1.0, 1.0
    decades = np.arange(tuner.jumps.shape[1]) / CELLS - DECADES
    tuner.record[1, 0, 0] = 100.0 * (abs(decades) <= 1)
    tuner.jumps[:] = 2 * tuner.record[1, 0, 0] * (decades > np.log10(50 / 8))
    tuner._narrow(helped=False)
    assert tuner.slides == 16


@pytest.mark.parametrize(
    ("kernel", "name"),
    [(limpet.SurfaceSampler(steps=None), "steps"), (limpet.SAS(trajectory=None), "trajectory")],
    ids=["SurfaceSampler", "SAS"],
)
def test_every_sampler_leaves_the_number_of_slides_to_warm_up_if_asked(kernel, name):
    assert getattr(kernel, name) is None
    found = sample("torus", kernel=kernel).attrs["parameters"][name]
    assert isinstance(found, int)
    assert 2 <= found <= 20


def test_acceptance_is_fitted_as_never_rising_with_size():
    rng = np.random.default_rng(0)
    for _ in range(10):
        tried = rng.integers(0, 5, size=40).astype(float)  # of some sizes nothing is known
        worth, seen = tried * rng.random(40), tried > 0
        expected = isotonic_regression(
            worth[seen] / tried[seen], weights=tried[seen], increasing=False
        )
        found = _falling(tried, worth)
        np.testing.assert_allclose(found[seen], expected.x)
        assert (np.diff(found) <= 0).all()
        assert not found[np.flatnonzero(seen)[-1] + 1 :].any()


def test_a_size_that_few_lucky_trials_speak_for_is_not_taken():
    tried, worth = np.full(20, 100.0), np.repeat([100.0, 60.0], 10)
    tried[15], worth[15] = 2, 2.0
    assert np.flatnonzero(_falling(tried, worth) >= 0.8).max() == 9
