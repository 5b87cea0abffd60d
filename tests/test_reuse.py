"""Parts of memory are used for other arrays only where nobody needs these any more."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limpet import lanes
from limpet.lanes import operations

SIZE = 40
POINTS = np.random.default_rng(0).normal(size=(5, SIZE))


def halved(x):
    """A loop that begins with what it is given, and goes on for longer in some lanes."""
    return jax.lax.while_loop(lambda y: jnp.sum(y**2) > 1, lambda y: y / 2, x)


def one_loop(x):
    return halved(jnp.sin(x))


def needed_after(x):
    y = jnp.sin(x)
    return halved(y), y


def needed_inside(x):
    y = jnp.cos(x)
    return jax.lax.while_loop(lambda z: jnp.sum(z**2) > 1, lambda z: z / 2 + y / 100, y)


def begun_twice(x):
    y = jnp.sin(x) + x
    return jax.lax.while_loop(lambda c: c[0][0] < 5, lambda c: (c[0] + 1, c[1] + c[0]), (y, y))


def begun_with_another(x):
    y = jnp.sin(x) + x
    first = (y * 2, y[::-1])
    return jax.lax.while_loop(lambda c: c[0][0] < 5, lambda c: (c[0] + 1, c[1] + c[0]), first)


def turned_round(x):
    y = jnp.exp(x)
    z = y[::-1] + y
    return z * z, jnp.sum(z)


def flipped(x):
    """Each entry is made of two, in places that are not its own."""
    y = jnp.exp(x).reshape(5, 8) @ jnp.exp(x).reshape(8, 5)
    z = y + y.T
    return z * z, jnp.linalg.cholesky(z + 100 * jnp.eye(5))


def a_view_is_needed(x):
    y = jnp.exp(x)
    part = y[3:7]
    z = y * 2 + 1
    return z * z, z + 1, part


def in_a_scan(x):
    y = jnp.exp(-(x**2))

    def turn(carry, row):
        carry = carry * row + y
        return carry, jnp.sum(carry)

    return jax.lax.scan(turn, y, y)


def one_branch(x):
    y = jnp.exp(x)
    z = jax.lax.cond(x[0] > 0, lambda a: a * 2, lambda a: a, y)
    return z + 1, z * z


def one_after_the_other(x):
    for k in range(6):
        x = jnp.where(x > 0, jnp.sin(x) + x, x * k)
        x = x - jnp.mean(x)
    return halved(x), jnp.sum(x**2)


PROGRAMS = [
    *(one_loop, needed_after, needed_inside, begun_twice, begun_with_another, turned_round),
    *(flipped, a_view_is_needed, in_a_scan, one_branch, one_after_the_other),
]


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_results_are_jaxs(function, joined, monkeypatch):
    monkeypatch.setattr(operations, "LARGE", 0 if joined else np.inf)
    step = lambda _, carry, x: (carry, function(x))  # noqa: E731
    shape = jax.ShapeDtypeStruct((SIZE,), float)
    program = lanes.scan(step, (), jnp.zeros(()), shape, registers=1)
    outputs = program((), np.zeros(len(POINTS)), POINTS[:, None])[1]
    wanted = jax.vmap(function)(POINTS)
    same = functools.partial(np.testing.assert_allclose, rtol=1e-13, atol=1e-13)
    jax.tree.map(lambda found, value: same(found[:, 0], value), outputs, wanted)
