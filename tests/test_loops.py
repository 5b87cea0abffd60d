"""Arrays in memory, and loops over them, against `jax.jit`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import quickly
from jax import lax
from jax.scipy.linalg import solve_triangular

import limpet
from limpet import lanes
from limpet.engine import xla
from limpet.kernels import noise
from limpet.lanes import operations, primitives, width
from limpet.lanes.loops import workspace
from limpet.run import tile

pytestmark = pytest.mark.optimized

rng = np.random.default_rng(0)
POINTS = rng.normal(size=(7, 24))  # lanes go by fours or eights
A = rng.normal(size=(5, 24, 24))
PLACES = np.array([3, 1, 1, 23, -1, 99, 0, 7] * 4)


@pytest.fixture(autouse=True)
def _joined(monkeypatch):
    """Loops are joined in small programs, too."""
    monkeypatch.setattr(operations, "LARGE", 0)


def in_memory(function, points, registers):
    """A function of one point at every point, with small arrays alone in registers."""
    one = jax.ShapeDtypeStruct(points.shape[1:], points.dtype)
    program = lanes.scan(
        lambda _, carry, x: (carry, function(x)), (), jnp.zeros(()), one, registers=registers
    )
    outputs = program((), np.zeros(len(points)), points[:, None])[1]
    return jax.tree.map(lambda leaf: leaf[:, 0], outputs)


def quadratics(x):
    return jnp.einsum("ijk,j,k->i", A, x, x)


def normals(x):
    pull_back = jax.vjp(quadratics, x)[1]
    return jax.vmap(pull_back)(primitives.sparse(jnp.eye(5)))[0]


def nearly_singular(x):
    return jnp.outer(x[:12], x[12:]) + jnp.diag(x[:12])


def definite(x):
    return x.reshape(8, 3) @ x.reshape(8, 3).T + jnp.eye(8)


def damped(x, length):
    return lax.scan(lambda c, y: (jnp.sin(c) * 0.5 + y, c[:3]), x[:20], x.reshape(-1, 1), length)


FUNCTIONS = {
    "entries": lambda x: jnp.exp(-(x**2)) + jnp.where(x > 0, x, -1.0),
    "a sum": lambda x: jnp.sum(x * 2),
    "sums of rows": lambda x: jnp.sum(x.reshape(4, 6) ** 2, axis=0),
    "sums of few": lambda x: jnp.sum(x.reshape(2, 12), axis=1),
    "differences": lambda x: jnp.diff(x.reshape(8, 3), axis=0) ** 2,
    "running sum": lambda x: jnp.cumsum(x.reshape(6, 4), axis=0),
    "running product, backwards": lambda x: lax.cumprod(x, reverse=True),
    "largest": lambda x: (jnp.argmax(x), jnp.argmin(x.reshape(6, 4), axis=1), jnp.max(x)),
    "product": lambda x: A[0] @ x,
    "product of matrices": lambda x: x.reshape(4, 6) @ x.reshape(6, 4),
    "product of batches": lambda x: jnp.matmul(x.reshape(2, 3, 4), A[:2, :4, :5]),
    "outer product": lambda x: jnp.outer(x, x),
    "quadratics": quadratics,
    "normals, sparse on the way": normals,
    "normals": jax.jacrev(quadratics),
    "second derivatives": jax.hessian(lambda x: jnp.sum(quadratics(jnp.sin(x)))),
    "backwards": lambda x: x[::-1] * x,
    "parts": lambda x: jnp.concatenate([x[3:9], x[::5], x[-1:]]),
    "stack": lambda x: jnp.stack([x, x[::-1]], axis=1),
    "transpose": lambda x: (x.reshape(4, 6).T + 1).reshape(3, 8),
    "broadcast": lambda x: x[:, None] * jnp.ones((24, 3)),
    "pad": lambda x: lax.pad(x, 0.5, [(2, -3, 1)]),
    "tile": lambda x: jnp.tile(x.reshape(4, 6), (2, 3)),
    "roll": lambda x: jnp.roll(x, 5),
    "gather": lambda x: x.at[PLACES].get(mode="fill"),
    "gather, clipped": lambda x: x[::-1].at[PLACES].get(mode="clip"),
    "gather of rows": lambda x: x.reshape(8, 3)[np.array([[0, 7], [7, 2]])],
    "scatter": lambda x: x.at[PLACES].add(x[:8].repeat(4), mode="drop"),
    "scatter of a slice": lambda x: x.at[3:17].multiply(2.0),
    "at a place": lambda x: x[jnp.argmax(x)],
    "beyond the end": lambda x: jnp.take(x, jnp.argmax(x) + jnp.arange(20), mode="fill"),
    "slice at a place": lambda x: lax.dynamic_slice(x, (jnp.argmax(x),), (9,)),
    "write at a place": lambda x: lax.dynamic_update_slice(x, x[:3], (jnp.argmin(x),)),
    "add at places": lambda x: x.at[jnp.argsort(A[0, 0]) % (1 + jnp.argmax(x))].add(1.0),
    "derivative by a place": jax.grad(lambda x: x[jnp.argmax(x)] ** 2),
    "Cholesky": lambda x: jnp.linalg.cholesky(definite(x)),
    "Cholesky of none": lambda x: jnp.linalg.cholesky(nearly_singular(x)),
    "factor": lambda x: primitives.factor(definite(x)),
    "substitution": lambda x: solve_triangular(nearly_singular(x), x[:12], lower=True),
    "substitution, several": lambda x: solve_triangular(
        nearly_singular(x) + jnp.eye(12), A[0, :12, :7], trans=1
    ),
    "Cholesky of two": lambda x: jnp.linalg.cholesky(jnp.stack([definite(x), definite(-x) + 1])),
    "elimination": lambda x: lax.linalg.lu(nearly_singular(x)),
    "elimination, wide": lambda x: lax.linalg.lu(x.reshape(2, 3, 4)),
    "elimination, tall": lambda x: lax.linalg.lu(x[:21].reshape(7, 3)),
    "elimination of zeros": lambda x: lax.linalg.lu(jnp.outer(x[:3] * 0, x[:4])),
    "elimination of no columns": lambda x: lax.linalg.lu(jnp.zeros((3, 0)) * x[0]),
    "nothing to solve": lambda x: lax.linalg.tridiagonal_solve(*[x[:0]] * 3, jnp.outer(x[:0], x)),
    "nothing to sort": lambda x: jnp.argsort(x[:0]),
    "any solve": lambda x: jnp.linalg.solve(nearly_singular(x), x[:12]),
    "derivatives of any solve": jax.jacrev(
        lambda x: jnp.linalg.solve(x[:16].reshape(4, 4), x[20:])
    ),
    "determinant": lambda x: jnp.linalg.slogdet(nearly_singular(x)),
    "three diagonals": lambda x: lax.linalg.tridiagonal_solve(
        x[:8], x[8:16], x[16:], jnp.outer(x[:8], x[:3])
    ),
    "three diagonals, singular": lambda x: lax.linalg.tridiagonal_solve(
        x[:3], x[3:6] * 0, x[6:9] * 0, x[:3, None]
    ),
    "one number on three diagonals": lambda x: lax.linalg.tridiagonal_solve(
        x[:1], x[1:2], x[2:3], x[3:4, None]
    ),
    "derivatives of three diagonals": jax.jacfwd(
        lambda x: lax.linalg.tridiagonal_solve(x[:5], x[5:10], x[10:15], x[15:20, None])
    ),
    "sort": jnp.sort,
    "sort of columns": lambda x: jnp.sort(x.reshape(3, 8), axis=0, descending=True),
    "order, with ties": lambda x: (jnp.argsort(jnp.round(x)), jnp.lexsort((x, jnp.round(x)))),
    "order, NaN and zeros": lambda x: jnp.argsort(
        jnp.where(x > 1, jnp.nan, jnp.where(abs(x) < 0.5, -0.0, jnp.where(x < -1, 0.0, x)))
    ),
    "order of flags": lambda x: jnp.argsort(x > 0),
    "sort of one": lambda x: jnp.sort(x[:1]),
    "derivative of a sort": jax.grad(lambda x: jnp.sum(jnp.sort(x) * jnp.arange(24))),
    "median": jnp.median,
    "Gauss": lambda x: primitives.solve(nearly_singular(x), x[:12]),
    "pivots": lambda x: jnp.prod(primitives.pivots(nearly_singular(x))) ** 2,
    "scan": lambda x: damped(x, 24),
    "scan of nothing": lambda x: lax.scan(lambda c, y: (c + y, c), x, x[24:])[0],
    "derivative of a scan": jax.grad(lambda x: jnp.sum(damped(x, 24)[0] ** 2)),
    "scan, backwards": lambda x: lax.scan(lambda c, y: (c + y, c * y), 0.0, x, reverse=True),
    "long scan": lambda x: lax.fori_loop(0, 500, lambda i, c: c * 0.99 + jnp.cos(i + c), x),
    "carried round": lambda x: lax.fori_loop(0, 3, lambda _, c: (c[1], c[2], c[0]), (x, 2 * x, -x)),
    "carried beside": lambda x: lax.fori_loop(
        0, 3, lambda _, c: (c[0] * 0.5 + 1, c[1] * 0.3 + c[0], c[2] * 0.2 - c[1]), (x, 2 * x, -x)
    ),
    "carried twice": lambda x: lax.fori_loop(
        0, 3, lambda _, c: 2 * (jnp.sin(c[0]) + c[1] * 0.1,), (x, 2 * x)
    ),
    "while": lambda x: lax.while_loop(lambda c: jnp.sum(c**2) > 1, lambda c: c * 0.7, x),
    "while, in batches": lambda x: jax.vmap(
        lambda y: lax.while_loop(lambda c: jnp.sum(c**2) > 0.1, lambda c: c * 0.6, y)
    )(x.reshape(12, 2)),
    "while in while": lambda x: lax.while_loop(
        lambda c: jnp.max(jnp.abs(c)) > 0.5,
        lambda c: lax.while_loop(lambda d: d[0] > 0.1, lambda d: d * 0.9, c) * 0.8,
        x,
    ),
    "branch": lambda x: lax.cond(x[0] > 0, lambda y: y * 2, lambda y: 1 - y, x),
    "one of three": lambda x: lax.switch(
        jnp.argmax(x[:3]), [lambda y: y, jnp.sin, lambda y: y[::-1]], x
    ),
    "division of whole numbers": lambda x: jnp.argsort(A[0, 0]) // (1 + jnp.argmax(x)),
}


@functools.cache
def by_jax(name):
    """A function at all points."""
    return jax.jit(jax.vmap(FUNCTIONS[name]))(POINTS)


@pytest.mark.parametrize("registers", [1, 5, 16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_in_memory_are_jaxs(name, registers):
    found = in_memory(FUNCTIONS[name], POINTS, registers)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(by_jax(name)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def sphere(x):
    return jnp.array([jnp.sum(x**2) - 1])


def dense(x):
    """Ten quadratics in 24 unknowns, each of them of all."""
    B = A.reshape(10, 12, 24)
    return jnp.einsum("ijk,j,k->i", B, x[:12], x) / 10 + x[:10] - 1


def prey(x):
    """What is left of two populations after 70 small steps in time."""

    def step(y, _):
        u, v = y
        change = jnp.array([x[0] * u - x[1] * u * v, x[2] * u * v - x[3] * v])
        return y + 0.01 * change, None

    return lax.scan(step, jnp.array([1.0, 0.8]), length=70)[0] - jnp.array([1.1, 0.8])


STARTS = {sphere: np.eye(100)[0], dense: np.full(24, 0.5), prey: np.ones(4)}


IN_MEMORY = [(sphere, limpet.SAS()), (prey, limpet.Lifted(3, 0.1))]
# XLA takes ten seconds to compile each
DEAR = [(q, limpet.Lifted(3, 0.1)) for q in (sphere, dense)]
DEAR += [(q, limpet.SAS()) for q in (dense, prey)]


@pytest.mark.parametrize(
    ("q", "kernel"), [*IN_MEMORY, *(pytest.param(*each, marks=pytest.mark.slow) for each in DEAR)]
)
def test_steps_in_memory_are_those_of_xla(q, kernel):
    """Moves, points and what became of each proposal, with arrays in memory."""
    chains, steps = 6, 8
    starts = limpet.find_start(limpet.Target(q, 0.05), STARTS[q], count=chains, seed=1)
    target = limpet.Target(q, 0.05).freeze(jnp.asarray(starts[0]))
    carry = tile.first_states(kernel, target, starts), noise.generators(0, 0, chains)
    scales = tile.given_scales(kernel, target, (chains, steps))
    constants = kernel, target
    example = [jax.tree.map(lambda leaf: leaf[0], carry), jax.tree.map(lambda a: a[0, 0], scales)]
    ours = lanes.scan(tile.step, constants, *example, registers=16)(constants, carry, scales)
    with quickly():
        theirs = xla.scan(tile.step, constants, *example, chains, steps)(constants, carry, scales)
    fewer = lanes.scan(tile.step, constants, *example, registers=16, chains=width.FEW)
    few_lanes = fewer(constants, carry, scales)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(few_lanes), strict=True):
        np.testing.assert_array_equal(a, b)  # to the last bit, however many go side by side
    np.testing.assert_array_equal(ours[1].code, theirs[1].code)
    np.testing.assert_allclose(ours[1].x, theirs[1].x, atol=1e-9)
    for a, b in zip(jax.tree.leaves(ours[0]), jax.tree.leaves(theirs[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_a_scan_of_any_length_is_one_loop():
    """Code, and so the time to compile it, does not grow with the number of turns."""
    texts = []
    for length in (50, 1_000):
        program = jax.make_jaxpr(
            lambda _, c, x, n=length: (c, lax.fori_loop(0, n, lambda _, y: jnp.sin(y), x))
        )((), 0.0, jnp.zeros(24))
        texts.append(lanes.operations.written_as_loops(program, 0, 1))
    assert abs(len(texts[0]) - len(texts[1])) < 50


def test_large_arrays_have_fewer_lanes(monkeypatch):
    program = jax.make_jaxpr(lambda _, c, x: (c, jnp.cumsum(x)))((), 0.0, jnp.zeros(24))
    assert "<8 x double>" in lanes.operations.written_as_loops(program, 0, 1)
    assert "<8 x double>" not in lanes.operations.written_as_loops(program, 0, 1, 16, width.FEW)
    monkeypatch.setattr(width, "MOST_FOR_MANY", 1_000)
    assert "<8 x double>" not in lanes.operations.written_as_loops(program, 0, 1)


def test_too_large_a_program_is_refused():
    with pytest.raises(lanes.UnsupportedError, match="more than 1024 MB"):
        in_memory(lambda x: jnp.cumsum(jnp.outer(jnp.tile(x, 400), jnp.tile(x, 400))), POINTS, 16)


def test_memory_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setattr(workspace, "LARGEST", 2**60)
    beyond = 2**40, 24  # numbers that no processor can tell apart by their addresses
    with pytest.raises(MemoryError, match=r"needs \d+ MB of memory, .*: try workers=1"):
        in_memory(lambda x: jnp.sum(jnp.cumsum(jnp.broadcast_to(x, beyond), axis=1)), POINTS, 16)


def chain_of_products(x):
    """Derivatives of products of products: read on their diagonal alone, and used again."""
    B = A.reshape(10, 12, 24)
    y = jnp.einsum("ijk,k->ij", B, x)
    return jnp.einsum("ij,ij->i", jnp.tanh(y), y) + jnp.einsum("ij,j->i", y, x[:12])


@pytest.mark.parametrize("function", [quadratics, chain_of_products])
def test_products_with_sparse_matrices_read_what_they_need(function):
    """The force along weights: a derivative of all gradients, as trajectories have it."""
    m = function(POINTS[0]).size

    def force(x):
        def weighed(x):
            pull_back = jax.vjp(function, x)[1]
            gradients = jax.vmap(pull_back)(primitives.sparse(jnp.eye(m)))[0]
            return jnp.sum(jnp.cos(jnp.arange(m * 24.0)).reshape(m, 24) * gradients)

        return jax.grad(weighed)(x)

    wanted = jax.jit(jax.vmap(force))(POINTS)
    for registers in (1, 16):
        np.testing.assert_allclose(in_memory(force, POINTS, registers), wanted, rtol=1e-9)
