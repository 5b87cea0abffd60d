"""`limpet.from_pymc`: a PyMC model as a target."""

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from limpet.errors import InputError
from limpet.models import base
from limpet.models.base import Model, Noise, Point
from limpet.models.target import ModelTarget


def from_pymc(
    model: Any, *, sites: Sequence[str] | str | None = None, derivatives: str | None = None
) -> ModelTarget:
    """A PyMC model as a target, which knows where to start: `limpet.sample(target)` follows.

    Observed variables with Gaussian noise (`Normal`, `LogNormal`, `MvNormal`) become constraints,
    with their `sigma` as eps, known or unknown. Everything else is log density: priors, other
    likelihoods, `Potential`, data that are observed in part. Draws have the model's own variables
    and what is `Deterministic`, with its dims and coords.

    Priors may be improper (`Flat`, `HalfFlat`) if the posterior is not; that cannot be checked.

    Parameters
    ----------
    model : pymc.Model
        The model, as it is now; data that are set later are not seen.
    sites : sequence of str, optional
        Which observed variables become constraints: those with little noise are worth it most.
        Default: all that can.
    derivatives : {"forward", "reverse"}, optional
        How derivatives are taken, as for `limpet.Target`.

    Returns
    -------
    ModelTarget
        For `limpet.sample`, `limpet.resume` and the other functions that take a target.

    Examples
    --------
    >>> import limpet
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x", shape=2)
    ...     y = pm.Normal("y", (x**2).sum(), 0.01, observed=1.0)
    >>> draws = limpet.sample(limpet.from_pymc(model), draws=200, chains=4)
    >>> bool(abs((draws.posterior["x"] ** 2).sum("x_dim") - 1).max() < 0.06)
    True
    """
    pymc = base.package("pymc")
    if not isinstance(model, pymc.Model):
        raise InputError(
            f"model={model!r}: expected a pymc.Model, as from `with pymc.Model() as model:`."
        )
    return ModelTarget(PyMCModel(model, sites), derivatives)


class PyMCModel(Model):
    """A PyMC model."""

    def __init__(self, model: Any, sites: Any) -> None:
        from pymc.util import get_default_varnames

        self.model = model
        self.name = model.name or "Model"
        _check_kinds(self.name, model)
        self.unknowns = tuple(rv.name for rv in model.free_RVs)
        gaussian = [rv.name for rv in model.observed_RVs if _is_gaussian(rv)]
        others = {name: _why_not(model, name) for name in model.named_vars if name not in gaussian}
        self.sites = base.chosen_sites(sites, gaussian, others, self.name)
        self.observed = {rv.name: _data(model, rv) for rv in model.observed_RVs}
        for rv in model.observed_RVs:
            is_lognormal = rv.name in self.sites and type(rv.owner.op).__name__ == "LogNormalRV"
            base.check_data(rv.name, self.observed[rv.name], is_lognormal)
        self._inputs = [value.name for value in model.value_vars]
        with warnings.catch_warnings():  # of matrices that are slow in C: here JAX does the work
            warnings.filterwarnings("ignore", "PyTensor could not link", UserWarning)
            first = model.initial_point(random_seed=0)
        self.start = {name: np.asarray(first[name], float) for name in self._inputs}

        chosen = [rv for rv in model.observed_RVs if rv.name in self.sites]
        rest = [rv for rv in model.basic_RVs if rv.name not in self.sites] + model.potentials
        parameters = [part for rv in chosen for part in rv.owner.op.dist_params(rv.owner)]
        own = get_default_varnames(model.unobserved_value_vars, include_transformed=False)
        try:
            self._parameters = self._compile(model.replace_rvs_by_values(parameters))
            self._log_density = self._compile([model.logp(rest)])
            self._variables = self._compile(own)
            self._likelihood = self._compile(model.logp(model.observed_RVs, sum=False))
            jax.make_jaxpr(self._log_density)(self.start)
            parts = jax.jit(self._noises)(self.start)
        except Exception as error:
            reason = (str(error).strip().split("\n")[0] or "no message").rstrip(".")
            raise InputError(
                f"model={self.name} could not be translated to JAX: {type(error).__name__}:"
                f" {reason}. Write it with operations that PyTensor can translate."
            ) from error
        for name, noise in zip(self.sites, parts, strict=True):
            base.check_noise(name, noise)
        self._own = [variable.name for variable in own]
        self.dims = {
            name: tuple(dims) for name, dims in model.named_vars_to_dims.items() if dims is not None
        }
        self.coords = {
            name: list(values) for name, values in model.coords.items() if values is not None
        }

    def noise(self, point: Point) -> Noise:
        """The data that are constraints."""
        return base.gather(self._noises(point))

    def log_density(self, point: Point) -> jax.Array:
        """Everything else: priors with their Jacobians, and other likelihoods."""
        return self._log_density(point)[0]

    def variables(self, point: Point) -> dict[str, jax.Array]:
        """Free variables and what is computed from them."""
        return dict(zip(self._own, map(jnp.asarray, self._variables(point)), strict=True))

    def log_likelihood(self, point: Point) -> dict[str, jax.Array]:
        """The log density of each datum, by observed variable."""
        return dict(zip(self.observed, self._likelihood(point), strict=True))

    def predict(self, variables: xr.Dataset, seed: int) -> dict[str, np.ndarray]:
        """Data as the model would make them."""
        import pymc

        made = pymc.sample_posterior_predictive(
            variables,
            self.model,
            var_names=list(self.observed),
            random_seed=seed,
            progressbar=False,
            return_inferencedata=False,
        )
        return {name: np.asarray(made[name]) for name in self.observed}

    def _compile(self, outputs: Any) -> Callable[[Point], Any]:
        """A graph of the model's values as a JAX function of a point."""
        pytensor = base.package("pytensor")
        with pytensor.scalar.basic.autocast_float_as("float64"):
            fixed = _with_constants(list(outputs))
            graph = pytensor.graph.fg.FunctionGraph(self.model.value_vars, fixed, clone=True)
            # computes constants, some in singles; fused with operations, they could not be reached
            pytensor.compile.mode.JAX.excluding("fusion").optimizer.rewrite(graph)
            function = _jax().get_jaxified_graph(graph.inputs, _in_doubles(graph.outputs))
        return lambda point: function(*(jnp.asarray(point[name]) for name in self._inputs))

    def _noises(self, point: Point) -> list[Noise]:
        parameters = iter(self._parameters(point))
        found = []
        for name in self.sites:
            mean, size = next(parameters), next(parameters)
            value, kind = self.observed[name], type(self.model[name].owner.op).__name__
            if kind == "MvNormalRV":
                noise = base.multivariate_normal_noise(value, mean, jnp.linalg.cholesky(size))
            else:
                of_kind = base.normal_noise if kind == "NormalRV" else base.lognormal_noise
                noise = of_kind(value, mean, size)
            found.append(noise)
        return found


