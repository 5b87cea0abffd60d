"""Models of diffrax by the compiler: the operations of Equinox, of which its solvers are made."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet import lanes

TIMES = np.linspace(0.5, 5, 5)
CONTROLLERS = {
    "fixed": diffrax.ConstantStepSize(),
    "PID": diffrax.PIDController(rtol=1e-6, atol=1e-6),
}
ADJOINTS = {"forward": diffrax.ForwardMode(), "direct": diffrax.DirectAdjoint()}


def populations(x, controller, adjoint, times=TIMES):
    """Prey and predators at some times."""
    a, b, c, d = jnp.exp(x)

    def change(t, y, args):
        return jnp.array([a * y[0] - b * y[0] * y[1], d * y[0] * y[1] - c * y[1]])

    return diffrax.diffeqsolve(
        diffrax.ODETerm(change),
        diffrax.Tsit5(),
        0.0,
        5.0,
        0.25,
        jnp.array([1.0, 1.0]),
        saveat=diffrax.SaveAt(ts=times),
        adjoint=ADJOINTS[adjoint],
        stepsize_controller=CONTROLLERS[controller],
        max_steps=64,
        throw=False,
    ).ys.ravel()


def by_lanes(function, points, registers=None):
    """The function at points (chain, turn, ...), by the compiler."""

    def step(constants, carry, x):
        return carry, function(x)

    run = lanes.scan(step, (), jnp.zeros(()), jnp.asarray(points[0, 0]), registers=registers)
    return run((), np.zeros(len(points)), points)[1]


@pytest.mark.parametrize(
    ("controller", "adjoint", "registers"),
    # every pair of two settings; to compile the others by XLA takes a minute more
    [
        pytest.param("fixed", "forward", 4, marks=pytest.mark.slow),
        ("PID", "forward", None),
        pytest.param("fixed", "direct", None, marks=pytest.mark.slow),
        pytest.param("PID", "direct", 4, marks=pytest.mark.slow),
    ],
)
def test_values_and_derivatives_are_those_of_jax(controller, adjoint, registers):
    """Chains take different numbers of steps, and some lanes wait for others."""

    def values(x):
        return populations(x, controller, adjoint)

    def total(x):
        return jnp.sum(jax.jacfwd(values)(x) ** 2)

    derive = jax.grad if adjoint == "direct" else jax.jacfwd
    points = 0.4 * np.random.default_rng(0).normal(size=(7, 2, 4))
    for function in (values, derive(total)):
        ours = by_lanes(function, points, registers)
        theirs = np.asarray(jax.jit(jax.vmap(jax.vmap(function)))(points))
        # a step size that differs in its last digit is another one
        assert np.abs(ours - theirs).max() <= 1e-9 * np.abs(theirs).max()


def test_times_that_are_made_inside_are_known():
    """So that what checks them, and would call Python, is a branch that is never taken."""

    def values(x):
        return populations(x, "fixed", "forward", jnp.linspace(0.5, 5, 5))

    points = 0.4 * np.random.default_rng(1).normal(size=(3, 1, 4))
    theirs = np.asarray(jax.jit(jax.vmap(jax.vmap(values)))(points))
    np.testing.assert_allclose(by_lanes(values, points), theirs, rtol=1e-9)


def test_a_solver_that_gives_up_has_no_finite_values():
    points = np.full((3, 1, 4), [6.0, 1.0, 6.0, 6.0])  # far too stiff for 64 steps
    ours = by_lanes(lambda x: populations(x, "PID", "forward"), points)
    theirs = jax.jit(jax.vmap(jax.vmap(lambda x: populations(x, "PID", "forward"))))(points)
    np.testing.assert_array_equal(np.isfinite(ours), np.isfinite(theirs))
    assert not np.isfinite(ours).all()


def test_errors_of_a_solver_are_left_to_xla():
    """With throw=True, it calls Python: not while a program is written, and not by machine code."""

    def q(x):
        def fails(y):
            raise AssertionError("called")

        bad = jax.lax.cond(x[0] > 1e9, lambda: jax.pure_callback(fails, x, x), lambda: x)
        constant = jax.lax.cond(
            x[0] > 1e9, lambda: jax.pure_callback(fails, jnp.ones(1), np.ones(1)), lambda: x[:1]
        )
        return bad + constant

    with pytest.raises(lanes.UnsupportedError, match="pure_callback"):
        by_lanes(q, np.zeros((1, 1, 2)))


def test_a_run_is_native():
    """Warnings are errors here: one would tell of a slow path."""
    true = np.array([0.4, -0.2, 0.1, -0.3])
    data = np.asarray(populations(true, "PID", "direct"))
    target = limpet.Target(lambda x: populations(x, "PID", "direct") - data, 0.001)
    kernel = limpet.Lifted(steps=1)  # needs no second derivatives, which take long to compile
    draws = limpet.sample(target, true, draws=20, chains=8, warmup=50, kernel=kernel, seed=1)
    assert np.abs(draws.posterior["x"].values - true).max() < 0.02


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_next_after(dtype):
    some = [0.0, -0.0, 1.0, -1.0, 2.0, 3.7, -1e-300, 1e30, np.inf, -np.inf, np.nan]
    some += [np.finfo(dtype).tiny, np.finfo(dtype).max, -np.finfo(dtype).smallest_subnormal]
    x, y = (np.ravel(a) for a in np.meshgrid(np.array(some, dtype), np.array(some, dtype)))
    with np.errstate(all="ignore"):
        expected = np.nextafter(x, y)
    points = np.stack([x, y], axis=-1)[:, None]
    ours = by_lanes(lambda pair: jax.lax.nextafter(pair[0], pair[1]), points)
    np.testing.assert_array_equal(ours[:, 0], expected)
