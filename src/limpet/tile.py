"""A tile: a batch of chains in one compiled program, with a random stream of its own.

Chains lie along the *last* axis of every array, so that each scalar of the one-chain step becomes
one contiguous vector operation. Random numbers are drawn for many steps at once, outside the step:
inside it, XLA would compute them anew wherever they are used.

The random numbers of step t depend on the seed, the tile and t alone. So draws are bit-equal
however a run is cut into blocks, and whatever other tiles there are.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt8

from limpet.kernels.base import Kernel, Outcome, State, noise_of, uniforms
from limpet.target import Target

WIDTH = 128  # most chains in a tile
NOISE_STEPS = 32  # steps whose random numbers are drawn at once


class Trace(NamedTuple):
    """What the chains of a tile did in a block of steps."""

    x: Float[Array, "steps n width"]
    lp: Float[Array, "steps width"]
    draw: Bool[Array, "steps width"]
    on: Bool[Array, "steps width"]
    code: UInt8[Array, "steps width"]  # move and outcome in one number
    acceptance: Float[Array, "steps width"]


def block_steps(width: int) -> int:
    """Steps of a block: enough to make the call itself cheap, few enough to stay responsive."""
    return int(np.clip(2**14 // width, NOISE_STEPS, 2**10))


def first_states(kernel: Kernel, target: Target, starts) -> State:
    """The chains' first states, chains last."""
    program = jax.jit(jax.vmap(type(kernel).start, in_axes=(None, None, 0), out_axes=-1))
    return program(kernel, target, starts)


def run_block(kernel: Kernel, target: Target, states: State, key, first_step, steps: int):
    """Advance every chain of a tile by `steps` steps: the new states, and the trace."""
    n, width = states.x.shape
    move = jax.vmap(type(kernel).move, in_axes=(None, None, -1, -1), out_axes=-1)

    def step(states, noise):
        states, info = move(kernel, target, noise, states)
        lp = states.log_density - jnp.sum(states.values**2, axis=0) / 2
        code = (len(Outcome) * info.move + info.outcome).astype(jnp.uint8)
        return states, Trace(states.x, lp, kernel.is_draw(states), states.on, code, info.acceptance)

    def noise(t):
        # chain by chain, so that a chain's numbers do not depend on how many others there are
        return noise_of(uniforms(jax.random.fold_in(key, t), (width, n + 2)).T)

    def chunk(states, first):
        return jax.lax.scan(step, states, jax.vmap(noise)(first + jnp.arange(chunk_steps)))

    chunk_steps = np.gcd(steps, NOISE_STEPS)
    states, trace = jax.lax.scan(chunk, states, first_step + jnp.arange(0, steps, chunk_steps))
    return states, jax.tree.map(lambda a: a.reshape(steps, *a.shape[2:]), trace)


def compiled(kernel: Kernel, target: Target, states: State, key, steps: int):
    """`run_block` for arguments like these, compiled once for each program and shape."""
    arguments = (kernel, target, states, key, np.int64(0))
    leaves, tree = jax.tree.flatten(arguments)
    return _compiled(tree, tuple((np.shape(a), jnp.result_type(a)) for a in leaves), steps)


@functools.lru_cache(maxsize=32)
def _compiled(tree, shapes, steps):
    arguments = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*shape) for shape in shapes])
    return jax.jit(run_block, static_argnames="steps").lower(*arguments, steps=steps).compile()
