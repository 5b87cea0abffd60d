"""Machine code against JAX's own evaluation of the same functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from exact import quickly
from models import CASES, beads

import limpet
from limpet import lanes
from limpet.engine import Example, cache, program, xla
from limpet.geometry import linalg
from limpet.kernels import noise
from limpet.lanes import functions, machine, primitives, width
from limpet.paper import START, ellipsoid_sphere, two_spheres
from limpet.run import tile

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(0)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-90, -1e-90, 1e90, -1e90, np.inf, -np.inf, np.nan]
POINTS = np.concatenate([RNG.normal(size=(40, 3)), RNG.choice(SPECIAL, size=(160, 3))])


def natively(function, points):
    """A function of one point at every point, by machine code."""
    one = jax.ShapeDtypeStruct(points.shape[1:], points.dtype)
    program = lanes.scan(lambda _, carry, x: (carry, function(x)), (), jnp.zeros(()), one)
    outputs = program((), np.zeros(len(points)), points[:, None])[1]
    return jax.tree.map(lambda leaf: leaf[:, 0], outputs)


def turn(x, k):
    """A loop that ends at different times for different points."""
    return jax.lax.while_loop(
        lambda c: (c[0] < k) & (jnp.abs(c[1]) < 3), lambda c: (c[0] + 1, c[1] * 1.5 + 0.1), (0, x)
    )


OPERATIONS = {
    "arithmetic": lambda x: (x[0] + x[1]) * x[2] - x[0] / x[1],
    "powers": lambda x: jnp.stack([x[0] ** 3, x[1] ** -2, x[2] ** 0, jnp.sqrt(x[0]), x[1] ** 0.5]),
    "roots": lambda x: jnp.stack([jax.lax.rsqrt(x[0]), jnp.cbrt(x[1]), jnp.hypot(x[0], x[2])]),
    "rounding": lambda x: jnp.stack([jnp.floor(x), jnp.ceil(x), jnp.round(x), jnp.sign(x)]),
    "extremes": lambda x: jnp.stack([jnp.max(x), jnp.min(x), jnp.clip(x[0], -1.0, 1.0)]),
    "places": lambda x: jnp.stack([jnp.argmax(jnp.nan_to_num(x)), jnp.argmin(jnp.nan_to_num(x))]),
    "comparisons": lambda x: jnp.stack([x[0] < x[1], x[0] >= x[2], x[1] == x[2], x[0] != x[0]]),
    "finite": lambda x: jnp.stack([jnp.isfinite(x), jnp.isnan(x), jnp.isinf(x)]),
    "logic": lambda x: jnp.stack([(x[0] > 0) & (x[1] > 0), (x[0] > 0) ^ (x[1] > 0), ~(x[2] > 0)]),
    "types": lambda x: jnp.stack([jnp.nan_to_num(x).astype(t).astype(float) for t in "iq?"]),
    "short floats": lambda x: (x.astype(jnp.float32) * 3).astype(float),
    "exp and log": lambda x: jnp.stack([jnp.exp(x), jnp.log(x), jax.nn.sigmoid(x)]),
    "library": lambda x: jnp.stack([jnp.sin(x), jnp.cos(x), jnp.tanh(x), jnp.arctan2(x, x[::-1])]),
    "differences": lambda x: jnp.stack([jnp.expm1(x), jnp.log1p(x), jax.lax.erf(x)]),
    "a table": lambda x: jnp.interp(x, jnp.linspace(-1, 2, 7), jnp.arange(7.0) ** 2),
    "powers of two": lambda x: jnp.stack([jnp.log2(jnp.abs(x)), jnp.ldexp(x, 3), jnp.exp2(x)]),
    "powers of numbers": lambda x: jnp.abs(x[0]) ** x[1],
    "remainder": lambda x: jnp.fmod(x[0], x[1]),
    "sums": lambda x: jnp.stack([jnp.sum(x), jnp.prod(x), jnp.mean(x), jnp.cumsum(x)[1], x @ x]),
    "matrices": lambda x: jnp.einsum("i,j,jk->ik", x, x, jnp.arange(1.0, 7.0).reshape(3, 2)),
    "a matrix that fills": lambda x: jax.lax.fori_loop(
        0, 3, lambda _, a: jnp.roll(a, 1, axis=0) + 1.0, jnp.diag(x)
    ),
    "structure": lambda x: jnp.concatenate([x[::-1], jnp.pad(x, 1), jnp.tile(x, 2)[1:5].T]),
    "gather": lambda x: x[jnp.array([2, 0, 2, -1])] + jnp.roll(x, 1)[jnp.array([0, 1, 2, 0])],
    "scatter": lambda x: x.at[jnp.array([0, 2])].add(1.0).at[1].set(7.0),
    "gradients": jax.grad(lambda x: jnp.sum(x[jnp.array([0, 0, 2])] ** 2) + jnp.log(x[1] ** 2 + 1)),
    "loop": lambda x: turn(x[0], 7)[1],
    "loop in a loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, y: turn(y, i)[1], x[0]),
    "branches": lambda x: jax.lax.cond(x[0] > 0, lambda: x[1] * 2, lambda: turn(x[2], 4)[1]),
    "switch": lambda x: jax.lax.switch(
        (x[0] > 0).astype(int) + (x[1] > 0), [lambda: x[0], lambda: x[1], lambda: x[2] + 1]
    ),
    "loop with nothing": lambda x: jax.lax.fori_loop(
        0, 3, lambda _, c: (c[0], c[1] + 1), (jnp.zeros((0, 2)), x[0])
    ),
    "scan": lambda x: jax.lax.scan(lambda c, y: (c + y, c * y), 0.5, x, reverse=True),
    "nothing to compute": lambda x: jnp.float64(3.0),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_jaxs(name):
    function = OPERATIONS[name]
    found = natively(function, POINTS)
    wanted = jax.jit(jax.vmap(function))(POINTS)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype

        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-300)


def test_zeros_of_sparse_matrices_stay_zero_and_others_are_jaxs():
    points = np.array([[1.0, np.inf, np.nan]])
    row = jnp.array([2.0, 0.0, 0.0])
    assert natively(lambda x: primitives.sparse(row) @ x, points) == [2.0]
    np.testing.assert_array_equal(natively(lambda x: row @ x, points), [np.nan])


def spread_out(x):
    """A matrix that needs its rows exchanged, and is mostly empty."""
    A = jnp.diag(x[0] + jnp.arange(10.0)) + jnp.diag(jnp.full(9, x[1]), 1)
    return A.at[3, 0].set(x[2]).at[9, 0].set(50.0) + jnp.diag(jnp.full(9, 3.0), -1)


def positive(x):
    """A positive matrix."""
    return spread_out(x) @ spread_out(x).T


ALGEBRA = {
    "a loop that keeps zeros": lambda x: jax.lax.fori_loop(
        0, 3, lambda _, a: a * x[0] + jnp.diag(x), jnp.diag(x**2)
    ),
    "solve": lambda x: linalg.solve(spread_out(x), jnp.arange(10.0)),
    "determinant": lambda x: linalg.log_abs_det(spread_out(x)),
    "factor": lambda x: linalg.factor(spread_out(x)),
    "lower": lambda x: linalg.solve_lower(linalg.factor(spread_out(x)), jnp.arange(10.0)),
    "upper": lambda x: linalg.solve_upper(linalg.factor(spread_out(x)), jnp.arange(10.0)),
    "dual": lambda x: linalg.dual(spread_out(x), linalg.factor(spread_out(x))),
    "half the log determinant": lambda x: linalg.half_log_det(linalg.factor(spread_out(x))),
    "inner": lambda x: linalg.inner(spread_out(x), positive(x)),
    "tangent": lambda x: linalg.tangent(
        spread_out(x)[:, :9], linalg.factor(spread_out(x)[:, :9]), jnp.arange(10.0)
    ),
    "the whole factor": lambda x: jax.lax.linalg.cholesky(positive(x)),
    "from the right": lambda x: jax.lax.linalg.triangular_solve(
        jnp.linalg.cholesky(positive(x)), jnp.ones((2, 10)), lower=True
    ),
    "transposed, from the right": lambda x: jax.lax.linalg.triangular_solve(
        jnp.linalg.cholesky(positive(x)), jnp.ones((2, 10)), lower=True, transpose_a=True
    ),
    "ones on the diagonal": lambda x: jax.lax.linalg.triangular_solve(
        spread_out(x), jnp.ones((10, 2)), left_side=True, unit_diagonal=True
    ),
}


@pytest.mark.parametrize("name", ALGEBRA)
def test_matrices_are_those_of_lapack(name):
    """They have ten rows, so `limpet.geometry.linalg` leaves them to LAPACK."""
    points = np.random.default_rng(0).normal(size=(9, 3))
    wanted = jax.lax.map(ALGEBRA[name], points)
    found = natively(ALGEBRA[name], points)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("chains", [1, 3, 4, 5, 17])
def test_a_chain_does_not_know_of_others(chains):
    function = OPERATIONS["loop in a loop"]
    np.testing.assert_array_equal(
        natively(function, POINTS[:chains]), natively(function, POINTS)[:chains]
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "points"),
    [
        (functions.exp, np.exp, np.linspace(-744, 709, 100_001)),
        (functions.log, np.log, 10.0 ** np.linspace(-320, 308, 100_001)),
        (functions.log, np.log, 1 + np.linspace(-0.5, 0.5, 100_001)),
    ],
)
def test_exp_and_log_are_right_to_two_units_of_the_last_place(ours, theirs, points):
    exact = theirs(points.astype(np.longdouble))
    unit = np.maximum(np.spacing(np.abs(exact.astype(float))), 5e-324)
    assert np.max(np.abs(natively(ours, points) - exact) / unit) <= 2


STARTS = {two_spheres: [1.0, 0.0, 0.0], ellipsoid_sphere: [1.0, 0.0, 0.0]}
STARTS |= {beads: CASES["beads"].start}


KERNELS = {
    "sas": limpet.SAS(),
    "travelling": limpet.SAS(slide_probability=0.2, trajectory=3),
    "surface": limpet.SurfaceSampler(),
    "lifted": limpet.Lifted(steps=3, step_size=0.5),  # longer ones are chaotic
    "walk": limpet.RandomWalk(),
}
# every sampler and every model; the others take up to ten seconds each
FIRST = {("travelling", two_spheres), ("walk", two_spheres), ("sas", ellipsoid_sphere)}
FIRST |= {("surface", ellipsoid_sphere), ("lifted", beads)}


@pytest.mark.parametrize(
    ("name", "q"),
    [
        pytest.param(name, q, marks=[pytest.mark.slow] * ((name, q) not in FIRST))
        for name in KERNELS
        for q in STARTS
    ],
)
def test_steps_are_those_of_xla(name, q):
    """Also those that are compiled quickly, as other tests have them."""
    kernel, chains, steps = KERNELS[name], 32, 64
    starts = limpet.find_start(limpet.Target(q, 0.05), STARTS[q], count=chains, seed=1)
    target = limpet.Target(q, 0.05).freeze(jnp.asarray(starts[0]))
    states = tile.first_states(kernel, target, starts)
    carry, constants = (states, noise.generators(0, 0, chains)), (kernel, target)
    scales = tile.given_scales(kernel, target, (chains, steps))
    one = jax.tree.map(lambda leaf: leaf[0], (carry, scales))
    one = one[0], jax.tree.map(lambda leaf: leaf[0], one[1])
    zero = tile._zero(target, *one[0])
    if q is beads and not isinstance(kernel, limpet.RandomWalk):  # which has no normals
        assert np.count_nonzero(~zero[0].normals) == 2 + 8 * 4
    _, ours = lanes.scan(tile.step, constants, *one, lambda: zero)(constants, carry, scales)
    with quickly():
        _, theirs = xla.scan(tile.step, constants, *one, chains, steps)(constants, carry, scales)
        _, quick = lanes.scan(tile.step, constants, *one, lambda: zero)(constants, carry, scales)
    for others in (theirs, quick):
        assert np.mean(ours.code == others.code) > 0.999
        np.testing.assert_allclose(ours.x[:, :5], others.x[:, :5], atol=1e-10)


@pytest.mark.parametrize("wide", [True, False])
def test_lanes_in_registers_change_no_bit(monkeypatch, wide):
    """Eight, where registers have room for as many, and four; of the default sampler's step."""
    monkeypatch.setattr(machine, "is_wide", lambda: wide)
    chains, steps, kernel = 13, 40, limpet.Lifted()
    starts = limpet.find_start(limpet.Target(ellipsoid_sphere, 0.05), START, count=chains, seed=1)
    target = limpet.Target(ellipsoid_sphere, 0.05).freeze(jnp.asarray(starts[0]))
    carry = tile.first_states(kernel, target, starts), noise.generators(0, 0, chains)
    scales = tile.given_scales(kernel, target, (chains, steps))
    one = jax.tree.map(lambda leaf: leaf[0], carry), jax.tree.map(lambda a: a[0, 0], scales)
    texts = []

    def compiled(text, **options):
        texts.append(text)
        return machine.compiled(text, **options)

    found = [
        lanes.scan(tile.step, (kernel, target), *one, compiled=compiled, chains=count)(
            (kernel, target), carry, scales
        )
        for count in (chains, width.FEW)
    ]
    assert ["<8 x double>" in text for text in texts] == [wide, False]
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(a, b)


