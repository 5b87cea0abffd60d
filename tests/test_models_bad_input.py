"""What `from_numpyro` and `from_pymc` refuse, each in words of its own."""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pymc as pm
import pytest

import limpet

Y = np.array([1.0, 2.0, 3.0])


def line(y, scale=0.1, prior=None):
    x = numpyro.sample("x", dist.Normal(0, 1) if prior is None else prior)
    numpyro.deterministic("twice", 2 * x)
    numpyro.sample("y", dist.Normal(x, scale), obs=y)


def counts(y):
    x = numpyro.sample("x", dist.Normal(0, 1))
    numpyro.sample("y", dist.Poisson(jnp.exp(x)), obs=y)


def mixture(y):
    x = numpyro.sample("x", dist.Normal(0, 1))
    k = numpyro.sample("k", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(x + k, 0.1), obs=y)


def subsampled(y):
    x = numpyro.sample("x", dist.Normal(0, 1))
    with numpyro.plate("N", 3, subsample_size=2):
        numpyro.sample("y", dist.Normal(x, 0.1), obs=numpyro.subsample(y, event_dim=0))


def masked(y):
    x = numpyro.sample("x", dist.Normal(0, 1).expand([3]))
    with numpyro.handlers.mask(mask=np.array([True, False, True])):
        numpyro.sample("y", dist.Normal(x, 0.1), obs=y)
    numpyro.sample("z", dist.Normal(x.sum(), 0.1), obs=1.0)


def partial(y):
    x = numpyro.sample("x", dist.Normal(0, 1))
    mask = np.array([True, False, True])
    numpyro.sample("y", dist.Normal(x, 0.1).expand([3]), obs=y, obs_mask=mask)


def scaled(y):
    x = numpyro.sample("x", dist.Normal(0, 1))
    with numpyro.handlers.scale(scale=2.0):
        numpyro.sample("y", dist.Normal(x, 0.1), obs=y)


def learned(y):
    a = numpyro.param("a", 1.0)
    line(a * y)


def remembering(y):
    numpyro.primitives.mutable("state", 1.0)
    line(y)


def empty(y):
    numpyro.sample("nothing", dist.Normal(0, 1).expand([0]))
    line(y)


def known(y):
    numpyro.sample("y", dist.Normal(0, 1), obs=y)


def branching(y):
    x = numpyro.sample("x", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(x if x > 0 else -x, 0.1), obs=y)


def rolling(y):
    x = numpyro.sample("x", dist.Normal(0, 1))
    noise = jax.random.normal(numpyro.prng_key())
    numpyro.sample("y", dist.Normal(x + noise, 0.1), obs=y)


class Changing:
    """A model with another site each time."""

    calls = 0

    def __call__(self, y):  # noqa: D102
        self.calls += 1
        numpyro.sample(f"x{self.calls}", dist.Normal(0, 1))
        line(y)


def logarithmic(y):
    x = numpyro.sample("x", dist.Normal(0, 1))
    numpyro.sample("y", dist.LogNormal(x, 0.1), obs=y)


def undefined(y):
    x = numpyro.sample("x", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(jnp.sqrt(-1 - x**2), 0.1), obs=y)


