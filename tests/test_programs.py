"""The compiler against `jax.jit`, on programs that nobody has thought of."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest

from limpet import lanes
from limpet.engine.xla import RUN_ONCE
from limpet.lanes import identity, operations
from limpet.lanes.expanded import EXPANDED, HIGH
from limpet.lanes.rules import RULES

pytestmark = pytest.mark.optimized

# arrays of more than one number in memory, which are in registers otherwise
COMPILERS = [lanes.scan, functools.partial(lanes.scan, registers=1)]
BATCH = 20  # programs that JAX compiles at once
# XLA takes 1/0 times a flag for zero, which in JAX without `jit`, and here, is NaN
FLAGGED = ("largest", "smallest", "largest of a table")
# XLA of jaxlib 0.10 finds the remainder of 0 by 0 (598), or their quotient (1689), both made of no
# whole numbers, as it compiles it, which ends the process
FATAL = {598, 1689}
NEWER = hasattr(jax.lax, "polynomial_p")  # than 0.10
# XLA of jaxlib 0.12 takes 0 divided by itself for 1, which in JAX without `jit`, and here, is -1
ITSELF = {623, 3822} if NEWER else set()
# names of other releases of JAX for jit, remat2 and copy; and three that are never traced in these
UNSEEN = {"pjit", "checkpoint", "copy_p", "closed_call", "eval_jaxpr", "expand_dims"}
UNSEEN |= {"limpet_plan"}  # of sparse constraints: tests/test_sparse.py
UNSEEN |= EXPANDED - ({HIGH} if NEWER else set())  # of diffrax: tests/test_diffrax.py
UNSEEN |= {"lt_to", "le_to"} if NEWER else {"polynomial", "one_minus_square"}


TESTS = itertools.count(1)


@pytest.fixture(autouse=True)
def _joined(monkeypatch):
    """Loops are joined in small programs, too."""
    monkeypatch.setattr(operations, "LARGE", 0)


@pytest.fixture(autouse=True)
def _forget():
    """JAX keeps what it compiled: 50 MB a test. But most of it serves the tests after it, too."""
    yield
    if next(TESTS) % 8 == 0:
        jax.clear_caches()


def natively(function, points, compiler=lanes.scan):
    """A function of one point at every point, by machine code."""
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), points)
    program = compiler(lambda _, carry, x: (carry, function(x)), (), jnp.zeros(()), one)
    inputs = jax.tree.map(lambda a: a[:, None], points)
    outputs = program((), np.zeros(len(jax.tree.leaves(points)[0])), inputs)[1]
    return jax.tree.map(lambda leaf: leaf[:, 0], outputs)


def check(functions, points, compilers, *, relative):
    """The functions that are native are JAX's; the others, with the reasons why they are not."""

    def together(x):
        return {seed: function(x) for seed, function in functions.items()}

    # one point after the other: batches of LAPACK can stop for good, see limpet.engine.xla
    by_jax = jax.jit(lambda points: jax.lax.map(together, points), compiler_options=RUN_ONCE)
    wanted = jax.device_get(by_jax(points))
    refused = []
    for seed, function in functions.items():
        for way, compiler in enumerate(compilers):
            try:
                found = natively(lambda x, f=function: [v.array for v in f(x)], points, compiler)
            except lanes.UnsupportedError as error:
                if "fault" in str(error):
                    pytest.fail(f"program {seed}, compiler {way}: {error}")
                refused.append((seed, way, str(error)))
                continue
            for k, (array, value) in enumerate(zip(found, wanted[seed], strict=True)):
                assert_same(array, value, relative, f"program {seed}, result {k}, compiler {way}")
    return refused


def assert_same(found, wanted: programs.Value, relative, note):
    """The same to the bit, or up to rounding."""
    a, (b, scale) = found, wanted
    assert a.dtype == b.dtype, note
    if scale is None:
        np.testing.assert_array_equal(a, b, err_msg=note)
        signs = np.signbit(a) == np.signbit(b) if a.dtype.kind == "f" else True
        assert np.all(signs | np.isnan(a)), note
        return
    if a.dtype == np.float32:
        relative = 1e-4
    scale = scale.reshape(-1, *[1] * (a.ndim - 1))
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= relative * (np.abs(b) + scale) + 1e-290
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | near
    np.testing.assert_array_equal(np.where(same, b, a), b, err_msg=note)


def check_programs(first, size, compilers=COMPILERS):
    """Values; nine of ten programs are native."""
    seeds = [seed for seed in range(first, first + BATCH) if seed not in FATAL | ITSELF]
    made = {seed: programs.program(seed, size) for seed in seeds}
    refused = check(made, programs.points(24, size), compilers, relative=1e-11)
    assert len(refused) <= 0.1 * len(compilers) * BATCH, refused


def check_derivatives(seeds, points, size, compilers=COMPILERS):
    """Derivatives, once and twice; nine of ten programs are native."""
    made = {seed: programs.derivative(seed, size) for seed in seeds}
    refused = check(made, points, compilers, relative=1e-9)
    assert len(refused) <= 0.1 * len(compilers) * len(made), refused


@pytest.mark.parametrize("first", range(0, 400, BATCH))
def test_programs_are_jaxs(first):
    check_programs(first, 3, COMPILERS if first < 100 else COMPILERS[:1])


@pytest.mark.parametrize("first", range(0, len(programs.SMOOTH), BATCH))
def test_derivatives_of_operations_are_jaxs(first):
    """Also at numbers at which they are infinite, or none."""
    seeds = range(len(programs.SMOOTH))[first : first + BATCH]
    seeds = [seed for seed in seeds if programs.SMOOTH[seed][1] not in FLAGGED]
    check_derivatives(seeds, programs.points(24, 3), 3)


@pytest.mark.parametrize("first", range(0, 60, BATCH))
def test_derivatives_of_programs_are_jaxs(first):
    seeds = range(len(programs.SMOOTH) + first, len(programs.SMOOTH) + first + BATCH)
    check_derivatives(seeds, programs.smooth_points(8, 3), 3, COMPILERS[:1])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(400, 4000, BATCH))
def test_many_programs_are_jaxs(first):
    check_programs(first, 3)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(60, 1060, BATCH))
def test_many_derivatives_are_jaxs(first):
    seeds = range(len(programs.SMOOTH) + first, len(programs.SMOOTH) + first + BATCH)
    check_derivatives(seeds, programs.smooth_points(8, 3), 3)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, BATCH))
def test_programs_of_larger_arrays_are_jaxs(first):
    check_programs(first, 12)


def test_programs_have_every_rule():
    """Those that are compared in `make test`."""
    one = jax.tree.map(lambda a: a[0], programs.points(1, 3))
    made = [programs.program(seed) for seed in range(len(programs.FIRST))]
    made += [programs.derivative(seed) for seed in range(len(programs.SMOOTH))]
    seen = set()
    for function in made:
        for program, _ in identity.programs_in(jax.make_jaxpr(function)(one)):
            seen.update(equation.primitive.name for equation in program.eqns)
    assert set(RULES) - seen == UNSEEN
