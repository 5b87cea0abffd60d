"""Operations of other libraries, as calls of the functions that they stand for.

Equinox, and so diffrax, has operations of its own, which say how derivatives and batches are taken.
In the program of one chain they have been, and such an operation is the function that JAX calls to
compute it. That function is traced, and its program takes the operation's place.
"""

import types
from typing import Any

import jax
from jax.extend.core.primitives import closed_call_p

from limpet.lanes.identity import is_program, programs_in
from limpet.lanes.rules import RULES


def expand(program) -> Any:
    """The program, without operations that are neither JAX's nor limpet's own."""
    if not any(_is_foreign(e) for part, _ in programs_in(program) for e in part.eqns):
        return program
    inner = getattr(program, "jaxpr", program)
    inner = inner.replace(eqns=[_expand_equation(equation) for equation in inner.eqns])
    return program.replace(jaxpr=inner) if hasattr(program, "jaxpr") else inner


def _is_foreign(equation) -> bool:
    """Whether JAX computes an operation by a function of another library's, and nothing else."""
    primitive = equation.primitive
    if primitive.name in RULES or equation.effects:
        return False
    function = primitive.impl
    # JAX's own are computed by XLA, and so are those of libraries that bind XLA's calls
    return isinstance(function, types.FunctionType) and not _is_of_jax(function)


def _is_of_jax(function) -> bool:
    return function.__module__.partition(".")[0] in ("jax", "jaxlib")


def _expand_equation(equation) -> Any:
    if not _is_foreign(equation):
        return equation.replace(params={k: _expand_in(v) for k, v in equation.params.items()})

    def compute(*arrays):
        return equation.primitive.impl(*arrays, **equation.params)

    shapes = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in equation.invars]
    meaning = expand(jax.make_jaxpr(compute)(*shapes))
    return equation.replace(primitive=closed_call_p, params={"call_jaxpr": meaning})


def _expand_in(value) -> Any:
    """A parameter, with the programs in it expanded."""
    if is_program(value):
        return expand(value)
    if isinstance(value, tuple | list) and any(map(is_program, value)):
        parts = [expand(part) if is_program(part) else part for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
