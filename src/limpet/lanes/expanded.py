"""Operations that are programs of JAX's operations themselves, and are written as these.

Such are Equinox's, of which the solvers of diffrax are made: each is what its own implementation
does, and Equinox need not be there. They mind how a program is batched: of a loop whose batch ends
one by one, they keep what is done as it is. In the program of a chain, there is no batch of chains,
for each lane is one: lanes that are done keep what they have, as in every loop.

Later JAXes have such as well, which stand for functions of `jax.numpy` with derivatives of their
own: a search in a table, by which `jnp.interp` finds its place, and others.
"""

import jax
import jax.numpy as jnp
import numpy as np

from limpet.lanes.rules import RULES, Rule, are_known, fold, run

HIGH = "call_hi_primitive"  # what a later JAX calls an operation that stands for others


def _as_implemented(code, equation, arrays, **parameters):
    return _written(code, equation, arrays, lambda *a: equation.primitive.impl(*a, **parameters))


def _written(code, equation, arrays, function):
    if all(isinstance(array, np.ndarray) and are_known(array) for array in arrays):
        return fold(equation, arrays)
    return run(code, _program_of(function, equation), arrays)


def _program_of(function, equation):
    """A function as a program for the arguments of an operation."""
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
    return jax.make_jaxpr(function)(*shapes)


def lowered(equation):
    """The program of a later JAX's operation that stands for others."""
    return _program_of(lambda *a: equation.primitive.to_lojax(*a, **equation.params), equation)


def _as_lowered(code, equation, arrays, _prim):
    return run(code, lowered(equation), arrays)


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


def _log2(code, equation, arrays, accuracy=None):
    return _written(code, equation, arrays, lambda x: jnp.log(x) / np.log(2.0))


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
RULES["log2"] = Rule(_log2, ignores=("accuracy",))
RULES[HIGH] = Rule(_as_lowered, honours=("_prim",))
EXPANDED = {*HONOURED, "nextafter", "log2", HIGH}
