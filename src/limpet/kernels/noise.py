"""The random numbers of a step, made where they are used.

Each chain has a generator of its own, SplitMix64: a position that grows by the same odd stride, and
a number that is the position, thoroughly mixed. Its state is kept with the chain's, so a chain's
numbers depend on the seed, the chain and the step alone: not on other chains, nor on how a run is
cut up. Normal numbers come in pairs, by the method of Box and Muller.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt64

from limpet.lanes.functions import polynomial
from limpet.shapes import Vector


class Noise(NamedTuple):
    """The random numbers of one step of one chain."""

    z: Vector  # n standard normals
    choice: Float[Array, ""]  # uniform on [0, 1): which move
    coin: Float[Array, ""]  # uniform on [0, 1): accepted or not


class Generator(NamedTuple):
    """Where a chain's random numbers come from."""

    position: UInt64[Array, ""]
    stride: UInt64[Array, ""]


def generators(seed: int, tile_index: int, width: int) -> Generator:
    """The generators of a tile's chains."""
    words = np.random.SeedSequence(seed, spawn_key=(tile_index,)).generate_state(2 * width, "u8")
    position, stride = words.reshape(width, 2).T
    return Generator(jnp.asarray(position), jnp.asarray(stride | 1))


def generator_from(key: PRNGKeyArray) -> Generator:
    """A generator for a single step, whose random numbers come from one of JAX's keys."""
    position, stride = jax.random.bits(key, (2,), jnp.uint64)
    return Generator(position, stride | 1)


def draw(generator: Generator, n: int) -> tuple[Generator, Noise]:
    """The noise of one step, and the generator after it."""
    pairs = (n + 1) // 2
    count = 2 * pairs + 2
    position, stride = generator

    def uniform(first: int, last: int) -> Array:  # part by part: no array of all of them is kept
        return _uniform(position + stride * np.arange(first + 1, last + 1, dtype=np.uint64))

    radius = jnp.sqrt(-2 * jnp.log(1 - uniform(0, pairs)))
    z = jnp.concatenate([radius * side for side in _circle(uniform(pairs, 2 * pairs))])[:n]
    choice, coin = uniform(2 * pairs, count)
    return Generator(position + stride * np.uint64(count), stride), Noise(z, choice, coin)


def _uniform(position: UInt64[Array, " k"]) -> Float[Array, " k"]:
    """Uniform numbers on [0, 1): mixed bits, the first 52 of them as a fraction."""
    bits = (position ^ (position >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> 27)) * np.uint64(0x94D049BB133111EB)
    bits = bits ^ (bits >> 31)
    one_to_two = (bits >> 12) | np.uint64(0x3FF0000000000000)
    return jax.lax.bitcast_convert_type(one_to_two, jnp.float64) - 1


def _circle(u: Float[Array, " k"]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Cosine and sine of 2 pi u, from an angle of at most pi/4 and polynomials (Cephes)."""
    quarter = jnp.round(4 * u)
    angle = 2 * np.pi * (u - quarter / 4)
    s = angle**2
    sine = angle + angle * s * polynomial(s, *SINE)
    cosine = 1 - s / 2 + s**2 * polynomial(s, *COSINE)
    odd = (quarter == 1) | (quarter == 3)
    x, y = jnp.where(odd, sine, cosine), jnp.where(odd, cosine, sine)
    left, below = (quarter == 1) | (quarter == 2), (quarter == 2) | (quarter == 3)
    return jnp.where(left, -x, x), jnp.where(below, -y, y)


SINE = (
    -1.66666666666666307295e-1,
    8.33333333332211858878e-3,
    -1.98412698295895385996e-4,
    2.75573136213857245213e-6,
    -2.50507477628578072866e-8,
    1.58962301576546568060e-10,
)
COSINE = (
    4.16666666666665929218e-2,
    -1.38888888888730564116e-3,
    2.48015872888517045348e-5,
    -2.75573141792967388112e-7,
    2.08757008419747316778e-9,
    -1.13585365213876817300e-11,
)
