"""A tile: a batch of chains in one compiled program, with a random stream of its own.

Chains lie along the *last* axis of every array, so that each scalar of the one-chain step becomes
one contiguous vector operation. The program makes a fixed number of steps, with their random
numbers drawn all at once before the first: inside the step, XLA would compute them anew wherever
they are used.

Every step of a run is made by that one program, and the random numbers of step t depend on the
seed, the tile and t alone. So draws are bit-equal however a run is cut into blocks, and whatever
other tiles there are. Step sizes go in by step and chain: warm-up tries many at once.
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
FEW = 32  # fewer chains than this are not worth filling a tile up for
LONGEST_BLOCK = 64  # steps of the compiled program, for a point of few numbers


class Trace(NamedTuple):
    """What the chains of a tile did in a block of steps."""

    x: Float[Array, "steps n width"]
    lp: Float[Array, "steps width"]
    draw: Bool[Array, "steps width"]
    on: Bool[Array, "steps width"]
    code: UInt8[Array, "steps width"]  # move and outcome in one number
    acceptance: Float[Array, "steps width"]


def width_for(chains: int) -> int:
    """Chains of a tile. Programs of different widths may round differently, so it is fixed."""
    return chains if chains < FEW else WIDTH


def block_for(n: int) -> int:
    """Steps of the compiled program: few enough that a block of large points takes no minute."""
    return max(4, LONGEST_BLOCK >> max(0, (n - 1).bit_length() - 5))


def blocks_at_once(width: int, block: int) -> int:
    """Blocks between two looks: enough to make looking cheap, few enough to stay responsive."""
    return max(1, 2**14 // (width * LONGEST_BLOCK)) if block == LONGEST_BLOCK else 1


@jax.jit
def first_states(kernel: Kernel, target: Target, starts) -> State:
    """The chains' first states, chains last."""
    return jax.vmap(lambda x: kernel.start(target, x), out_axes=-1)(starts)


def run_block(kernel: Kernel, target: Target, states: State, key, first_step, scales: dict):
    """Advance every chain of a tile by a step for each row of `scales`: new states, and the trace.

    `scales` holds the step sizes that warm-up may turn, as arrays (steps, width).
    """
    n, width = states.x.shape

    def move(scales, noise, state):
        return kernel.with_numbers(scales).move(target, noise, state)

    def step(states, inputs):
        scales, noise = inputs
        states, info = jax.vmap(move, in_axes=-1, out_axes=-1)(scales, noise, states)
        lp = states.log_density - jnp.sum(states.values**2, axis=0) / 2
        code = (len(Outcome) * info.move + info.outcome).astype(jnp.uint8)
        return states, Trace(states.x, lp, kernel.is_draw(states), states.on, code, info.acceptance)

    def noise(t):
        # chain by chain, so that a chain's numbers do not depend on how many others there are
        return noise_of(uniforms(jax.random.fold_in(key, t), (width, n + 2)).T)

    steps = len(next(iter(scales.values())))
    noises = jax.vmap(noise)(first_step + jnp.arange(steps))
    return jax.lax.scan(step, states, (scales, noises))


def compiled(*arguments):
    """`run_block` for arguments like these, compiled once for each program."""
    leaves, tree = jax.tree.flatten(arguments)
    return _compiled(tree, tuple((np.shape(a), jnp.result_type(a)) for a in leaves))


@functools.lru_cache(maxsize=32)
def _compiled(tree, shapes):
    arguments = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*shape) for shape in shapes])
    return jax.jit(run_block).lower(*arguments).compile()
