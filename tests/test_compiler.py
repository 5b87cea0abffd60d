"""What once crashed the compiler, or made it answer other than JAX does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from test_programs import natively

import limpet
from limpet import lanes
from limpet.lanes import code, operations
from limpet.run import tile

pytestmark = pytest.mark.optimized

POINTS = np.array(
    [[1.0, 2.0], [0.0, -0.0], [np.inf, 1.0], [np.nan, -3.0], [-2.0, np.nan], [1e17, 3.0], [0.3, 7]]
)


def halved(y):
    """As often as it takes: a different number of times for each number."""
    return lax.while_loop(lambda c: (c > 1) & (c < 1e9), lambda c: c / 2, y)


def polynomial(x):
    return jnp.polyval(jnp.array([1.0, 2.0, 3.0]), x)


@jax.jit
def limpet_solve(x):
    """A user's function, with a name that limpet also uses."""
    return x * 2


RIGHT = {
    "random numbers": lambda x: x * jax.random.normal(jax.random.key(0), (2,)),
    "random numbers, old": lambda x: x * jax.random.uniform(jax.random.PRNGKey(0), (2,)),
    "many loops": lambda x: jax.vmap(halved)(x),
    "loops in loops": lambda x: jax.vmap(
        lambda y: lax.fori_loop(0, 3, lambda k, z: halved(z + k), y)
    )(x),
    "a scan of nothing": lambda x: lax.scan(lambda c, y: (c + y, y), 0.0, x[2:]),
    "a sum of nothing": lambda x: jnp.sum(x[2:] ** 2),
    "a product of nothing": lambda x: jnp.prod(x[2:]),
    "the largest of nothing": lambda x: jnp.max(x[2:], initial=-1.0),
    "sums of nothing": lambda x: jnp.cumsum(x[2:]),
    "shift": lambda x: jnp.nan_to_num(x).astype(int) >> 70,
    "shifts": lambda x: jnp.nan_to_num(x).astype(int) << jnp.nan_to_num(x[::-1]).astype(int),
    "signs of zeros": lambda x: jnp.arctan2(x[0] - x[0], 0.0 - x[1]),
    "signs of zeros that are known": lambda x: jnp.arctan2(jnp.where(x > 1, 0.0, -0.0), -1.0),
    "digits": lambda x: jnp.full(3, 1e17).at[0].add(x[0]),
    "zeros": lambda x: jnp.array([1.0, 0.0]) * x,
    "nothing but zeros": lambda x: jnp.zeros(2) * x,
    "a table with zeros": lambda x: jnp.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]) @ x,
    "places": lambda x: jnp.stack([jnp.argmax(x), jnp.argmin(x)]),
    "a name": limpet_solve,
    "logsumexp": jax.nn.logsumexp,
    "softmax": jax.nn.softmax,
    "rematerialised": jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sum(jnp.sin(y)))(x)),
    "polynomial": polynomial,
    "slope": jax.grad(lambda x: jnp.sum(polynomial(x))),
    "many branches": lambda x: jax.vmap(lambda y: lax.cond(y > 0, lambda: y, lambda: -y))(x),
    "gather beyond": lambda x: x.at[jnp.array([0, 5, -1])].get(mode="fill"),
    "products at a place": lambda x: x.at[jnp.array([0, 0])].mul(x),
}


@pytest.mark.parametrize("name", RIGHT)
def test_it_is_jaxs(name):
    found = natively(RIGHT[name], POINTS)
    wanted = jax.device_get(jax.jit(jax.vmap(RIGHT[name]))(POINTS))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-13)


LEFT = {
    "debug_print": lambda x: (jax.debug.print("{}", x[0]), x)[1],
    "debug_print, which": jax.jit(lambda x: (jax.debug.print("{}", x[0]), x)[1]),
    "debug_print, which does": lambda x: lax.fori_loop(
        0, 2, lambda _, y: (jax.debug.print("{}", y[0]), y + 1)[1], x
    ),
    "io_callback": lambda x: jax.experimental.io_callback(lambda y: y, x, x),
    "pure_callback": lambda x: jax.pure_callback(lambda y: y, x, x),
    "several types": lambda x: jnp.matmul(
        *[x.astype(jnp.float32)] * 2, preferred_element_type=jnp.float64
    ),
    "bitcast_convert_type": lambda x: lax.bitcast_convert_type(x, jnp.int32),
    "eigh": lambda x: jnp.linalg.eigvalsh(jnp.outer(x, x)),
    "random_seed": lambda x: jax.random.normal(jax.random.key(jnp.argmax(x))),
    "exp with accuracy": lambda x: lax.exp(x, accuracy=lax.Tolerance(ulps=4)),
    "fewer digits": lambda x: lax.reduce_precision(x, 5, 5),
    "float16": lambda x: x.astype(jnp.float16),
}