def _jax() -> Any:
    """PyMC's way to JAX, whose import would else split the machine into a hundred devices."""
    flags = os.environ.get("XLA_FLAGS")
    try:
        import pymc.sampling.jax
    finally:
        if flags is None:
            os.environ.pop("XLA_FLAGS", None)
        else:
            os.environ["XLA_FLAGS"] = flags
    return pymc.sampling.jax


def _with_constants(graphs: list[Any]) -> list[Any]:
    """Graphs with data and lengths of dims as they are now."""
    pytensor = base.package("pytensor")
    kind, every = pytensor.compile.sharedvalue.SharedVariable, _ancestors(graphs)
    now = {e: pytensor.tensor.constant(e.get_value()) for e in every if isinstance(e, kind)}
    return pytensor.graph.replace.clone_replace(graphs, now)


def _in_doubles(graphs: list[Any]) -> list[Any]:
    """Graphs whose constants are doubles, where PyTensor found that a single would do."""
    pytensor = base.package("pytensor")
    singles = {
        each: pytensor.tensor.constant(each.data, dtype="float64")
        for each in _ancestors(graphs)
        if isinstance(each, pytensor.tensor.variable.TensorConstant)
        and each.dtype in ("float16", "float32")
    }
    return pytensor.graph.replace.clone_replace(graphs, singles, rebuild_strict=False)


def _ancestors(graphs: list[Any]) -> list[Any]:
    return [*base.package("pytensor").graph.traversal.ancestors(graphs)]


def _is_gaussian(rv: Any) -> bool:
    from pytensor.tensor.random.basic import LogNormalRV, MvNormalRV, NormalRV

    return rv.owner is not None and type(rv.owner.op) in (NormalRV, LogNormalRV, MvNormalRV)


def _data(model: Any, rv: Any) -> np.ndarray:
    value = model.rvs_to_values[rv]
    data = getattr(value, "data", None)
    return np.asarray(value.eval() if data is None else data)


def _why_not(model: Any, name: str) -> str:
    """Why a variable is not a constraint."""
    variable = model.named_vars[name]
    if variable in model.observed_RVs:
        kind = type(variable.owner.op).__name__
        if kind == "PartialObservedRV":
            return "is observed only in part"
        return f"has no Gaussian noise, but {kind.removesuffix('RV')}"
    return "is a Potential" if variable in model.potentials else "is not observed"


def _check_kinds(name: str, model: Any) -> None:
    """Refuse variables that no chain of a continuous density can have."""
    if not model.free_RVs:
        raise InputError(f"model={name} has no unknowns: expected variables without `observed`.")
    for value in model.discrete_value_vars:
        raise InputError(
            f"model={name}: {value.name!r} is discrete and not observed: expected continuous"
            " unknowns; sum over its values in the model."
        )
    for rv in model.basic_RVs:
        if type(rv.owner.op).__name__ == "MinibatchRandomVariable":
            raise InputError(
                f"model={name}: {rv.name!r} takes a part of its data at random (total_size):"
                " expected all of them."
            )
    for rv, shape in model.eval_rv_shapes().items():
        if 0 in shape:
            raise InputError(f"model={name}: {rv!r} has no numbers, shape {tuple(shape)}.")
