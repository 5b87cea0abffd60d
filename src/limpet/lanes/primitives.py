"""Operations of limpet's own, which JAX takes for its own.

    factor, solve, pivots   Cholesky and Gauss: LAPACK's by XLA, and here rules that know zeros
    sparse                  the array itself; zeros known in it are those of a sparse matrix

Zeros of sparse matrices are what makes stiff chains cheap: nothing is computed for them. It also is
the one difference from JAX's arithmetic, in which zero times infinity is NaN. So they begin where
limpet says, at the derivatives of the constraints and at matrices of its own; what the user's
functions compute, is exact. Wherever something is infinite or no number, limpet refuses the point
for its values or normals that are not finite, whatever the zeros beside them became.
"""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as lapack
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def solve(A, b):
    """The solution of A x = b."""
    return SOLVE.bind(A, b)


def factor(A):
    """L, lower triangular, with L L^T = A; some of its diagonal is NaN, or zero, if there is none.

    Its rule leaves the other entries as they come: the diagonal is enough to refuse a point.
    """
    return FACTOR.bind(A)


def pivots(A):
    """Numbers whose product is the determinant of A, or minus that."""
    return PIVOTS.bind(A)


def sparse(array):
    """The array; what is multiplied by a zero that is known in it is zero, be it infinite."""
    return SPARSE.bind(jnp.asarray(array))


def _same(array):
    return array


def _lower(A):
    return jnp.linalg.cholesky(A, symmetrize_input=False)


def _diagonal(A):
    return jnp.diagonal(lapack.lu_factor(A)[0])


def _primitive(name, function) -> Primitive:
    """A function as an operation, with a rule of its own."""
    primitive = Primitive(name)
    primitive.def_impl(jax.jit(function))
    primitive.def_abstract_eval(
        lambda *avals: ShapedArray(jax.eval_shape(function, *avals).shape, avals[0].dtype)
    )
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))
    return primitive


def _by_function(primitive, function):
    """Let its derivatives and batches be those of the function, which XLA knows."""

    def jvp(primals, tangents):
        return jax.jvp(function, primals, [ad.instantiate_zeros(each) for each in tangents])

    def batch(arguments, axes):
        return jax.vmap(function, axes)(*arguments), 0

    ad.primitive_jvps[primitive] = jvp
    batching.primitive_batchers[primitive] = batch


FACTOR = _primitive("limpet_factor", _lower)
SOLVE = _primitive("limpet_solve", jnp.linalg.solve)
PIVOTS = _primitive("limpet_pivots", _diagonal)
SPARSE = _primitive("limpet_sparse", _same)
_by_function(FACTOR, _lower)
_by_function(SOLVE, jnp.linalg.solve)
_by_function(PIVOTS, _diagonal)
ad.deflinear2(SPARSE, lambda cotangent, _: [cotangent])
batching.defvectorized(SPARSE)
