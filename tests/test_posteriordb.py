"""Models of posteriordb, and its reference draws.

A mean is off by more than four standard errors once in 16,000 times if all is well; there are 16.
"""

import bayes
import numpy as np
import pytest

import limpet

pytestmark = pytest.mark.optimized


def check(draws, truth):
    """Means within four standard errors, deviations within 5 %; `draws` has (chain, draw)."""
    for name, (mean, deviation) in truth.items():
        x = draws[name].values
        error = np.sqrt(x.var() * limpet.autocorrelation_time(x) / x.size)
        combined = np.hypot(error, deviation / np.sqrt(bayes.REFERENCE_DRAWS))
        z = (x.mean() - mean) / combined
        print(f"{name} {x.mean():.6g}, {z:+.2f} errors; deviation {x.std() / deviation - 1:+.2%}")
        assert abs(z) < 4, name
        assert abs(x.std() / deviation - 1) < 0.05, name


def schools(posterior):
    theta = posterior["theta"]
    named = {"theta_1": theta.isel(school=0), "theta_8": theta.isel(school=7)}
    return {"mu": posterior["mu"], "tau": posterior["tau"], **named}


def test_eight_schools_by_numpyro():
    target = limpet.from_numpyro(bayes.eight_schools, bayes.SCHOOLS, bayes.SCHOOLS_SCALE)
    draws = limpet.sample(target, draws=2_000, progress=False)
    check(schools(draws.posterior), bayes.SCHOOLS_TRUTH)


@pytest.mark.slow  # a target made of PyMC's model is sampled in test_models as well
def test_eight_schools_by_pymc():
    target = limpet.from_pymc(bayes.eight_schools_in_pymc())
    draws = limpet.sample(target, draws=2_000, progress=False)
    check(schools(draws.posterior), bayes.SCHOOLS_TRUTH)


@pytest.mark.slow
def test_lotka_volterra_by_numpyro():
    target = limpet.from_numpyro(bayes.lotka_volterra, bayes.PELTS)
    draws = limpet.sample(target, draws=1_000, chains=32, progress=False)
    names = {
        "rates": ("alpha", "beta", "gamma", "delta"),
        "first": ("hare_0", "lynx_0"),
        "sigma": ("sigma_hare", "sigma_lynx"),
    }
    named = {
        name: draws.posterior[variable][..., k]
        for variable, own in names.items()
        for k, name in enumerate(own)
    }
    check(named, bayes.PELTS_TRUTH)