NUMPYRO = {
    "not a model": (3.0, (), {}, "model=3.0: expected a NumPyro model"),
    "arguments missing": (line, (), {}, "could not be run: TypeError: .*'y'.*what the model is"),
    "argument unknown": (line, (Y,), {"z": 1}, "could not be run: TypeError: .*'z'"),
    "data missing": (line, (None,), {}, "no observed site with Gaussian noise.*'y' is not obser"),
    "no Gaussian site": (counts, (3,), {}, "no observed site with Gaussian.*'y' has no Gaussian"),
    "discrete unknowns": (mixture, (Y,), {}, "site 'k' is discrete and not observed"),
    "scale of zero": (line, (Y, 0.0), {}, "site 'y' has noise of scale 0.0 at the start"),
    "scale of NaN": (line, (Y, np.nan), {}, "site 'y' has noise of scale nan at the start"),
    "NaN data": (line, ([1.0, np.nan],), {}, r"site 'y' is not finite: number \[1\] is nan"),
    "subsampling": (subsampled, (Y,), {}, "site 'N' is a plate that takes 2 of 3 at random"),
    "masked": (masked, (Y,), {"sites": "y"}, "'y' is masked, so only a part of it is observed"),
    "observed in part": (partial, (Y,), {}, "no observed site.*'y_observed' is masked"),
    "scaled": (scaled, (Y,), {"sites": ["y"]}, "'y' has a scaled log density"),
    "parameters": (learned, (Y,), {}, "site 'a' is param, which sampling does not change"),
    "mutable": (remembering, (Y,), {}, "site 'state' is mutable, which sampling does not change"),
    "no numbers": (empty, (Y,), {}, r"site 'nothing' has no numbers, shape \(0,\)"),
    "no data": (line, (np.zeros(0),), {}, r"site 'y' has no numbers, shape \(0,\)"),
    "no unknowns": (known, (Y,), {}, "model=known has no unknowns"),
    "branches": (branching, (Y,), {}, "cannot be traced by JAX.*jnp.where instead of if"),
    "random numbers": (rolling, (Y,), {}, "unknowns alone.*by numpyro.sample only"),
    "other sites": (Changing(), (Y,), {}, "has other sites when it is run again"),
    "data below zero": (logarithmic, (-Y,), {}, r"is LogNormal, but number \[0\].*is -1.0"),
    "mean undefined": (undefined, (Y,), {}, "'y': its mean, or its covariance, is not finite"),
    "sites unknown": (line, (Y,), {"sites": ["z"]}, "'z' is not a site of it. Expected .*: 'y'"),
    "sites unobserved": (line, (Y,), {"sites": "x"}, "sites='x': 'x' is not observed"),
    "sites computed": (line, (Y,), {"sites": "twice"}, "'twice' is a deterministic site"),
    "sites not Gaussian": (counts, (3,), {"sites": "y"}, "'y' has no Gaussian noise, but Poisson"),
    "sites empty": (line, (Y,), {"sites": []}, r"sites=\[\]: expected the names of observed"),
    "sites a number": (line, (Y,), {"sites": 3}, "sites=3: expected the names of observed"),
}


@pytest.mark.parametrize("case", NUMPYRO)
def test_numpyro_models_are_refused_in_words(case):
    model, args, kwargs, message = NUMPYRO[case]
    with pytest.raises(limpet.InputError, match=message) as caught:
        limpet.from_numpyro(model, *args, **kwargs)
    assert len(str(caught.value)) < 600


def pymc_model(**options):
    """A line through data; what is given takes the place of its parts."""
    with pm.Model() as model:
        x = options["x"]() if "x" in options else pm.Normal("x")
        pm.Deterministic("twice", 2 * x)
        if "more" in options:
            options["more"](x)
        if "y" in options:
            options["y"](x)
        else:
            scale = options.get("scale", 0.1)
            pm.Normal("y", x, scale, observed=options.get("data", Y))
    return model


