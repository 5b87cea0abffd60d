"""What limpet asks of a model, whoever's language it is written in.

A model is a log density and some data with Gaussian noise, as functions of one *unconstrained*
point: a dict of arrays whose entries may be any numbers, such as the logarithm of what is positive.
"""

import abc
import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.interpreters.partial_eval import dce_jaxpr

from limpet.errors import InputError, LimpetError

Point = Mapping[str, Any]


class Noise(NamedTuple):
    """Data with Gaussian noise at a point: what is known of them is |q / eps|^2 / 2."""

    q: jax.Array  # how far the data are from where the model says
    eps: jax.Array  # how far they stray
    log_volume: jax.Array  # what the log density loses besides sum(log(eps)), 2 pi included


class Model(abc.ABC):
    """A model as functions of an unconstrained point, and what its numbers are called."""

    name: str
    sites: tuple[str, ...]  # the observed sites that are constraints
    unknowns: tuple[str, ...]  # the model's own names of what is not observed
    start: dict[str, np.ndarray]  # an unconstrained point
    dims: dict[str, tuple[str | None, ...]]  # of variables and data; None where nobody named it
    coords: dict[str, Sequence[Any]]
    observed: dict[str, np.ndarray]

    @abc.abstractmethod
    def noise(self, point: Point) -> Noise:
        """The data that are constraints."""

    @abc.abstractmethod
    def log_density(self, point: Point) -> jax.Array:
        """Everything else: priors with their Jacobians, and other likelihoods."""

    @abc.abstractmethod
    def variables(self, point: Point) -> dict[str, jax.Array]:
        """The model's own variables, and what it computes from them."""

    @abc.abstractmethod
    def log_likelihood(self, point: Point) -> dict[str, jax.Array]:
        """The log density of each datum, by observed site."""

    @abc.abstractmethod
    def predict(self, variables: xr.Dataset, seed: int) -> dict[str, np.ndarray]:
        """Data as the model would make them, for its variables of shape (chain, draw, ...)."""


def gather(parts: Sequence[Noise]) -> Noise:
    """The noise of several sites as one."""
    q, eps, log_volume = zip(*parts, strict=True)
    return Noise(
        jnp.concatenate([jnp.ravel(each) for each in q]),
        jnp.concatenate([jnp.ravel(each) for each in eps]),
        jnp.sum(jnp.stack(log_volume)),
    )


def normal_noise(value: Any, mean: Any, deviation: Any) -> Noise:
    """The noise of numbers that are normal, each with its own mean and deviation."""
    q = jnp.asarray(value - mean, float)
    return Noise(q, jnp.broadcast_to(deviation, q.shape), _log_volume(q))


def lognormal_noise(value: Any, mean: Any, deviation: Any) -> Noise:
    """The noise of numbers whose logarithms are normal."""
    logarithm = jnp.log(jnp.asarray(value, float))
    q, eps, log_volume = normal_noise(logarithm, mean, deviation)
    # a value that is broadcast counts as often as it is used
    return Noise(q, eps, log_volume + jnp.sum(jnp.broadcast_to(logarithm, q.shape)))


def multivariate_normal_noise(value: Any, mean: Any, factor: Any) -> Noise:
    """The noise of vectors whose covariance has this Cholesky factor, made independent."""
    difference = jnp.asarray(value - mean, float)
    length = difference.shape[-1]
    solve = functools.partial(jax.scipy.linalg.solve_triangular, lower=True)
    if factor.ndim == 2:  # one for all, which limpet's compiler can do
        q = solve(factor, difference.reshape(-1, length).T).T
    else:
        factor = jnp.broadcast_to(factor, (*difference.shape, length))
        q = jnp.vectorize(solve, signature="(n,n),(n)->(n)")(factor, difference)
    diagonal = jnp.broadcast_to(jnp.diagonal(factor, axis1=-2, axis2=-1), difference.shape)
    return Noise(q, jnp.ones(q.shape), _log_volume(q) + jnp.sum(jnp.log(diagonal)))


def _log_volume(q: jax.Array) -> jax.Array:
    return jnp.asarray(q.size / 2 * math.log(2 * math.pi))


def is_constant(function: Callable[[Any], Any], point: Point) -> bool:
    """Whether a function gives the same at every point, as its program shows."""
    program = jax.make_jaxpr(function)(point).jaxpr
    return not any(dce_jaxpr(program, [True] * len(program.outvars))[1])


def chosen_sites(
    given: Any, gaussian: Sequence[str], others: Mapping[str, str], name: str
) -> tuple[str, ...]:
    """The observed sites that are to be constraints; all with Gaussian noise unless it is said.

    `others` has, for every other name of the model, why it cannot be one.
    """
    if given is None:
        if not gaussian:
            known = "".join(f"; {other!r} {why}" for other, why in others.items())
            raise InputError(
                f"model={name} has no observed site with Gaussian noise, so there is no surface to"
                f" be near{known}. Expected one of Normal, LogNormal or MultivariateNormal, with"
                " data, neither masked nor scaled; for other models use a general sampler such as"
                " NUTS."
            )
        return tuple(gaussian)
    chosen = [given] if isinstance(given, str) else given
    if not isinstance(chosen, list | tuple) or not chosen:
        raise InputError(
            f"sites={given!r}: expected the names of observed sites, such as {list(gaussian)!r}."
        )
    for site in chosen:
        if site not in gaussian:
            why = others.get(site, "is not a site of it")
            raise InputError(
                f"sites={given!r}: {site!r} {why}. Expected observed sites of model={name} with"
                f" Gaussian noise: {', '.join(map(repr, gaussian)) or 'it has none'}."
            )
    return tuple(site for site in gaussian if site in chosen)


def check_data(name: str, value: Any, positive: bool = False) -> None:
    """Refuse data that are not numbers, or not where their distribution is."""
    numbers = np.asarray(value)
    if not numbers.size:
        raise InputError(f"Observed site {name!r} has no numbers, shape {numbers.shape}.")
    if not np.isfinite(numbers).all():
        place = np.argwhere(~np.isfinite(numbers))[0].tolist()
        raise InputError(
            f"Observed site {name!r} is not finite: number {place} is {numbers[tuple(place)]}."
            " Leave out data that are missing."
        )
    if positive and (numbers <= 0).any():
        place = np.argwhere(numbers <= 0)[0].tolist()
        raise InputError(
            f"Observed site {name!r} is LogNormal, but number {place} of the data is"
            f" {numbers[tuple(place)]}: expected data above zero."
        )


def check_noise(name: str, noise: Noise) -> None:
    """Refuse noise that has no size at the start."""
    eps = np.asarray(noise.eps)
    if not (np.isfinite(eps) & (eps > 0)).all():
        wrong = eps[~(np.isfinite(eps) & (eps > 0))][0]
        raise InputError(
            f"Observed site {name!r} has noise of scale {wrong} at the start: expected a finite"
            " number above zero. Data without noise are a surface: give them a small scale, or"
            ' sample with kernel=limpet.SurfaceSampler(measure="soft").'
        )
    if not np.isfinite(noise.q).all():
        raise InputError(
            f"Observed site {name!r}: its mean, or its covariance, is not finite at the start."
            " Choose priors that keep the model where it is defined."
        )


def check_names(names: Sequence[str]) -> None:
    """Refuse two variables that would have one name."""
    for name in names:
        if list(names).count(name) > 1:
            raise InputError(f"The model has two variables called {name!r}: expected names apart.")


def package(name: str) -> Any:
    """A package that is not everybody's, or how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LimpetError(
            f"{name} cannot be imported ({error}): python -m pip install 'limpet[{name}]'."
        ) from error
