"""From a store to what its run is made of: sampler, target and tiles."""

import jax.numpy as jnp
import numpy as np

from limpet.draws.recognition import check_same, describe
from limpet.draws.writer import Store
from limpet.errors import InputError, StoreError
from limpet.kernels import Kernel
from limpet.run.specification import RunSpecification
from limpet.run.tile_run import TileRun
from limpet.target import Target


def stored_run(held: Store, target: Target) -> tuple[Kernel, Target, np.ndarray]:
    """The sampler of a store, its target as samplers know it, and where the chains began."""
    starts = held.starts
    flat = target.on_vectors(held.layout).freeze(jnp.asarray(starts[0]))
    about = held.specification.target
    if about is not None and not flat.has_fixed_eps:
        flat.scale = np.asarray(about["eps"])  # step sizes go by what it was at the first start
    check_same(held.home, held.specification, describe(flat, starts))
    return _kernel_of(held.specification), flat, starts


def begin_tile(specification, kernel, target, starts, k) -> TileRun:
    """A tile at its start."""
    return TileRun(specification, kernel, target, k, starts[specification.rows_of(k)])


def _kernel_of(specification: RunSpecification) -> Kernel:
    """The sampler of a stored run."""
    name = specification.kernel
    if name not in Kernel.known:
        raise StoreError(
            f"The store was made with kernel={name}, which is not defined here: import the module"
            " that defines it first."
        )
    try:
        return Kernel.known[name](**specification.fields)
    except (InputError, TypeError) as error:
        raise StoreError(
            f"The store was made with numbers that kernel={name} does not take: {error}"
        ) from None
