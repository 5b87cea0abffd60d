"""`limpet.from_numpyro`: a NumPyro model as a target."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from limpet.errors import InputError
from limpet.models import base
from limpet.models.base import Model, Noise, Point
from limpet.models.target import ModelTarget

UNCONSTRAINED = "_unconstrained"  # what a site's numbers are called where they are not its own


def from_numpyro(
    model: Callable,
    /,
    *args: Any,
    sites: Sequence[str] | str | None = None,
    derivatives: str | None = None,
    **kwargs: Any,
) -> ModelTarget:
    """A NumPyro model as a target, which knows where to start: `limpet.sample(target)` follows.

    Observed sites with Gaussian noise (`Normal`, `LogNormal`, `MultivariateNormal`, in plates and
    with `to_event`) become constraints, with their scale as eps, known or unknown. Everything else
    is log density: priors, other likelihoods, masked or scaled sites, `factor`. Draws have the
    model's own variables and deterministic sites, with its plates as dimensions.

    Priors may be improper (`ImproperUniform`) if the posterior is not; that cannot be checked.
    A '/' in the name of a site, which xarray does not allow, becomes a dot.

    Parameters
    ----------
    model : callable
        The model.
    *args, **kwargs
        What the model is called with, as for `numpyro.infer.MCMC.run`.
    sites : sequence of str, optional
        Which observed sites become constraints: those with little noise are worth it most. Default:
        all that can.
    derivatives : {"forward", "reverse"}, optional
        How derivatives are taken, as for `limpet.Target`. A model's own argument of this name, or
        of that before it, goes in by `functools.partial`.

    Returns
    -------
    ModelTarget
        For `limpet.sample`, `limpet.resume` and the other functions that take a target.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> def model(y):
    ...     x = numpyro.sample("x", dist.Normal(0, 1).expand([2]))
    ...     numpyro.sample("y", dist.Normal(x @ x, 0.01), obs=y)
    >>> draws = limpet.sample(limpet.from_numpyro(model, 1.0), draws=200, chains=4)
    >>> bool(abs((draws.posterior["x"] ** 2).sum("x_dim") - 1).max() < 0.06)
    True
    """
    base.package("numpyro")
    if not callable(model):
        raise InputError(
            f"model={model!r}: expected a NumPyro model, a function; its arguments come after it."
        )
    return ModelTarget(NumPyroModel(model, args, kwargs, sites), derivatives)


class NumPyroModel(Model):
    """A NumPyro model with its arguments."""

    def __init__(self, model: Callable, args: tuple, kwargs: dict, chosen: Any) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self.name = getattr(model, "__name__", type(model).__name__)
        sites, values = self._first_run()
        _check_kinds(self.name, sites)
        self._latent = {
            name: _plain(name) for name, site in sites.items() if _is_sample(site, observed=False)
        }
        self.unknowns = tuple(self._latent.values())
        self._data = tuple(name for name, site in sites.items() if _is_data(site))
        gaussian = [name for name in self._data if _is_gaussian(sites[name])]
        others = {name: _why_not(site) for name, site in sites.items() if name not in gaussian}
        self.sites = base.chosen_sites(chosen, gaussian, others, self.name)
        for name in self._data:
            is_lognormal = name in self.sites and _kind(sites[name]) == "LogNormal"
            base.check_data(name, values[name], is_lognormal)
        self._names = self._names_of_numbers(sites)
        self.start = self._checked_start(values)
        self.observed = {_plain(name): np.asarray(values[name]) for name in self._data}
        self.dims, self.coords = _dims_and_coords(sites)
        base.check_names([*self.dims])

    def noise(self, point: Point) -> Noise:
        """The data that are constraints."""
        return base.gather(self._noises(point))

    def log_density(self, point: Point) -> jax.Array:
        """Everything else: priors with their Jacobians, and other likelihoods."""
        terms, _ = self._trace(point)
        return jnp.asarray(
            sum((term for name, term in terms.items() if name not in self.sites), start=0.0)
        )

    def variables(self, point: Point) -> dict[str, jax.Array]:
        """Latent and deterministic sites."""
        return {
            _plain(name): jnp.asarray(site["value"])
            for name, site in self._trace(point)[1].items()
            if site["type"] == "deterministic" or _is_sample(site, observed=False)
        }

    def log_likelihood(self, point: Point) -> dict[str, jax.Array]:
        """The log density of each datum, by observed site."""
        sites = self._trace(point)[1]
        return {
            _plain(name): site["fn"].log_prob(site["value"])
            for name, site in sites.items()
            if _is_data(site)
        }

    def predict(self, variables: xr.Dataset, seed: int) -> dict[str, np.ndarray]:
        """Data as the model would make them."""
        from numpyro import handlers

        def one(values: dict[str, Any], key: Any) -> dict[str, Any]:
            model = handlers.seed(handlers.uncondition(self.model), key)
            sites = handlers.trace(handlers.substitute(model, values)).get_trace(
                *self.args, **self.kwargs
            )
            return {_plain(name): sites[name]["value"] for name in self._data}

        values = {
            name: jnp.asarray(variables[plain].values) for name, plain in self._latent.items()
        }
        chains, draws = next(iter(values.values())).shape[:2]
        keys = jax.random.split(jax.random.key(seed), (chains, draws))
        made = jax.jit(jax.vmap(jax.vmap(one)))(values, keys)
        return {name: np.asarray(value) for name, value in made.items()}

    def _trace(self, point: Point) -> tuple[dict[str, Any], dict[str, Any]]:
        """The log density of each site at a point, and the sites."""
        from numpyro import handlers
        from numpyro.distributions.distribution import validation_enabled
        from numpyro.infer import util

        values = {name: point[given] for name, given in self._names.items()}
        # NumPyro's own way from unconstrained values, which also knows what is inside `scan`
        substitute = functools.partial(util._unconstrain_reparam, values)
        model = handlers.substitute(self.model, substitute_fn=substitute)
        with validation_enabled(False):  # numbers are checked where they come in
            return util.compute_log_probs(model, self.args, self.kwargs, {})

    def _noises(self, point: Point) -> list[Noise]:
        sites = self._trace(point)[1]
        return [_noise(sites[name]) for name in self.sites]

    def _first_run(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The sites of the model, and their values where its prior is, or about."""
        from numpyro import handlers, infer
        from numpyro.distributions.distribution import validation_enabled

        found: list[dict[str, Any]] = []

        def run(key: Any) -> dict[str, Any]:
            seeded = handlers.seed(self.model, key)
            model = handlers.substitute(seeded, substitute_fn=infer.init_to_median())
            found.append(handlers.trace(model).get_trace(*self.args, **self.kwargs))
            return {n: site["value"] for n, site in found[-1].items() if site["type"] == "sample"}

        try:
            with validation_enabled(False):  # NumPyro does not say which site is wrong
                values = jax.jit(run)(jax.random.key(0))  # one program, not one an operation
                jax.eval_shape(lambda key: run(key), jax.random.key(0))  # unknown to JAX: run again
        except jax.errors.JAXTypeError as error:
            raise InputError(
                f"model={self.name} cannot be traced by JAX: {_first_line(error)}. Write it with"
                " jax.numpy, and jnp.where instead of if."
            ) from error
        except Exception as error:
            raise InputError(
                f"model={self.name} could not be run: {type(error).__name__}: {_first_line(error)}."
                " Expected from_numpyro(model, *args, **kwargs) with what the model is called with."
            ) from error
        if _kinds(found[0]) != _kinds(found[-1]):
            raise InputError(
                f"model={self.name} has other sites when it is run again: expected the same sites"
                " and shapes every time."
            )
        return found[0], values

    def _names_of_numbers(self, sites: Mapping[str, Any]) -> dict[str, str]:
        """What the unconstrained numbers of each latent site are called."""
        from numpyro.distributions import constraints

        def name_of(name: str) -> str:
            support = sites[name]["fn"].support
            while isinstance(support, constraints.independent):
                support = support.base_constraint
            is_own = support is constraints.real or support is constraints.real_vector
            return self._latent[name] + ("" if is_own else UNCONSTRAINED)

        return {name: name_of(name) for name in self._latent}

    def _checked_start(self, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The unconstrained numbers of these values; refused if the model cannot do with them."""
        from numpyro.distributions.distribution import validation_enabled
        from numpyro.infer import util

        unconstrain = functools.partial(util.unconstrain_fn, self.model, self.args, self.kwargs)
        try:
            with validation_enabled(False):
                free = jax.jit(unconstrain)({name: values[name] for name in self._names})
            start = {given: np.asarray(free[name], float) for name, given in self._names.items()}
            noises = jax.jit(self._noises)(start)
            jax.eval_shape(self.log_density, start)
        except Exception as error:
            raise InputError(
                f"model={self.name} cannot be evaluated at the values of its unknowns alone:"
                f" {type(error).__name__}: {_first_line(error)}. It may draw random numbers by"
                " numpyro.sample only."
            ) from error
        for name, noise in zip(self.sites, noises, strict=True):
            base.check_noise(name, noise)
        return start


def _noise(site: Mapping[str, Any]) -> Noise:
    """The noise of a site that is Gaussian."""
    fn, kind, value = _inner(site["fn"]), _kind(site), site["value"]
    value = jnp.broadcast_to(value, jnp.broadcast_shapes(np.shape(value), site["fn"].shape()))
    if kind == "MultivariateNormal":
        return base.multivariate_normal_noise(value, fn.loc, fn.scale_tril)
    noise = base.normal_noise if kind == "Normal" else base.lognormal_noise
    return noise(value, fn.loc, fn.scale)


def _is_gaussian(site: Mapping[str, Any]) -> bool:
    """Whether the noise of a site is Gaussian, and all of it counts once."""
    from numpyro.distributions import LogNormal, MultivariateNormal, Normal

    kinds = Normal, LogNormal, MultivariateNormal
    return type(_inner(site.get("fn"))) in kinds and _is_data(site) and site["scale"] is None


def _kind(site: Mapping[str, Any]) -> str:
    return type(_inner(site["fn"])).__name__


def _inner(fn: Any) -> Any:
    """A distribution without plates and `to_event`, which change only how it is counted."""
    from numpyro.distributions import ExpandedDistribution, Independent

    while isinstance(fn, ExpandedDistribution | Independent):
        fn = fn.base_dist
    return fn


def _is_sample(site: Mapping[str, Any], observed: bool) -> bool:
    return site["type"] == "sample" and site["is_observed"] == observed


def _is_data(site: Mapping[str, Any]) -> bool:
    """Whether a site is observed; `factor` is not, though NumPyro says so."""
    from numpyro.distributions import Unit

    return _is_sample(site, observed=True) and not isinstance(_inner(site["fn"]), Unit)


def _plain(name: str) -> str:
    return name.replace("/", ".")


def _kinds(sites: Mapping[str, Any]) -> dict[str, Any]:
    return {name: (site["type"], np.shape(site["value"])) for name, site in sites.items()}


def _why_not(site: Mapping[str, Any]) -> str:
    """Why a site is not a constraint."""
    from numpyro.distributions import MaskedDistribution

    if _is_sample(site, observed=False):
        return "is not observed"
    if site["type"] != "sample":
        return f"is a {site['type']} site"
    if isinstance(_inner(site["fn"]), MaskedDistribution):
        return "is masked, so only a part of it is observed"
    if site["scale"] is not None:
        return "has a scaled log density"
    return f"has no Gaussian noise, but {_kind(site)}"


def _check_kinds(name: str, sites: Mapping[str, Any]) -> None:
    """Refuse sites that no chain of a continuous density can have."""
    for site_name, site in sites.items():
        what = f"model={name}: site {site_name!r}"
        if site["type"] in ("param", "mutable"):
            raise InputError(
                f"{what} is {site['type']}, which sampling does not change: expected sample sites;"
                " give numbers that are fixed as arguments."
            )
        if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
            size, part = site["args"][:2]
            raise InputError(
                f"{what} is a plate that takes {part} of {size} at random: expected all of them,"
                " without subsample_size."
            )
        if _is_sample(site, observed=False):
            if site["fn"].support.is_discrete:
                raise InputError(
                    f"{what} is discrete and not observed: expected continuous unknowns; sum over"
                    " its values in the model."
                )
            if not np.size(site["value"]):
                raise InputError(f"{what} has no numbers, shape {np.shape(site['value'])}.")
    if not any(_is_sample(site, observed=False) for site in sites.values()):
        raise InputError(f"model={name} has no unknowns: expected sample sites without obs.")


def _dims_and_coords(sites: Mapping[str, Any]) -> tuple[dict, dict]:
    """The plates that each site is in, by axis, and the places in each plate."""
    dims: dict[str, tuple[str | None, ...]] = {}
    coords: dict[str, Any] = {}
    names = {_plain(name) for name, site in sites.items() if site["type"] != "plate"}
    for name, site in sites.items():
        if site["type"] not in ("sample", "deterministic") or (
            _is_sample(site, observed=True) and not _is_data(site)
        ):
            continue
        shape = np.shape(site["value"])
        own: list[str | None] = [None] * len(shape)
        events = len(site["fn"].event_shape) if site["type"] == "sample" else 0
        for frame in site["cond_indep_stack"]:
            axis = len(shape) - events + frame.dim
            # what is computed in a plate need not have its axis
            if 0 <= axis < len(shape) and shape[axis] == frame.size and frame.name not in names:
                own[axis] = _plain(frame.name)
                coords[_plain(frame.name)] = np.arange(frame.size)
        dims[_plain(name)] = tuple(own)
    return dims, coords


def _first_line(error: Exception) -> str:
    return (str(error).strip().split("\n")[0] or "no message").rstrip(".")
