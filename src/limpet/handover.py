"""limpet's samplers in other people's loops."""

from collections.abc import Callable
from typing import NamedTuple

from limpet.kernels import Kernel
from limpet.target import Target


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
    kernel : SAS, SurfaceSampler or RandomWalk
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
