"""A model as a target: where it starts, and the way back to the model's own variables."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from limpet import errors
from limpet.coordinates import dataset
from limpet.errors import InputError, LimpetWarning, warn
from limpet.layout import Layout
from limpet.models.base import Model, is_constant
from limpet.target import Target

BATCH = 4_096  # draws that are translated at once: enough to vectorise, and little memory
MOST_LIKELIHOODS = 2**27  # numbers of log_likelihood that are kept in memory: a gigabyte


class ModelTarget(Target):
    """A model as a target, from `limpet.from_numpyro` or `limpet.from_pymc`.

    It is sampled in unconstrained numbers, such as the logarithm of what is positive;
    `limpet.sample` and `limpet.resume` give back the model's own variables. A store holds the
    unconstrained numbers, and `limpet.open`, which knows no model, shows these.

    Attributes
    ----------
    start : dict
        Where `limpet.sample` starts unless it is told: an unconstrained point.
    sites : tuple of str
        The observed sites that are constraints.
    """

    def __init__(self, model: Model, derivatives: str | None) -> None:
        self.model = model
        # a scale that is the same everywhere is a number, which needs no program
        known = is_constant(self._eps, model.start)
        eps = np.asarray(jax.jit(self._eps)(model.start)) if known else self._eps
        super().__init__(self._q, eps, log_density=self._log_density, derivatives=derivatives)

    def __repr__(self) -> str:
        return f"ModelTarget({self.model.name}, sites={list(self.sites)})"

    @property
    def start(self) -> dict[str, np.ndarray]:  # noqa: D102
        return dict(self.model.start)

    @property
    def sites(self) -> tuple[str, ...]:  # noqa: D102
        return self.model.sites

    def translate(self, draws: xr.DataTree) -> xr.DataTree:
        """Draws of the unconstrained numbers as draws of the model's variables.

        Parameters
        ----------
        draws : xarray.DataTree
            What `limpet.open` read from a store of this target; all or some draws or chains of it.

        Returns
        -------
        xarray.DataTree
            As from `limpet.sample`, with the groups `observed_data` and `log_likelihood`.

        Examples
        --------
        >>> import tempfile
        >>> import limpet
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> def model():
        ...     x = numpyro.sample("x", dist.HalfNormal(1).expand([2]))
        ...     numpyro.sample("y", dist.Normal(x.sum(), 0.01), obs=1.0)
        >>> target, store = limpet.from_numpyro(model), tempfile.mkdtemp() + "/run.zarr"
        >>> draws = limpet.sample(target, draws=100, chains=4, store=store)
        >>> [*limpet.open(store).posterior.data_vars]
        ['x_unconstrained']
        >>> [*target.translate(limpet.open(store).isel(draw=slice(50))).posterior.data_vars]
        ['x']
        """
        groups = {name: group.to_dataset() for name, group in draws.children.items()}
        for name in ("posterior", "surface"):
            if name in groups:
                point = self._point_of(groups[name])
                groups[name] = self._dataset(self.model.variables, point, groups[name])
                if name == "posterior":
                    groups |= self._likelihood(point, groups[name])
        groups["observed_data"] = self._named(self.model.observed, ())
        tree = xr.DataTree.from_dict(groups)
        tree.attrs = draws.attrs
        return tree

    def predict(self, draws: xr.DataTree, *, seed: int = 0) -> xr.DataTree:
        """The draws, and data as the model would make them, in the group `posterior_predictive`.

        Parameters
        ----------
        draws : xarray.DataTree
            From `limpet.sample`, `limpet.resume` or `translate`; all or some of it.
        seed : int
            For the data.

        Returns
        -------
        xarray.DataTree
            The same, with one group more.

        Examples
        --------
        >>> import limpet
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> def model():
        ...     x = numpyro.sample("x", dist.Normal(0, 1).expand([2]))
        ...     numpyro.sample("y", dist.Normal(x.sum(), 0.01), obs=1.0)
        >>> target = limpet.from_numpyro(model)
        >>> draws = target.predict(limpet.sample(target, draws=100, chains=4))
        >>> draws.posterior_predictive["y"].shape
        (4, 100)
        """
        seed = errors.whole("seed", seed, 0)
        posterior = draws["posterior"].to_dataset()
        missing = [name for name in self.model.unknowns if name not in posterior]
        if missing:
            raise InputError(
                f"draws has no variable {missing[0]!r}: expected what limpet.sample returned, or"
                " target.translate(limpet.open(store))."
            )
        made = self.model.predict(posterior, seed)
        groups = {name: group.to_dataset() for name, group in draws.children.items()}
        lead = {name: posterior[name] for name in ("chain", "draw")}
        groups["posterior_predictive"] = self._named(made, tuple(lead)).assign_coords(lead)
        tree = xr.DataTree.from_dict(groups)
        tree.attrs = draws.attrs
        return tree

    def _q(self, point: Any) -> Any:
        return self.model.noise(point).q

    def _eps(self, point: Any) -> Any:
        return self.model.noise(point).eps

    def _log_density(self, point: Any) -> Any:
        noise = self.model.noise(point)
        known = jnp.sum(jnp.log(noise.eps)) if self.has_fixed_eps else 0.0
        return self.model.log_density(point) - noise.log_volume - known

    def _point_of(self, group: xr.Dataset) -> dict[str, np.ndarray]:
        """The unconstrained numbers of some draws."""
        layout = Layout.of(self.model.start)
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            if name not in group or group[name].shape[2:] != shape:
                raise InputError(
                    f"draws has no variable {name!r} of shape {shape}: expected what"
                    " limpet.open read from a store of this target."
                )
        return {name: group[name].values for name in layout.names}

    def _likelihood(self, point: dict, posterior: xr.Dataset) -> dict[str, xr.Dataset]:
        """The group `log_likelihood`, if there is room for it."""
        one = jax.eval_shape(self.model.log_likelihood, self.model.start)
        draws = posterior.sizes["chain"] * posterior.sizes["draw"]
        numbers = draws * sum(math.prod(part.shape) for part in one.values())
        if numbers > MOST_LIKELIHOODS:
            warn(
                f"The group log_likelihood is left out: with {numbers:,} numbers it would fill the"
                " memory. Sample with a store, and give target.translate a part of"
                " limpet.open(store).",
                LimpetWarning,
            )
            return {}
        return {"log_likelihood": self._dataset(self.model.log_likelihood, point, posterior)}

    def _dataset(self, function: Callable, point: dict, group: xr.Dataset) -> xr.Dataset:
        """What a function of the model gives for every draw."""
        lead = {name: group[name] for name in ("chain", "draw")}
        return self._named(over_draws(function, point), tuple(lead)).assign_coords(lead)

    def _named(self, arrays: Mapping[str, np.ndarray], lead: tuple[str, ...]) -> xr.Dataset:
        """Arrays with the model's names of their axes, after those of the draws."""
        return dataset(arrays, lead, self.model.dims, self.model.coords)


def over_draws(function: Callable, point: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a function gives for points of shape (chain, draw, ...), a batch at a time."""
    chains, draws = next(iter(point.values())).shape[:2]
    count, batch = chains * draws, min(BATCH, max(chains * draws, 1))
    flat = {name: array.reshape(count, *array.shape[2:]) for name, array in point.items()}
    one = {name: jnp.zeros(array.shape[1:]) for name, array in flat.items()}
    results = {
        name: np.empty((count, *part.shape), part.dtype)
        for name, part in jax.eval_shape(function, one).items()
    }
    of_batch = jax.jit(jax.vmap(function))
    for first in range(0, count, batch):
        rows = np.arange(first, first + batch) % count  # the last batch is filled with others
        made = of_batch({name: array[rows] for name, array in flat.items()})
        for name, part in made.items():
            results[name][first : first + batch] = part[: count - first]
    return {name: array.reshape(chains, draws, *array.shape[1:]) for name, array in results.items()}
