"""Derivatives through a few numbers are those of the function itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.sparse.colours import find_colouring
from limpet.sparse.split import Split, SplitColouring, split_colouring


def pairs_of(n):
    """All pairs."""
    return np.array([(i, j) for i in range(n) for j in range(i + 1, n)])


def gaps(x, pairs, width):
    """Squared distances, of beads of which the first is at the origin."""
    places = jnp.concatenate([jnp.zeros((1, width)), x.reshape(-1, width)])
    return jnp.sum((places[pairs[:, 0]] - places[pairs[:, 1]]) ** 2, axis=1) - 1


def turned(x, pairs, width):
    """The same in a frame, with the pairs' mean heights."""
    frame = np.linalg.qr(np.random.default_rng(0).normal(size=(width, width)))[0]
    places = jnp.concatenate([jnp.ones((1, width)), 2 * x.reshape(-1, width) / 3])
    between = (places[pairs[:, 1]] - places[pairs[:, 0]]) @ frame
    heights = (places[pairs[:, 0]] + places[pairs[:, 1]])[:, 0] / 2
    return jnp.linalg.norm(between, axis=1) + jnp.sin(heights)


def under_jit(x, pairs, width):
    """Calls within calls."""
    return jax.jit(gaps, static_argnums=2)(x, pairs, width) * jnp.cos(jax.jit(jnp.sum)(0 * x))


def dense_of(colouring, function, x):
    """Values, and normals with all their zeros."""
    values, entries = jax.jit(lambda x: colouring.values_and_entries(function, x))(x)
    normals = np.zeros((len(values), len(x)))
    normals[colouring.structure.constraints, colouring.structure.unknowns] = entries
    return values, normals


@settings(max_examples=12)
@given(
    beads=st.integers(5, 13),
    width=st.sampled_from([1, 2, 3]),
    kind=st.sampled_from([gaps, turned]),
    kept=st.floats(0.3, 1.0),
    seed=st.integers(0, 2**20),
)
def test_derivatives_are_right(beads, width, kind, kept, seed):
    rng = np.random.default_rng(seed)
    pairs = pairs_of(beads)
    pairs = pairs[rng.uniform(size=len(pairs)) < kept]
    if len(pairs) < 9:
        return

    def function(x):
        return kind(x, pairs, width)

    x = jnp.asarray(rng.normal(size=width * (beads - 1)))
    plain = find_colouring(function, len(x), 9)
    if plain is None:  # in one dimension, half of all entries may be there
        return
    found = split_colouring(function, plain)
    for colouring in (plain, found):
        values, normals = dense_of(colouring, function, x)
        np.testing.assert_allclose(values, function(x), rtol=1e-12)
        np.testing.assert_allclose(normals, jax.jacobian(function)(x), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", [gaps, turned])
def test_all_pairs_take_few_derivatives(kind):
    pairs = pairs_of(20)

    def function(x):
        return kind(x, pairs, 3)

    plain = find_colouring(function, 57, 9)
    found = split_colouring(function, plain)
    assert isinstance(found, SplitColouring)
    assert plain.cost == 57
    assert found.bent.cost <= 4
    assert found == split_colouring(function, plain)
    assert hash(found) == hash(split_colouring(function, plain))


def test_forces_are_right():
    """A derivative of derivatives."""
    pairs, x = pairs_of(9), jnp.asarray(np.random.default_rng(1).normal(size=24))

    def function(x):
        return gaps(x, pairs, 3)

    found = split_colouring(function, find_colouring(function, 24, 9))
    weights = np.random.default_rng(2).normal(size=found.structure.size)

    def through(x):
        return jnp.sum(weights * found.values_and_entries(function, x)[1])

    def directly(x):
        normals = jax.jacobian(function)(x)
        s = found.structure
        return jnp.sum(weights * normals[s.constraints, s.unknowns])

    np.testing.assert_allclose(jax.grad(through)(x), jax.grad(directly)(x), rtol=1e-10)


def test_what_does_not_pay_is_left_alone():
    """Chains take six colours; and of what bends each unknown first, h is all of q."""
    chain = np.stack([np.arange(40), np.arange(1, 41)], axis=1)
    plain = find_colouring(lambda x: gaps(x, chain, 3), 120)
    assert split_colouring(lambda x: gaps(x, chain, 3), plain) is plain

    def bent_first(x):
        return gaps(jnp.sin(x), pairs_of(20), 3)

    assert len(Split(bent_first, 57).cut) == 1
    plain = find_colouring(bent_first, 57, 9)
    assert plain.cost == 57
    assert split_colouring(bent_first, plain) is plain


def test_a_function_is_the_second_part_of_the_first():
    pairs, x = pairs_of(6), jnp.asarray(np.random.default_rng(3).normal(size=15))
    for kind in (gaps, turned, under_jit):
        split = Split(lambda x, kind=kind: kind(x, pairs, 3), 15)
        np.testing.assert_allclose(split.bent(split.linear(x)), kind(x, pairs, 3), rtol=1e-14)
