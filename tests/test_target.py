"""A target: what is computed of it, how its functions are frozen, and what is asked of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet import target_checks
from limpet.layout import Layout

X = jnp.array([1.0, 2.0, 3.0])


def two(x):
    return jnp.stack([x @ x - 1, x[0] * x[1]])


def test_values_are_in_units_of_eps():
    target = limpet.Target(two, eps=[0.1, 2.0], log_density=jnp.sum, inside=lambda x: x - 1)
    values, normals = target.values_and_normals(X)
    np.testing.assert_allclose(values, [130.0, 1.0])
    np.testing.assert_allclose(values, target.values(X))
    np.testing.assert_allclose(normals, np.array([[20, 40, 60], [1, 0.5, 0]]).T)
    assert target.log_density_at(X) == 6
    assert target.contains(X)
    assert not target.contains(-X)
    np.testing.assert_allclose(target.plain().values(X), two(X))
    assert target.smallest_eps() == 0.1


@pytest.mark.parametrize("m", [1, 8, 9])
def test_gradients_are_right_however_many_there_are(m):
    def q(x):
        return jnp.sin(jnp.outer(jnp.arange(1.0, m + 1), x)).sum(axis=1)

    target, x = limpet.Target(q, eps=0.5), jnp.linspace(0, 1, m + 2)
    np.testing.assert_allclose(target.values_and_normals(x)[1].T, 2 * jax.jacobian(q)(x))


def test_points_of_other_shapes():
    def q(point):
        return jnp.array([point["a"] @ point["a"] + point["b"]])

    point = {"a": jnp.ones(2), "b": jnp.asarray(3.0)}
    layout = Layout.of(point)
    flat = limpet.Target(q, 0.1).on_vectors(layout)
    np.testing.assert_allclose(flat.values(layout.vector(point)), [50.0])
    same = limpet.Target(two, 0.1)
    assert same.on_vectors(Layout.of(X)) is same


def test_a_run_goes_through_functions_a_few_times():
    calls = {"q": 0, "log_density": 0}

    def q(x):
        calls["q"] += 1
        return jnp.array([x @ x - 1])

    def log_density(x):
        calls["log_density"] += 1
        return -(x[0] ** 2)

    target = limpet.Target(q, 0.05, log_density=log_density)
    limpet.sample(target, X, draws=5, chains=3, warmup=5)
    assert max(calls.values()) <= 4  # twice to check them, and their derivatives


def test_frozen_functions_go_by_what_they_compute():
    def make(factor):
        return limpet.Target(lambda x: factor * two(x), 0.1).freeze(X)

    assert make(2).q == make(2).q
    assert make(2).q != make(3).q
    assert jax.tree.structure(make(2)) == jax.tree.structure(make(2))
    np.testing.assert_allclose(make(2).values(X), 20 * two(X))


def test_eps_is_data():
    numbers, program = jax.tree.flatten(limpet.Target(two, 0.1))
    assert program == jax.tree.structure(limpet.Target(two, 0.2))
    assert jax.tree.unflatten(program, [None]).eps is None  # JAX puts anything there
    np.testing.assert_array_equal(numbers, [0.1])


def test_digests_tell_functions_apart_also_by_their_derivatives():
    @jax.custom_jvp
    def sine(x):
        return jnp.sin(x)

    def digest():
        return target_checks.digest(target_checks.trace("q", sine, X)[0], sine, X)

    sine.defjvp(lambda x, t: (jnp.sin(x[0]), jnp.cos(x[0]) * t[0]))
    right = digest()
    assert right == digest()
    sine.defjvp(lambda x, t: (jnp.sin(x[0]), 2 * jnp.cos(x[0]) * t[0]))
    assert right != digest()


def test_short_floats_are_found_inside_other_functions():
    def short(x):
        return jax.jit(lambda x: x.astype(jnp.float32) + 1)(x)

    assert target_checks.short_floats(target_checks.trace("q", short, X)[0]) == "float32"
    assert target_checks.short_floats(target_checks.trace("q", two, X)[0]) is None


def test_a_function_that_fails_is_refused_with_its_line():
    def q(x):
        return float(x[0])

    with pytest.raises(limpet.InputError, match=r"q could not be .* at .*test_target.py:\d+ \("):
        target_checks.trace("q", q, X)