PARTLY = np.ma.masked_array([1.0, 2.0], [False, True])
PYMC = {
    "not a model": (lambda: 3.0, {}, "model=3.0: expected a pymc.Model"),
    "no Gaussian variable": (
        lambda: pymc_model(y=lambda x: pm.Poisson("y", pm.math.exp(x), observed=3)),
        {},
        "no observed site with Gaussian noise.*'y' has no Gaussian noise, but Poisson",
    ),
    "discrete unknowns": (
        lambda: pymc_model(more=lambda x: pm.Bernoulli("k", 0.5)),
        {},
        "'k' is discrete and not observed",
    ),
    "scale of zero": (lambda: pymc_model(scale=0.0), {}, "'y' has noise of scale 0.0 at the start"),
    "infinite data": (lambda: pymc_model(data=[1.0, np.inf]), {}, "'y' is not finite"),
    "no data": (lambda: pymc_model(data=np.zeros(0)), {}, "'y' has no numbers"),
    "subsampling": (
        lambda: pymc_model(y=lambda x: pm.Normal("y", x, 1, observed=Y, total_size=30)),
        {},
        r"'y' takes a part of its data at random \(total_size\)",
    ),
    "observed in part": (
        lambda: pymc_model(y=lambda x: pm.MvNormal("y", [x, x], np.eye(2), observed=PARTLY)),
        {"sites": "y_observed"},
        "'y_observed' is observed only in part",
    ),
    "no unknowns": (
        lambda: pymc_model(x=lambda: pm.Data("x", 1.0)),
        {},
        "has no unknowns",
    ),
    "sites unknown": (pymc_model, {"sites": ["z"]}, "'z' is not a site of it"),
    "sites unobserved": (pymc_model, {"sites": ["x"]}, "'x' is not observed"),
    "sites computed": (pymc_model, {"sites": ["twice"]}, "'twice' is not observed"),
    "sites a potential": (
        lambda: pymc_model(more=lambda x: pm.Potential("p", -(x**2))),
        {"sites": ["p"]},
        "'p' is a Potential",
    ),
}


@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize("case", PYMC)
def test_pymc_models_are_refused_in_words(case):
    make, options, message = PYMC[case]
    model = make()
    with pytest.raises(limpet.InputError, match=message) as caught:
        limpet.from_pymc(model, **options)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("package", ["numpyro", "pymc"])
def test_without_the_package_it_says_how_to_install_it(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    message = re.escape(f"python -m pip install 'limpet[{package}]'")
    with pytest.raises(limpet.LimpetError, match=message):
        getattr(limpet, f"from_{package}")(line)


def test_improper_priors_are_allowed_where_the_posterior_is_proper():
    flat = dist.ImproperUniform(dist.constraints.real, (), ())
    target = limpet.from_numpyro(line, np.array([3.0]), 0.5, prior=flat)
    point = {"x": jnp.array(2.0)}
    assert float(target.log_density(point)) == pytest.approx(-np.log(0.5 * np.sqrt(2 * np.pi)))
    with pm.Model() as model:
        x = pm.Flat("x")
        pm.Normal("y", x, 0.5, observed=[3.0])
    assert float(limpet.from_pymc(model).log_density(point)) == pytest.approx(
        float(target.log_density(point))
    )


def test_a_start_is_needed_where_no_model_has_one():
    with pytest.raises(limpet.InputError, match="start is missing"):
        limpet.sample(limpet.Target(lambda x: x[:1], 0.1))


def test_a_start_must_be_one_of_the_model():
    target = limpet.from_numpyro(line, 1.0)
    with pytest.raises(limpet.InputError, match=r"start has z: .*expected x: "):
        limpet.sample(target, {"z": 1.0})


@pytest.mark.parametrize("words", [{"dims": {"x": []}}, {"coords": {}}], ids=["dims", "coords"])
def test_a_model_has_its_own_names_of_axes(words):
    target = limpet.from_numpyro(line, 1.0)
    (name,) = words
    message = rf"^{name} does not fit target=ModelTarget\(.*numpyro\.plate or pymc\.Model\(coords="
    with pytest.raises(limpet.InputError, match=message):
        limpet.sample(target, **words)


def test_draws_of_others_are_not_translated():
    target = limpet.from_numpyro(line, 1.0)
    with pytest.raises(limpet.InputError, match="no variable 'x' of shape"):
        target.translate(limpet_draws())
    with pytest.raises(limpet.InputError, match="no variable 'x'"):
        target.predict(limpet_draws())


def limpet_draws():
    circle = limpet.Target(lambda p: p["z"][:1], 0.1)
    options = {"draws": 2, "chains": 2, "warmup": 0, "progress": False}
    return limpet.sample(circle, {"z": np.ones(2)}, **options)
