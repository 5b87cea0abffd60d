"""The compiler against `jax.jit`, on programs that nobody has thought of."""

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest

from limpet import lanes

POINTS = programs.points(24)
SMOOTH = np.random.default_rng(1).normal(size=(7, programs.LENGTH))
BATCH = 10  # programs that JAX compiles at once


def natively(function, points):
    """A function of one point at every point, by machine code."""
    one = jax.ShapeDtypeStruct(points.shape[1:], points.dtype)
    program = lanes.scan(lambda _, carry, x: (carry, function(x)), (), jnp.zeros(()), one)
    outputs = program((), np.zeros(len(points)), points[:, None])[1]
    return jax.tree.map(lambda leaf: leaf[:, 0], outputs)


def check_batch(first, count=BATCH):
    """How many of the programs are native; each is JAX's."""
    made = {seed: programs.program(seed) for seed in range(first, first + count)}

    @jax.jit
    @jax.vmap
    def by_jax(x):
        return {seed: function(x) for seed, (function, _) in made.items()}

    wanted, done = jax.device_get(by_jax(POINTS)), 0
    for seed, (function, exact) in made.items():
        try:
            found = natively(function, POINTS)
        except lanes.UnsupportedError as error:
            if "fault" in str(error):
                pytest.fail(f"program {seed}: {error}")
            continue
        done += 1
        for k, (a, b) in enumerate(zip(found, wanted[seed], strict=True)):
            note = f"program {seed}, step {k}"
            assert a.dtype == b.dtype, note
            if exact[k]:
                np.testing.assert_array_equal(a, b, err_msg=note)
                signs = np.signbit(a) == np.signbit(b) if a.dtype.kind == "f" else True
                assert np.all(signs | np.isnan(a)), note
            else:
                np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-290, err_msg=note)
    return done


@pytest.mark.parametrize("first", range(0, 150, BATCH))
def test_programs_are_jaxs(first):
    assert check_batch(first) >= BATCH // 2


@pytest.mark.slow
@pytest.mark.parametrize("first", range(150, 5000, BATCH))
def test_many_programs_are_jaxs(first):
    check_batch(first)


def check_derivatives(seeds):
    """Derivatives, once and twice, are JAX's."""
    functions = {seed: programs.derivative(seed) for seed in seeds}
    by_jax = jax.jit(jax.vmap(lambda x: {seed: f(x) for seed, f in functions.items()}))
    wanted = jax.device_get(by_jax(SMOOTH))
    for seed, function in functions.items():
        found = natively(function, SMOOTH)
        for a, b in zip(found, wanted[seed], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"program {seed}")


def test_derivatives_are_jaxs():
    check_derivatives(range(12))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(12, 312, BATCH))
def test_many_derivatives_are_jaxs(first):
    check_derivatives(range(first, first + BATCH))
