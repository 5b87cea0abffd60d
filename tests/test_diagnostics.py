"""Tau, ESS, R-hat and Monte Carlo errors: against what is true, against ArviZ, and in any pieces.

The numbers of draws, chains and scales are those that users have, not round ones. Estimates are
compared as medians of 100 repeats, which their noise moves by a sixth of what is allowed at most:
false alarms are far rarer than one in a million.
"""

import re
import subprocess
import sys
import tracemalloc
import warnings

import handmade
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
import scipy.stats
from arviz_stats.base import array_stats
from hypothesis import given, settings
from hypothesis import strategies as st

import limpet
from limpet.paper import two_spheres
from limpet.report import advice, diagnostics
from limpet.report.diagnostics import measure
from limpet.run import mixing, online

pytestmark = pytest.mark.optimized

CIRCLE = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)


def autoregressive(rng, rho, chains, draws):
    """Chains with the correlation rho^lag from the first draw on, and a variance of one."""
    noise = rng.normal(size=(chains, draws))
    noise[:, 1:] *= np.sqrt(1 - rho**2)
    return scipy.signal.lfilter([1], [1, -rho], noise, axis=1)


def measured(x):
    """The measures of x (chain, draw), each a number."""
    found = measure(lambda chains, draws: x[chains, draws, None], *x.shape, 1)
    return diagnostics.Measures(*(float(numbers[0]) for numbers in found))


def tree(x):
    """A result with these draws (chain, draw, ...), made by hand."""
    return handmade.result(["hard"], {"accepted": 7, "forward": 3}, x=x)


# tau


@pytest.mark.parametrize(
    ("rho", "chains", "draws"),
    [(rho, 16, 1_000) for rho in (-0.9, -0.7, -0.5, 0.0, 0.5, 0.9)]
    + [(0.99, 16, 20_000), (-0.5, 16, 148), (-0.7, 16, 148), (-0.9, 16, 148), (-0.9, 5, 20_001)],
)
def test_tau_of_chains_that_alternate_and_of_slow_ones(rho, chains, draws):
    rng, truth = np.random.default_rng(0), (1 + rho) / (1 - rho)
    repeats = [
        limpet.autocorrelation_time(autoregressive(rng, rho, chains, draws)) for _ in range(100)
    ]
    assert np.median(repeats) == pytest.approx(truth, rel=0.1)
    assert truth / 2 < min(repeats) <= max(repeats) < 2 * truth


@pytest.mark.parametrize(
    "parts", [((0.5, -0.95), (0.5, -0.3)), ((0.9, -0.9), (0.1, 0.5)), ((0.5, -0.8), (0.5, 0.9))]
)
def test_tau_of_what_alternates_and_is_slow_at_once(parts):
    """A reversible chain has such correlations: sums of powers, of either sign."""
    rng, repeats = np.random.default_rng(1), []
    truth = sum(share * (1 + rho) / (1 - rho) for share, rho in parts)
    for _ in range(100):
        x = sum(share**0.5 * autoregressive(rng, rho, 16, 1_000) for share, rho in parts)
        repeats.append(limpet.autocorrelation_time(x))
    assert np.median(repeats) == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize(("chains", "draws"), [(129, 20), (130, 37), (3, 501)])
def test_tau_of_short_chains(chains, draws):
    rng = np.random.default_rng(2)
    repeats = [measured(rng.normal(size=(chains, draws))).tau for _ in range(100)]
    assert np.median(repeats) == pytest.approx(1, rel=0.1)


def test_a_chain_that_alternates_exactly_errs_by_one_draw():
    x = np.tile([1.0, -1.0], (3, 50))
    assert limpet.autocorrelation_time(x) == pytest.approx(1 / x.size)


# R-hat, mcse and ESS


@pytest.mark.parametrize(("chains", "draws"), [(2, 24), (3, 100), (129, 50), (16, 4_096)])
@pytest.mark.parametrize("apart", [0.0, 0.3, 1e4])
def test_r_hat_is_arvizs_split_r_hat(chains, draws, apart):
    rng = np.random.default_rng(3)
    x = autoregressive(rng, 0.5, chains, draws) * np.linspace(1, 1 + apart, chains)[:, None]
    x += apart * rng.normal(size=(chains, 1)) + 7
    both = [array_stats.rhat(y, method="split") for y in (x, (x - x.mean()) ** 2)]
    assert measured(x).r_hat == pytest.approx(max(both), rel=1e-6)