def test_arrays_may_be_in_any_order():
    chains, turns = 5, 3
    rng = np.random.default_rng(0)
    constants, carry, given = (
        rng.normal(size=shape) for shape in ((2, 4), (chains, 2, 4), (chains, turns, 4))
    )
    one = constants, carry[0], given[0, 0]
    go = lanes.scan(lambda c, s, x: (s + jnp.outer(c @ x, x), s @ x), *one)
    wanted = go(constants, carry, given)
    found = go(*map(np.asfortranarray, (constants, carry, given)))
    for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_cannot_be_taken_apart_is_left_to_xla():
    def circle_by_eigenvalues(x):
        return jnp.array([jnp.linalg.eigvalsh(jnp.outer(x, x))[-1] - 1])

    with pytest.raises(lanes.UnsupportedError, match="eigh"):
        natively(circle_by_eigenvalues, POINTS)
    slower = r"2 to 7 times slower .* cannot do: eigh\."
    target = limpet.Target(circle_by_eigenvalues, 0.1)
    with pytest.warns(limpet.SlowPathWarning, match=slower):
        draws = limpet.sample(target, [1.0, 0.3], draws=50, chains=5)
    assert np.all(np.abs(np.linalg.norm(draws.posterior["x"], axis=-1) - 1) < 1)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: (x[0] + 1j).real, "complex"),
        (lambda x: jnp.linalg.eigvalsh(jnp.outer(x, x)), "eigh"),
        (
            lambda x: jax.lax.linalg.tridiagonal_solve(x, x, x, x[:, None], perturb_singular=True),
            "perturb_singular",
        ),
        (lambda x: jnp.linalg.cholesky(jnp.outer(x, x).astype(np.float32)), "of float32"),
    ],
)
def test_reasons_are_told(function, reason):
    with pytest.raises(lanes.UnsupportedError, match=reason):
        natively(function, POINTS)


