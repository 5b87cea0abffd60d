"""Operations that are programs of JAX's operations themselves, and are written as these.

Such are Equinox's, of which the solvers of diffrax are made: each is what its own implementation
does, and Equinox need not be there. They mind how a program is batched: of a loop whose batch ends
one by one, they keep what is done as it is. In the program of a chain, there is no batch of chains,
for each lane is one: lanes that are done keep what they have, as in every loop.
"""

import jax
import jax.numpy as jnp
import numpy as np

from limpet.lanes.rules import RULES, Rule, are_known, fold, run


def _as_implemented(code, equation, arrays, **parameters):
    return _written(code, equation, arrays, lambda *a: equation.primitive.impl(*a, **parameters))


def _written(code, equation, arrays, function):
    if all(isinstance(array, np.ndarray) and are_known(array) for array in arrays):
        return fold(equation, arrays)
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
    return run(code, jax.make_jaxpr(function)(*shapes), arrays)


def _after(x, y):
    """The next number after x on the way to y: its bits, as a whole number, count one more or less.

    Bits of a number without its sign grow with it, from zero to infinity.
    """
    signed = np.dtype(f"int{8 * x.dtype.itemsize}")
    bits = jax.lax.bitcast_convert_type(x, signed)
    outwards = (x < y) == (x > 0)
    beside = jax.lax.bitcast_convert_type(jnp.where(outwards, bits + 1, bits - 1), x.dtype)
    least = jnp.asarray(np.finfo(x.dtype).smallest_subnormal, x.dtype)
    beside = jnp.where(x == 0, jnp.where(y > 0, least, -least), beside)
    return jnp.where(x == y, y, jnp.where(jnp.isnan(x) | jnp.isnan(y), x + y, beside))


def _next_after(code, equation, arrays):
    return _written(code, equation, arrays, lambda x, y: _after(*jnp.broadcast_arrays(x, y)))


HONOURED = {
    "unvmap_all": (),
    "unvmap_any": (),
    "unvmap_max": (),
    "nonbatchable": ("msg", "allow_constant_across_batch"),
    "select_if_vmap": (),
    "maybe_set": ("i_static", "i_treedef", "kwargs", "makes_false_steps"),
    "vprim": ("prim", "__axis_size", "__axis_name", "__batch_axes", "params"),
}
RULES |= {name: Rule(_as_implemented, honours) for name, honours in HONOURED.items()}
RULES["nextafter"] = Rule(_next_after)
EXPANDED = {*HONOURED, "nextafter"}