def test_r_hat_sees_chains_that_are_spread_differently():
    x = np.random.default_rng(4).normal(size=(4, 1_000)) * np.array([[1.0], [2.0], [1.0], [2.0]])
    assert array_stats.rhat(x, method="split") < 1.01
    assert measured(x).r_hat > 1.04


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("chains", "draws"), [(5, 3_000), (128, 1_001), (16, 20_000)])
def test_mcse_is_arvizs_where_chains_do_not_alternate(rho, chains, draws):
    rng, ratios = np.random.default_rng(5), []
    for _ in range(5):
        x = autoregressive(rng, rho, chains, draws)
        ratios.append(measured(x).mcse / array_stats.mcse(x, method="mean"))
    assert np.mean(ratios) == pytest.approx(1, abs=0.02)


@settings(max_examples=60)
@given(
    chains=st.sampled_from([1, 3, 5, 129, 130]),
    draws=st.integers(2, 90),
    rho=st.sampled_from([-0.9, 0.0, 0.9]),
    size=st.sampled_from([1e-200, 1e-9, 1.0, 1e200]),
    level=st.sampled_from([0.0, -1.0, 1e3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_measures_fit_together_whatever_the_draws(chains, draws, rho, size, level, seed):
    x = size * (level + autoregressive(np.random.default_rng(seed), rho, chains, draws))
    before = x.copy()
    found = measured(x)
    np.testing.assert_array_equal(x, before)
    assert found.mean == pytest.approx(x.mean(), rel=1e-12, abs=1e-12 * size)
    assert found.sd == pytest.approx((x / size).std(ddof=1) * size, rel=1e-6)
    assert 1 / x.size * (1 - 1e-12) <= found.tau < 4 * draws
    assert found.ess == pytest.approx(x.size / found.tau)
    assert found.mcse == pytest.approx(found.sd / np.sqrt(found.ess))
    assert found.r_hat > 0 or draws < 4


@pytest.mark.parametrize(("chains", "draws"), [(3, 9_001), (130, 50)])
def test_pieces_change_nothing(chains, draws, monkeypatch):
    x = np.random.default_rng(6).normal(size=(chains, draws, 5)).cumsum(axis=1)
    x[:, :, 3] = 2.5

    def read(chain, draw):
        return x[chain, draw]

    whole = measure(read, *x.shape)
    for name, value in (("VALUES_AT_ONCE", 50), ("SUMS_AT_ONCE", 1), ("CHAINS_AT_ONCE", 2)):
        monkeypatch.setattr(diagnostics, name, value)
    for one, other in zip(whole, measure(read, *x.shape), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    assert np.isnan(whole.tau).tolist() == [False, False, False, True, False]


# the Monte Carlo error, of default runs on problems with known means


def bonds(x):
    """Two stiff bonds, from the origin."""
    bead = jnp.concatenate([jnp.zeros((1, 3)), x["bead"]])
    return jnp.sum(jnp.diff(bead, axis=0) ** 2, axis=1) - 1


SPHERE = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.1)
EXACT = {
    "circle": (CIRCLE, [1.0, 0.0], 0),
    "two spheres": (limpet.Target(two_spheres, 0.05), [1.0, 0.0, 0.0], [0, -0.5, 0.5]),
    "trimer": (limpet.Target(bonds, 0.05), {"bead": np.array([[1, 0.2, 0], [1.5, 1, 0.3]])}, 0),
    "sphere": (SPHERE, [1.0, 0, 0, 0, 0, 0], 0),  # on which draws alternate: tau is 0.8
}


def test_mcse_covers_the_truth_at_its_nominal_rate():
    """The error in units of mcse is standard normal: its square is 1 on average, 95 % below 1.96^2.

    Of 85 errors some belong together (those of two beads that are bound, say), so that they count
    as 60. Then each of the two checks fails once in 20,000 suites.
    """
    errors = []
    for target, start, truth in EXACT.values():
        for seed in range(5):
            table = limpet.summary(limpet.sample(target, start, seed=seed, progress=False))
            errors.append((table.variables["mean"] - truth) / table.variables["mcse"])
    z = np.concatenate(errors)
    assert z.size == 85
    least, most = scipy.stats.chi2.ppf([2.5e-5, 1 - 2.5e-5], 60) / 60
    assert least < np.mean(z**2) < most
    assert np.mean(np.abs(z) > 1.96) < scipy.stats.binom.isf(5e-5, 60, 0.05) / 60


# what progress and warnings tell


def told(x, draws=None):
    """What is told of draws x (chain, draw, variable) while they come, tile after tile."""
    watches = []
    for first in range(0, len(x), 128):
        tile = x[first : first + 128]
        watched = online.OnlineDiagnostics(len(tile), x.shape[2])
        for at in range(0, x.shape[1], 77):
            part = tile[:, at : at + 77]
            chain, draw = np.indices(part.shape[:2])
            block = np.full(chain.size, at)
            watched.add(block, chain.ravel(), at + draw.ravel(), part.reshape(-1, x.shape[2]))
        watches.append(watched)
    return online.mixing(watches, x.shape[1] if draws is None else draws)


@pytest.mark.parametrize("rho", [-0.9, 0.0, 0.9])
@pytest.mark.parametrize(("chains", "draws"), [(5, 1_003), (129, 640), (300, 101), (16, 40)])
def test_what_is_told_on_the_way_is_the_summary(rho, chains, draws):
    rng = np.random.default_rng(7)
    x = np.stack([1e4 + autoregressive(rng, rho, chains, draws) for _ in range(2)], axis=-1)
    x[: chains // 2] += 0.1  # where tiles and chains are not alike
    found, now = measure(lambda chain, draw: x[chain, draw], *x.shape), told(x)
    assert now.r_hat == pytest.approx(found.r_hat.max(), abs=0.01)
    if now.r_hat <= mixing.APART:
        # 256 batches or more: sqrt(6 / 256) is 15 %, and this four times that
        assert now.ess == pytest.approx(found.ess.min(), rel=0.6)


def test_draws_that_fill_whole_batches_have_the_r_hat_of_the_summary():
    x = np.random.default_rng(8).normal(size=(130, 256, 3)).cumsum(axis=1)
    found = measure(lambda chain, draw: x[chain, draw], *x.shape)
    assert told(x).r_hat == pytest.approx(found.r_hat.max(), rel=1e-9)
    part = measure(lambda chain, draw: x[chain, draw], 130, 128, 3)
    assert told(x, 128).r_hat == pytest.approx(part.r_hat.max(), rel=1e-9)


@pytest.mark.parametrize("draws", [2, 19])
def test_too_few_draws_tell_nothing_on_the_way(draws):
    assert told(np.random.default_rng(9).normal(size=(4, draws, 1))) == online.UNKNOWN


def test_no_effective_sample_size_while_chains_disagree():
    x = np.random.default_rng(10).normal(size=(128, 500, 1)) + 1e4 * np.arange(128)[:, None, None]
    now = told(x)
    assert now.r_hat > 10_000
    assert np.isnan(now.ess)
    # a chain is worth one draw, no more
    assert measured(x[:, :, 0]).ess == pytest.approx(128, rel=0.05)


def warnings_of(target, start, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draws = limpet.sample(target, start, progress=False, **options)
    return draws, [str(w.message) for w in caught if w.category is limpet.MixingWarning]


def far(x):
    """A plane, on which the density ends far from the start."""
    return jnp.array([x[1]])


@pytest.mark.parametrize(
    ("count", "made"), [(1, "1 draw per chain is"), (2, "2 draws per chain are")]
)
def test_few_draws_from_a_far_start_are_told_to_be_few(count, made):
    target = limpet.Target(far, eps=0.01, log_density=lambda x: -((x[0] - 1) ** 2) / 2)
    kernel = limpet.RandomWalk(step_size=0.01)
    draws, said = warnings_of(target, [900.0, 0.0], draws=count, warmup=0, chains=16, kernel=kernel)
    assert draws.posterior["x"][..., 0].mean() > 500
    assert len(said) == 1
    assert re.match(rf"{made} too few to tell .* draw at least 20 per chain", said[0])


def nested(x):
    """Two circles about one middle: the means of chains on either agree."""
    return jnp.array([(x @ x - 1) * (x @ x - 9) / 9])


def test_chains_that_disagree_get_no_number_of_draws():
    kernel = limpet.SurfaceSampler(step_size=0.1)
    start = [[1.0, 0.0], [3.0, 0.0]] * 8
    _, said = warnings_of(limpet.Target(nested, 0.01), start, draws=300, warmup=0, kernel=kernel)
    assert len(said) == 1
    assert re.match(r"R-hat of x\[\d\] is [\d.]+, above 1.01: the chains disagree", said[0])
    assert "draw about" not in said[0].lower()


def test_the_warnings_numbers_are_those_of_the_summary():
    draws, said = warnings_of(CIRCLE, [1.0, 0.0], draws=50, chains=5, seed=4)
    ess = limpet.summary(draws).variables["ess"].values
    assert f"sample size of x[{np.argmin(ess)}] is {ess.min():.0f}, of 250 draws" in said[-1]


def test_a_long_run_is_not_read_again_for_its_warnings(monkeypatch):
    monkeypatch.setattr(advice, "MOST_VALUES_AGAIN", 0)
    monkeypatch.setattr(advice, "measure_variables", None)
    _, said = warnings_of(CIRCLE, [1.0, 0.0], draws=50, chains=5, seed=4)
    assert "The effective sample size" in said[-1]


def test_a_variable_that_never_changed_is_said_so():
    x = np.random.default_rng(11).normal(size=(4, 100, 2))
    x[..., 1] = 1 / 3
    table = limpet.summary(tree(x))
    assert table.variables["mean"][1] == 1 / 3
    assert np.isnan(table.variables.isel(variable=1)[["mcse", "tau", "ess", "r_hat"]]).all()
    assert re.search(r"x\[1\] .*never changed", str(table))
    assert "nan" not in str(table)


# memory


@pytest.mark.parametrize(
    ("chains", "draws", "variables"),
    [(128, 50_001, 3), (1, 10_000_000, 2), (2_000, 100, 100), (128, 1_001, 200)],
)
def test_memory_does_not_grow_with_the_draws(chains, draws, variables):
    """160 MB of draws and more, which are nowhere in memory."""
    noise = np.random.default_rng(12).normal(size=(128, 2**16, 1))

    def read(chain, draw):
        at = draw.start % 1_000
        some = noise[: chain.stop - chain.start, at : at + draw.stop - draw.start]
        return np.broadcast_to(some, (*some.shape[:2], variables))

    if chains == 1:  # one chain is read in longer pieces than there is noise
        noise = np.tile(noise[:1], (1, 20, 1))
    tracemalloc.start()
    try:
        measure(read, chains, draws, variables)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 130e6


LOOK = r"""
import pathlib, re, sys
import limpet

def peak():  # in MB; getrusage would begin with that of the process that started this one
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1e3

draws = limpet.open(sys.argv[1])
before = peak()
limpet.summary(draws)
print(draws.posterior["x"].nbytes / 1e6, before, peak() - before)
limpet.plot(draws)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_a_summary_of_a_large_store_takes_little_memory(tmp_path):
    """200 MB of draws within 120 MB, and a picture of them, with matplotlib, within 220 MB."""
    store = tmp_path / "run.zarr"
    options = {"draws": 66_000, "kernel": limpet.RandomWalk(), "progress": False}
    limpet.sample(SPHERE, np.eye(6)[0][:3], store=store, **options)
    command = [sys.executable, "-c", LOOK, str(store)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    size, before, summary, plot = map(float, said)
    print(f"{size:.0f} MB of draws, {before:.0f} MB at first; {summary:.0f} and {plot:.0f} MB more")
    assert size > 200
    assert 1 < summary < 120
    assert plot < 220