def test_noise_has_its_law():
    # two Kolmogorov-Smirnov tests and two of moments: false alarms in one of 1,000 seeds
    generator, z, u = noise.generators(3, 1, 20_000), [], []
    draw = jax.jit(jax.vmap(lambda generator: noise.draw(generator, 5)))
    for _ in range(20):
        generator, new = draw(generator)
        z.append(np.asarray(new.z))
        u.append(np.stack([new.choice, new.coin], axis=-1))
    z, u = np.array(z), np.array(u)
    assert scipy.stats.kstest(z.ravel(), "norm").pvalue > 2.5e-4
    assert scipy.stats.kstest(u.ravel(), "uniform").pvalue > 2.5e-4
    for products in (z[1:] * z[:-1], z[:, 1:] * z[:, :-1], z[..., 1:] * z[..., :-1]):
        error = products.mean() * np.sqrt(products.size)
        assert abs(error) < scipy.stats.norm.isf(2.5e-4 / 6)
    coins = (u[..., 0] - 0.5) * (u[..., 1] - 0.5) * 12
    assert abs(coins.mean() * np.sqrt(coins.size)) < scipy.stats.norm.isf(2.5e-4 / 2)


def test_a_damaged_program_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMPET_CACHE", str(tmp_path))
    one = Example((), jnp.zeros(()), jnp.zeros(3))

    def made():
        go = program(lambda _, carry, x: (carry, x * 1.25), one, width=4, block=1)
        return go((), np.zeros(4), np.ones((4, 1, 3)))[1]

    first = made()
    (file,) = tmp_path.rglob("*.native")
    whole = file.read_bytes()
    file.write_bytes(whole[:-7])
    np.testing.assert_array_equal(made(), first)
    assert file.read_bytes() == whole
    with quickly():
        np.testing.assert_array_equal(made(), first)
    assert len(list(tmp_path.rglob("*.native"))) == 2  # one that is optimized, and one that is not


@pytest.mark.parametrize("place", ["", "file/below"])
def test_no_cache_is_no_mishap(tmp_path, monkeypatch, place):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LIMPET_CACHE", place and str(tmp_path / place))
    assert cache.load_or_make("key", lambda: b"made") == b"made"
    np.testing.assert_array_equal(natively(lambda x: x + 1, np.ones((4, 3))), 2.0)
