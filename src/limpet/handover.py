"""limpet's samplers in other people's loops, and its draws in other people's types."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import xarray as xr

from limpet.errors import InputError, LimpetError
from limpet.kernels import Kernel
from limpet.target import Target

if TYPE_CHECKING:
    from arviz import InferenceData


class SamplingAlgorithm(NamedTuple):
    """The two functions that blackjax runs an algorithm by."""

    init: Callable
    step: Callable


def as_blackjax(kernel: Kernel, target: Target) -> SamplingAlgorithm:
    """A sampler as blackjax knows them, for `blackjax.util.run_inference_algorithm`.

    Its history has every step: states with `on` are on the surface, the others are draws from
    pi_eps (`SAS`).

    Parameters
    ----------
    kernel : Lifted, SAS, SurfaceSampler or RandomWalk
        The sampler.
    target : Target
        What to sample.

    Returns
    -------
    SamplingAlgorithm
        `init(position)` and `step(key, state)`. The position must be on the surface, such as
        `limpet.find_start` gives.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> algorithm = limpet.as_blackjax(limpet.SAS(), circle)
    >>> state = algorithm.init(jnp.array([1.0, 0.0]))
    >>> state, info = jax.jit(algorithm.step)(jax.random.key(0), state)
    >>> state.x.shape
    (2,)
    """
    return SamplingAlgorithm(
        init=lambda position, rng_key=None: kernel.init(target, position),
        step=lambda rng_key, state: kernel.step(target, rng_key, state),
    )


def to_inference_data(draws: xr.DataTree) -> "InferenceData | xr.DataTree":
    """Draws as the installed ArviZ takes them.

    ArviZ 1.0 and newer, on Python 3.12 and newer, works with the DataTree that limpet returns.
    ArviZ 0.x, the newest for Python 3.11, has a type of its own.

    Parameters
    ----------
    draws : xarray.DataTree
        From `limpet.sample`, `limpet.open` or `xarray.open_datatree`.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        All groups of `draws`: as InferenceData if ArviZ has it, else `draws` itself.

    Raises
    ------
    LimpetError
        If ArviZ is not installed.

    Examples
    --------
    >>> import arviz
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=4, seed=1)
    >>> arviz.summary(limpet.to_inference_data(draws)).index.tolist()
    ['x[0]', 'x[1]']
    """
    if not isinstance(draws, xr.DataTree) or "posterior" not in draws:
        raise InputError(f"draws={type(draws).__name__}: expected what limpet.sample returned.")
    try:
        import arviz  # slow to import, and limpet does without it
    except ImportError as error:
        raise LimpetError(
            f"ArviZ cannot be imported ({error}): python -m pip install arviz."
        ) from error
    own_type = vars(arviz).get("InferenceData")  # asked for by name, ArviZ 1.x warns
    return draws if own_type is None else own_type.from_datatree(draws)
