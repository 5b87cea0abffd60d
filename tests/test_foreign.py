"""Operations of other libraries: each is the function that computes it."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir
from test_programs import natively

from limpet import lanes

POINTS = np.random.default_rng(0).normal(size=(7, 3))  # lanes go by fours or eights


def operation(name, function):
    """An operation of nobody's in particular, computed by this function."""
    primitive = Primitive(name)
    primitive.def_impl(function)
    primitive.def_abstract_eval(lambda x, **parameters: x)
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))
    return primitive


DOUBLE = operation("twice_and_more", lambda x, more: 2 * x + more)
NESTED = operation("four_times", lambda x: DOUBLE.bind(DOUBLE.bind(x, more=1.0), more=0.0))
BY_NUMPY = operation("by_numpy", lambda x: np.sort(x))

FUNCTIONS = {
    "alone": lambda x: DOUBLE.bind(x, more=3.0),
    "in one another": lambda x: NESTED.bind(x),
    "in a call": jax.jit(lambda x: jnp.sin(NESTED.bind(x))),
    "in a loop": lambda x: jax.lax.fori_loop(0, 3, lambda k, y: DOUBLE.bind(y, more=1.0), x),
    "in a scan": lambda x: jax.lax.scan(lambda c, y: (c + DOUBLE.bind(y, more=1.0), c), 0.0, x)[1],
    "in a branch": lambda x: jax.lax.cond(
        x[0] > 0, lambda y: NESTED.bind(y), lambda y: DOUBLE.bind(y, more=0.5), x
    ),
}


@pytest.mark.parametrize("registers", [None, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operation_is_what_computes_it(name, registers):
    function = FUNCTIONS[name]
    found = natively(function, POINTS, functools.partial(lanes.scan, registers=registers))
    np.testing.assert_allclose(found, [jax.jit(function)(x) for x in POINTS], rtol=1e-14)


def test_parameters_count():
    first, second = (
        natively(lambda x, more=more: DOUBLE.bind(x, more=more), POINTS) for more in (0.0, 1.0)
    )
    np.testing.assert_allclose(second - first, 1.0)


def test_what_jax_cannot_trace_is_refused():
    with pytest.raises(lanes.UnsupportedError, match="TracerArrayConversionError"):
        natively(lambda x: BY_NUMPY.bind(x), POINTS)


def decay(adjoint, controller):
    """Two substances that decay one into the other, seen at five times."""

    def amounts(x):
        def slope(t, y, rates):
            return jnp.stack([-rates[0] * y[0], rates[0] * y[0] - rates[1] * y[1]])

        return diffrax.diffeqsolve(
            diffrax.ODETerm(slope),
            diffrax.Tsit5(),
            0.0,
            2.0,
            0.1,
            jnp.array([1.0, 0.0]),
            args=jnp.exp(x[:2]),
            saveat=diffrax.SaveAt(ts=jnp.linspace(0.1, 2.0, 5)),
            adjoint=adjoint,
            stepsize_controller=controller,
            max_steps=64,
            throw=False,
        ).ys[:, 1]

    return amounts


@pytest.mark.parametrize(
    ("adjoint", "controller"),
    [
        (diffrax.ForwardMode(), diffrax.PIDController(rtol=1e-6, atol=1e-6)),
        (diffrax.DirectAdjoint(), diffrax.ConstantStepSize()),
    ],
    ids=["forward, adaptive", "direct, constant steps"],
)
def test_equations_that_diffrax_solves(adjoint, controller):
    """With their derivatives, as samplers take them."""
    amounts = decay(adjoint, controller)
    derivative = jax.jacfwd if isinstance(adjoint, diffrax.ForwardMode) else jax.jacrev

    def both(x):
        return jnp.concatenate([amounts(x)[:, None], derivative(amounts)(x)], axis=1)

    wanted = jax.jit(jax.vmap(both))(POINTS)
    # steps are chosen anew at every point; a few rounding errors make no other choice
    np.testing.assert_allclose(natively(both, POINTS), wanted, rtol=1e-8, atol=1e-10)
