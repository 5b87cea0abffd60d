"""Ratios of partition functions against exact ones, and how well their errors are known.

A value that must be within 4 standard errors of the truth, from 128 chains or more, is not in one
case of 9,000 (Student's t with 127 degrees of freedom). The bias of order 1/draws is a fraction of
a standard error in each of them.
"""

import signal

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import limpet
from limpet import sampling
from limpet.paper import ellipsoid_sphere, inverse_z, two_spheres
from limpet.run import tile

pytestmark = pytest.mark.optimized

START = [1.0, 0.3, 0.1]


def run(q=two_spheres, eps=0.1, draws=50, chains=4, warmup=200, **options):
    target = limpet.Target(q, eps)
    given = {"draws": draws, "chains": chains, "warmup": warmup, "progress": False}
    return limpet.sample(target, START, **given | {"kernel": limpet.SAS()} | options)


def climb(target, start=START, **options):
    return limpet.ladder(target, start, **{"progress": False, "seed": 1} | options)


def missed(curve, exact):
    """How many standard errors each ratio is off."""
    return np.abs(curve["ratio"] - exact) / curve["standard_error"]


def ratio_along_curves(eps):
    """R of the ellipsoid-sphere model for a small eps.

    The integral is over the values of q, by Gauss and Hermite, and along the curve with those
    values: an ellipse in x_2 and x_3, followed by t, on which x_1^2 is positive between two ends.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    levels = [[curve_weight(eps * u, eps * v) for v in nodes] for u in nodes]
    return weights @ levels @ weights / (2 * np.pi) / curve_weight(0, 0)


def curve_weight(first, second):
    """The integral of det(K)^(-1/2) along the curve on which q has these values."""
    size = np.sqrt(1 + 3 / 8 * (first - 2 * second))

    def square_of_x1(t):
        x2, x3 = 2 + size * np.sqrt(8) * np.cos(t), 5 / 3 + size * np.sqrt(40 / 9) * np.sin(t)
        return 2 + first - x2**2 - (x3 - 1) ** 2

    begin, end = (scipy.optimize.brentq(square_of_x1, *ends) for ends in ((2, 3.5), (3.5, 5)))
    phase = (np.arange(400) + 0.5) * np.pi / 400
    square = square_of_x1((begin + end) / 2 - (end - begin) / 2 * np.cos(phase))
    density = np.sin(phase) / np.sqrt(square)  # both vanish at the ends, their ratio does not
    return np.sqrt(5) * (end - begin) / 2 * np.pi * density.mean()


def ratio_on_a_grid(eps):
    """The same for an eps that is not small."""
    limit = 2 * np.pi * eps**2 * curve_weight(0, 0)
    return 1 / inverse_z(ellipsoid_sphere, 1 / (2 * eps**2)) / limit


def ratio_from_time(draws):
    """R from the share of time off the surface, and its standard error."""
    tries = draws["moves"]["counts"].sum("outcome")
    on = tries.sel(move=["hard", "off"]).sum("move").values
    off = tries.sel(move=["on", "soft"]).sum("move").values
    kernel = draws.attrs["parameters"]
    odds = kernel["on_probability"] / kernel["off_probability"]
    without_one = odds * (off.sum() - off) / (on.sum() - on)
    return odds * off.sum() / on.sum(), np.sqrt((len(on) - 1) * np.var(without_one))


def test_the_exact_values_agree_with_each_other():
    assert curve_weight(0, 0) == pytest.approx(3.7627964, rel=1e-7)
    assert ratio_along_curves(0.05) == pytest.approx(ratio_on_a_grid(0.05), abs=1e-9)


def test_two_spheres():
    """R is 1: all curves of one q have one weight, but those more than ten eps away."""
    ratio = limpet.partition_ratio(run(draws=1_000, chains=256, warmup=1_000))
    assert abs(ratio.value - 1) < 4 * ratio.standard_error
    assert 0 < ratio.standard_error < 1e-3
    assert ratio.log == np.log(ratio.value)
    assert ratio.log_error == ratio.standard_error / ratio.value


def test_errors_are_as_large_as_they_say():
    """Of 400 ratios, each from 16 chains, 95 % should be within Student's factor.

    The bounds on their number are passed by luck in one case of 10,000, to either side.
    """
    chains, groups = 16, 400
    draws = run(eps=0.2, draws=50, chains=chains * groups)
    each = [
        limpet.partition_ratio(draws.isel(chain=slice(k * chains, (k + 1) * chains)))
        for k in range(groups)
    ]
    value, error = np.transpose(each)
    factor = scipy.stats.t.ppf(0.975, chains - 1)
    covered = np.count_nonzero(np.abs(value - 1) <= factor * error)
    least, most = scipy.stats.binom.ppf([1e-4, 1 - 1e-4], groups, 0.95)
    assert 0.9 * groups < least <= covered <= most


def test_two_ways_to_a_ratio():
    draws = run(ellipsoid_sphere, eps=0.3, draws=2_000, chains=128, warmup=1_000)
    exact, ratio = ratio_on_a_grid(0.3), limpet.partition_ratio(draws)
    value, error = ratio_from_time(draws)
    assert abs(value - exact) < 4 * error
    assert abs(ratio.value - exact) < 4 * ratio.standard_error


def test_ladder_on_ellipsoid_and_sphere():
    eps = [0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4]
    before = tile._compile.cache_info().misses
    curve = climb(limpet.Target(ellipsoid_sphere, 1.0), eps=eps, draws=1_000)
    assert tile._compile.cache_info().misses - before <= 1
    exact = [*map(ratio_on_a_grid, eps[:2]), *map(ratio_along_curves, eps[2:])]
    assert curve["ratio"].dims == ("eps",)
    np.testing.assert_array_equal(curve["eps"], eps)
    assert missed(curve, exact).max() < 4
    assert (curve["standard_error"] < 0.05 * curve["eps"]).all()
    log_z = np.log(curve["ratio"] * 2 * np.pi * curve["eps"] ** 2)
    np.testing.assert_allclose(curve["log_z"], log_z)
    np.testing.assert_allclose(curve["log_z_error"], curve["standard_error"] / curve["ratio"])


def test_log_density_and_one_eps_per_constraint():
    """Gaussian x seen through two linear measurements: R is a ratio of two Gaussian densities."""
    normals = np.array([[1.0, 0.3], [0.5, -0.8], [0.2, 1.1]])
    seen = np.array([0.9, -0.4])

    def q(point):
        return jnp.append(point["a"], point["b"]) @ normals - seen

    def log_density(point):
        return -(point["a"] @ point["a"] + point["b"] ** 2) / 2

    def density(*eps):
        covariance = normals.T @ normals + np.diag(np.square(eps))
        return scipy.stats.multivariate_normal(cov=covariance).pdf(seen)

    eps = [[0.5, 0.2], 0.3, [0.05, 0.7]]
    target = limpet.Target(q, 1.0, log_density=log_density)
    curve = climb(target, {"a": [1.0, 0.0], "b": 0.5}, eps=eps)
    each = np.array([[0.5, 0.2], [0.3, 0.3], [0.05, 0.7]])
    exact = [density(*pair) / density(0, 0) for pair in each]
    assert curve["ratio"].dims == ("rung",)
    np.testing.assert_array_equal(curve["eps"], each)
    assert missed(curve, exact).max() < 4
    log_z = np.log(2 * np.pi * curve["ratio"]) + np.log(each).sum(axis=1)
    np.testing.assert_allclose(curve["log_z"], log_z)


def test_far_from_the_limit():
    """A stiff bond in six dimensions has R = <r^5>, where r is Gaussian, but positive."""
    eps = np.array([0.5, 0.3, 0.1])
    r = np.linspace(0, 6, 10_001)[:, None]
    exact = np.sum(r**5 * scipy.stats.norm.pdf(r, 1, eps), axis=0) * 6 / 10_000
    assert exact[0] > 4
    bond = limpet.Target(lambda x: jnp.array([jnp.linalg.norm(x) - 1]), 1.0)
    assert missed(climb(bond, np.eye(6)[0], eps=eps), exact).max() < 4


def test_walls_are_those_of_both_integrals():
    """A circle cut in two: either half has half of both."""
    circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.1, inside=lambda x: x[0])
    curve = climb(circle, [1.0, 0.0], eps=[0.1])
    assert missed(curve, 1.0) < 4


def test_a_flat_surface_is_its_own_limit():
    """Every move off and on is accepted, so nothing is uncertain."""
    line = limpet.Target(lambda x: x[:1], 0.1)
    draws = limpet.sample(line, [0.1, 0.1], draws=50, chains=4, warmup=0, kernel=limpet.SAS())
    assert limpet.partition_ratio(draws) == pytest.approx((1, 0), abs=1e-12)


def test_a_stored_run_has_the_same_ratio(tmp_path):
    stored = run(store=tmp_path / "run.zarr")
    assert limpet.partition_ratio(stored) == limpet.partition_ratio(run())


def test_rungs_do_not_share_their_luck():
    curve = climb(limpet.Target(two_spheres, 1.0), eps=[0.1, 0.1], draws=50, chains=4)
    assert curve["ratio"][0] != curve["ratio"][1]


def stop_at(rung, *numbers, phase="warmup"):
    """A progress callback that sends signals in a phase of a rung."""
    begun = []

    def show(now):
        if now.phase == "start":
            begun.append(now)
        if now.phase == phase and len(begun) == rung:
            for number in numbers:
                signal.raise_signal(number)

    return show


def interrupted(message, **options):
    target = limpet.Target(two_spheres, 1.0)
    with pytest.warns(limpet.InterruptedWarning, match=message) as said:
        curve = climb(target, eps=[0.1, 0.2, 0.3], draws=20, chains=4, **options)
    return curve, said.pop(limpet.InterruptedWarning).message.signal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_the_rungs_that_are_finished(number):
    curve, came = interrupted(r"^Interrupted: 2 of 3 rungs", progress=stop_at(3, number))
    assert came == number
    np.testing.assert_array_equal(curve["eps"], [0.1, 0.2])
    assert np.isfinite(curve["log_z"]).all()


def test_a_signal_in_the_first_rung_leaves_none():
    curve, _ = interrupted(r"^Interrupted: 0 of 3 rungs", progress=stop_at(1, signal.SIGINT))
    assert curve["ratio"].shape == curve["eps"].shape == (0,)


def test_ctrl_c_between_two_runs(monkeypatch):
    searches, find = [], sampling.find_vectors

    def find_once(*arguments):
        searches.append(arguments)
        if len(searches) == 2:
            signal.raise_signal(signal.SIGINT)
        return find(*arguments)

    monkeypatch.setattr(sampling, "find_vectors", find_once)
    curve, came = interrupted(r"^Interrupted: 1 of 3 rungs")
    assert came == signal.SIGINT
    np.testing.assert_array_equal(curve["eps"], [0.1])


def test_a_second_signal_stops_at_once():
    twice = stop_at(2, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        climb(limpet.Target(two_spheres, 1.0), eps=[0.1, 0.2], draws=20, chains=4, progress=twice)


def test_many_short_chains_are_worth_a_warning():
    with pytest.warns(limpet.LimpetWarning, match=r"^draws has 24 chains of 20 visits .*too small"):
        limpet.partition_ratio(run(draws=10, thin=2, chains=24))


def never_landing():
    return run(kernel=limpet.SAS(off_probability=0.9, on_probability=1e-12))


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        (lambda: np.zeros((4, 9)), r"^draws=ndarray: expected what limpet\.sample"),
        (
            lambda: run(kernel=limpet.RandomWalk()),
            r"kernel=RandomWalk.*kernel=limpet\.SAS\(\.\.\.\)",
        ),
        (
            lambda: run(kernel=limpet.SurfaceSampler()),
            r"^draws .*kernel=SurfaceSampler.*limpet\.SAS",
        ),
        (lambda: run(chains=3), r"^draws has 3 chains: expected 4 or more.*chains=4"),
        (lambda: run().isel(chain=[2]), r"^draws has 1 chains: expected 4 or more"),
        (lambda: run().isel(chain=2), r"^draws has no dimension 'chain'.*isel\(chain=\[0\]\)"),
        (never_landing, r"^draws has 0 tries of off and 0 of on .*expected some.*on_probability"),
    ],
)
def test_draws_without_a_ratio(draws, message):
    with pytest.raises(limpet.InputError, match=message):
        limpet.partition_ratio(draws())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": []}, r"^eps=\[\]: expected a sequence"),
        ({"eps": 0.1}, r"^eps=0\.1: expected a sequence of eps, such as \[0\.1, 0\.01\]"),
        ({"eps": [0.1, -0.2]}, r"^eps=-0\.2 is negative: expected a number above zero"),
        ({"eps": [0.1, 0]}, r"^eps=0: eps = 0 is the surface itself"),
        ({"eps": "ab"}, r"^eps='a': expected a number"),
        ({"eps": [0.1, [0.1, 0.2, 0.3]]}, r"^eps has length 3 but q returned m = 2"),
        ({"eps": [0.1, 1e-18]}, r"^eps=1e-18 is below what double precision resolves"),
        ({"kernel": limpet.RandomWalk()}, r"^kernel=RandomWalk\(.*expected limpet\.SAS"),
        ({"kernel": limpet.SAS}, r"^kernel=<class .*expected limpet\.SAS"),
        ({"chains": 3}, r"^chains=3: expected a whole number, 4 or more"),
        ({"draws": 1}, r"^draws=1: expected a whole number, 2 or more"),
        ({"seed": -1}, r"^seed=-1: expected a whole number"),
        ({"target": two_spheres}, r"^target=<function two_spheres.*expected a limpet\.Target"),
        ({"progress": 3}, r"^progress=3: expected True, False"),
    ],
)
def test_ladders_that_cannot_be_climbed(options, message):
    with pytest.raises(limpet.InputError, match=message):
        climb(**{"target": limpet.Target(two_spheres, 1.0), "eps": [0.1]} | options)
