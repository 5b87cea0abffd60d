"""Steps of many chains by XLA."""

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from limpet.engine.interrupts import interruptible
from limpet.engine.memory import in_words, spare_bytes
from limpet.lanes.identity import uses

# For programs that run once: compiling is what takes their time.
RUN_ONCE = {"xla_backend_optimization_level": 0}
# of a chain's state: a choice that was not measured; 128 chains of this size take 256 kB
MOST_NUMBERS_SIDE_BY_SIDE = 256
# Two threads of XLA that are in batches of these at the same time can wait for each other for ever
# (jaxlib 0.10: each hands its batch to the pool of threads that both are of): one at a time.
LAPACK = {
    *("cholesky", "lu", "qr", "geqrf", "householder_product", "triangular_solve"),
    *("eig", "eigh", "svd", "schur", "hessenberg", "tridiagonal"),
    *("limpet_factor", "limpet_solve", "limpet_pivots"),  # of `limpet.lanes.primitives`
}
_ONE_AT_A_TIME = threading.Lock()


def scan(
    step: Callable[[Any, Any, Any], tuple[Any, Any]],
    constants: Any,
    carry: Any,
    inputs: Any,
    width: int,
    block: int,
) -> Callable[..., tuple[Any, Any]]:
    """As `lanes.scan`, for one width and whole blocks."""
    # chain after chain if its matrices are work enough: none waits for another's Newton updates,
    # branches not taken cost nothing, and the matrices stay in the cache
    alone = sum(leaf.size for leaf in jax.tree.leaves(carry)) > MOST_NUMBERS_SIDE_BY_SIDE
    batched = not alone and uses(LAPACK, jax.make_jaxpr(step)(constants, carry, inputs))
    turn = _ONE_AT_A_TIME if batched else contextlib.nullcontext()

    def scan_all(constants: Any, carries: Any, inputs: Any) -> tuple[Any, Any]:
        one = functools.partial(jax.lax.scan, functools.partial(step, constants))
        if alone:
            return jax.lax.map(lambda chain: one(*chain), (carries, inputs))
        return jax.vmap(one)(carries, inputs)

    def shape(leaf: Any, *more: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((width, *more, *leaf.shape), leaf.dtype)

    shapes = jax.tree.map(shape, carry), jax.tree.map(lambda leaf: shape(leaf, block), inputs)
    compiled = interruptible(jax.jit(scan_all).lower(constants, *shapes).compile)()
    _check_room(compiled.memory_analysis())

    def run(constants: Any, carries: Any, inputs: Any, over: Any = None) -> tuple[Any, Any]:
        made: list[Any] = []
        for first in range(0, jax.tree.leaves(inputs)[0].shape[1], block):
            rows = jax.tree.map(lambda a, k=first: a[:, k : k + block], inputs)
            with turn:
                carries, outputs = _run(compiled, constants, carries, rows)
            made.append(outputs)
        return carries, jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *made)

    return run


def _run(compiled: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return jax.block_until_ready(compiled(*arguments))
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(
            "A step of this model needs more memory than this machine has to spare. Each worker"
            " needs as much: try workers=1, or a smaller model."
        ) from None


def _check_room(needs: Any) -> None:
    """Refuse a program that needs more memory than there is; XLA may not know what it needs."""
    parts = ("temp_size_in_bytes", "argument_size_in_bytes", "output_size_in_bytes")
    need, spare = sum(getattr(needs, part, 0) for part in parts), spare_bytes()
    if need > spare:
        raise MemoryError(
            f"A step of this model by XLA needs {in_words(need)} of memory for the chains of a"
            f" tile, and this machine has {in_words(spare)} to spare: try fewer chains, or a"
            " smaller model."
        )
