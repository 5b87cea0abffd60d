"""A tile: a batch of chains in one compiled program, with a random stream of its own.

Chains lie along the *last* axis of every array, so that each scalar of the one-chain step becomes
one contiguous vector operation. The program makes a fixed number of steps, with their random
numbers drawn all at once before the first: inside the step, XLA would compute them anew wherever
they are used.

Every step of a run is made by that one program, and the random numbers of step t depend on the
seed, the tile and t alone. So draws are bit-equal however a run is cut into blocks, and whatever
other tiles there are.
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
BLOCK = 64  # steps of the compiled program
FEW = 32  # fewer chains than this are not worth filling a tile up for


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


def blocks_at_once(width: int) -> int:
    """Blocks between two looks: enough to make looking cheap, few enough to stay responsive."""
    return max(1, 2**14 // (width * BLOCK))


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

    return jax.lax.scan(step, states, jax.vmap(noise)(first_step + jnp.arange(steps)))


def compiled(kernel: Kernel, target: Target, states: State, key):
    """`run_block` of `BLOCK` steps for arguments like these, compiled once for each program."""
    leaves, tree = jax.tree.flatten((kernel, target, states, key, np.int64(0)))
    return _compiled(tree, tuple((np.shape(a), jnp.result_type(a)) for a in leaves))


@functools.lru_cache(maxsize=32)
def _compiled(tree, shapes):
    arguments = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*shape) for shape in shapes])
    block = jax.jit(functools.partial(run_block, steps=BLOCK))
    return block.lower(*arguments).compile()


def advance(program, kernel: Kernel, target: Target, states: State, key, first_step, blocks: int):
    """Advance a tile by a number of blocks: the new states, and the trace in NumPy arrays."""
    traces = []
    for first in range(first_step, first_step + blocks * BLOCK, BLOCK):
        states, trace = program(kernel, target, states, key, np.int64(first))
        traces.append(trace)
    return states, jax.tree.map(lambda *parts: np.concatenate(parts), *traces)
