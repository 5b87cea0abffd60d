"""The gradients of constraints: row by row, along each unknown, or a few coloured derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from limpet.lanes.primitives import sparse
from limpet.shapes import Normals, Values, Vector
from limpet.sparse.normals import SparseNormals

# Most constraints whose gradients are taken one by one: fewer operations where many entries are
# zero, but code that grows with their number, as unrolled matrices do (limpet.geometry.linalg).
MOST_ONE_BY_ONE = 8


def values_and_normals(target: Any, x: Vector) -> tuple[Values, Normals]:
    """q(x) / eps of a target and its gradients, one a column."""
    if target.colouring is not None:
        structure = target.colouring.structure
        if not target.has_fixed_eps:
            values, entries = target.colouring.values_and_entries(target.values, x)
            return values, SparseNormals(entries, structure)
        q, entries = target.colouring.values_and_entries(target.q, x, *target.more)
        scale = jnp.broadcast_to(1 / target.eps, q.shape)[structure.constraints]
        return q / target.eps, SparseNormals(entries * scale, structure)
    mode = target.derivatives or ("forward" if target.is_crowded(x) else "reverse")
    if mode == "forward":
        return _forward(target, x)
    values, pull_back = jax.vjp(target.values, x)
    m = len(values)
    if m > MOST_ONE_BY_ONE:
        normals = jax.vmap(pull_back, out_axes=-1)(sparse(jnp.eye(m)))[0]
    else:
        normals = jnp.stack([pull_back(sparse(row))[0] for row in np.eye(m)], axis=-1)
    return values, sparse(normals)


def _forward(target: Any, x: Vector) -> tuple[Values, Array]:
    """The same by derivatives along each unknown: cheaper where these are few."""

    def along(direction: Vector) -> tuple[Values, Values]:
        return jax.jvp(target.values, (x,), (direction,))

    return jax.vmap(along, out_axes=(None, 0))(sparse(jnp.eye(len(x))))


def paired(W: Array, values_and_normals: tuple[Values, Array]) -> Array:
    """The sum of W times the normals."""
    return jnp.sum(W * values_and_normals[1])


values_and_normals_once = jax.jit(values_and_normals)