@pytest.mark.parametrize("reason", LEFT)
def test_it_is_left_to_xla(reason):
    with pytest.raises(lanes.UnsupportedError, match=reason) as refused:
        natively(LEFT[reason], POINTS)
    assert len(str(refused.value)) < 100


def test_a_fault_inside_is_a_refusal(monkeypatch):
    def broken(*_):
        raise KeyError("an odd parameter\nand more")

    monkeypatch.setattr(operations, "written", broken)
    with pytest.raises(lanes.UnsupportedError, match=r"fault of the compiler \(KeyError: 'an odd"):
        natively(lambda x: x * 1.375, POINTS)


@pytest.mark.parametrize(
    ("matrix", "sound"), [([[1.0, 2.0], [2.0, 1.0]], False), ([[2.0, 0.0], [0.0, 3.0]], True)]
)
def test_an_indefinite_matrix_has_no_factor(matrix, sound):
    """All of it is NaN, as JAX has it, also entries that were computed before."""
    function = lambda x: jnp.linalg.cholesky(jnp.array(matrix) * x[0])  # noqa: E731
    found = natively(function, POINTS[:1])
    np.testing.assert_allclose(found, lax.map(function, POINTS[:1]), rtol=1e-14)
    assert np.all(np.isfinite(found)) == sound


def test_loops_in_loops_are_not_written_again_and_again():
    """A matrix that fills, in loops within loops: each may be written twice, not 2^8 times."""
    written = 0

    def nested(depth, a):
        nonlocal written
        if depth == 0:
            return jnp.roll(a, 1, axis=0) + 1.0
        return lax.fori_loop(
            0, jnp.int64(a[0, 0] > -1e300) + 1, lambda _, b: nested(depth - 1, b), a
        )

    program = jax.make_jaxpr(lambda x: nested(8, jnp.diag(x)))(POINTS[0])
    before = code.Code.line

    def counted(self, text):
        nonlocal written
        written += 1
        return before(self, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code.Code, "line", counted)
        operations.zeros(program)
    assert written < 5000


@pytest.mark.parametrize("part", ["q", "log_density"])
def test_what_is_not_finite_is_refused_natively_as_by_xla(part, monkeypatch):
    """Zeros of sparse matrices hide no NaN: the same proposals are refused, for the same reason."""

    def edge(x):
        return jnp.where(x[0] > 0.5, jnp.nan, jnp.where(x[1] > 0.9, jnp.inf, 0.0))

    def q(x):
        rows = [x[0] ** 2 + x[1] ** 2 - 1, x[2] - x[3] ** 2]
        return jnp.array(rows) + jnp.array([0.0, edge(x) if part == "q" else 0.0])

    target = limpet.Target(q, 0.1, log_density=edge if part == "log_density" else None)
    # trajectories of many slides are chaotic, and part after a rounding
    kernel = limpet.SAS()
    given = {"kernel": kernel, "draws": 40, "chains": 5, "warmup": 20, "progress": False}
    ours = limpet.sample(target, [-1.0, 0.0, 0.0, 0.0], **given)
    monkeypatch.setattr(lanes, "scan", _refuse)
    tile._compile.cache_clear()
    with pytest.warns(limpet.SlowPathWarning, match="cannot do: a test"):
        theirs = limpet.sample(target, [-1.0, 0.0, 0.0, 0.0], **given)
    tile._compile.cache_clear()
    assert np.all(np.isfinite(ours.posterior["x"]))
    assert np.all(ours.posterior["x"][..., 0] <= 0.5)
    assert np.all(ours.posterior["x"][..., 1] <= 0.9)
    assert ours.attrs["counts"] == theirs.attrs["counts"]


def _refuse(*_, **__):
    raise lanes.UnsupportedError("a test")
