"""A tile: a batch of chains in one compiled program.

The step of one chain is compiled to machine code by `limpet.lanes`; what that cannot do, or is too
large for it, goes to XLA. Chains come first in every array, then steps.

Each chain has its own random numbers (`limpet.kernels.noise`). So draws are bit-equal however a run
is cut up, and whatever other chains there are. Step sizes go in by step and chain: warm-up tries
many at once.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt8

from limpet import lanes
from limpet.engine import Example, of_rows, program
from limpet.errors import SlowPathWarning, warn
from limpet.geometry.linalg import factor
from limpet.kernels.base import Kernel
from limpet.kernels.noise import Generator
from limpet.kernels.states import Exchanges, Outcome, State
from limpet.kernels.symmetry import Tally
from limpet.target import Target

# How many times slower steps are by XLA than by limpet.lanes, for up to so many constraints, as
# measured with Lifted and SAS: spheres in 2 to 5 dimensions, and chains of 4 and 10 beads.
SLOWER = {2: "2 to 7", np.inf: "10 to 35"}
_WARNED: set[tuple] = set()  # models whose users know that they are slow
WIDTH = 128  # most chains in a tile
LONGEST_BLOCK = 16  # steps of a block, for a point of few numbers


class Trace(NamedTuple):
    """What the chains of a tile did, step by step."""

    x: Float[Array, "width steps n"]
    lp: Float[Array, "width steps"]
    draw: Bool[Array, "width steps"]
    on: Bool[Array, "width steps"]
    code: UInt8[Array, "width steps"]  # move and outcome in one number
    acceptance: Float[Array, "width steps"]
    tally: Tally | None = None  # of the moves by symmetries, if the target has any
    exchanges: Exchanges | None = None  # of the rungs of a ladder, if the kernel has one


def width_for(chains: int) -> int:
    """Chains of a tile."""
    return min(chains, WIDTH)


def block_for(n: int) -> int:
    """Steps of a block: few enough that a block of large points takes no minute."""
    return max(4, LONGEST_BLOCK >> max(0, (n - 1).bit_length() - 7))


def blocks_at_once(width: int, block: int) -> int:
    """Blocks between two looks: enough to make looking cheap, few enough to stay responsive."""
    return max(1, 2**16 // (width * LONGEST_BLOCK)) if block == LONGEST_BLOCK else 1


def first_states(kernel: Kernel, target: Target, starts) -> State:
    """The chains' first states."""
    return of_rows(_start, (kernel, target), np.asarray(starts), apart=True)


def _start(constants, x) -> State:
    kernel, target = constants
    return kernel.start(target, x)


def given_scales(kernel: Kernel, target: Target, shape: tuple[int, int]) -> dict:
    """The sizes of a kernel as it is, by name: for steps (chain, step) without a warm-up."""
    sizes = kernel.parameters(target)
    names = [name for tunable in kernel.tunables for name in tunable.names]
    return {name: np.full(shape, float(sizes[name])) for name in names}


def step(constants, carry, scales: dict):
    """One step of one chain: its new state and generator, and its line of the trace."""
    (kernel, target), (state, generator) = constants, carry
    generator, state, info, tally = kernel.make_step(target, scales, generator, state)
    lp = state.log_density - jnp.sum(state.values**2) / 2
    code = (len(Outcome) * info.move + info.outcome).astype(jnp.uint8)
    x, drawn, on = target.point(state.x), kernel.is_draw(state), state.on
    trace = Trace(x, lp, drawn, on, code, info.acceptance, tally, info.exchanges)
    return (state, generator), trace


def compile_steps(kernel: Kernel, target: Target, carry: tuple[State, Generator], scales: dict):
    """`step` for all chains of a tile, scanned over any number of blocks.

    The program takes (kernel, target), the chains' states and generators, and the step sizes; it
    returns new states and generators and the trace, written over an old one if given. It is
    compiled once for all arguments like these.
    """
    leaves, tree = jax.tree.flatten(((kernel, target), carry))
    shapes = tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    return _compile(tree, shapes, tuple(scales))


@functools.lru_cache(maxsize=64)
def _compile(tree, shapes, names):
    constants, carries = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*s) for s in shapes])
    width, n = carries[0].x.shape
    carry = jax.tree.map(lambda leaf: leaf.update(shape=leaf.shape[1:]), carries)
    scales = dict.fromkeys(names, jax.ShapeDtypeStruct((), jnp.float64))
    zero = functools.partial(_zero, constants[1], *carry)
    on_refusal = functools.partial(_warn_of_xla, constants[1], carry[0].x)
    example = Example(constants, carry, scales)
    return program(step, example, width=width, block=block_for(n), zero=zero, on_refusal=on_refusal)


def _warn_of_xla(target, x, reason):
    """Warn, once for each model, that its steps will be slow."""
    model = tuple(target.functions.values())
    if model in _WARNED:
        return
    m = jax.eval_shape(Target.values, target, x).shape[0]
    factor = next(text for most, text in SLOWER.items() if m <= most)
    warn(
        f"The steps of this model are compiled by XLA, which makes them {factor} times slower (with"
        f" m = {m}), though no less right, for limpet's own compiler cannot do: {reason}. If that"
        " is an operation in q, log_density or inside, try to write them without it.",
        SlowPathWarning,
    )
    _WARNED.add(model)


def _zero(target, state: State, generator):
    """Which numbers of a chain are always zero: entries of the normals, and of their factor."""
    if target.colouring is not None or target.is_crowded(state.x):  # entries only, or none
        return None

    def matrices(target, x):
        normals = target.values_and_normals(x)[1]
        return {"normals": normals, "factor": factor(normals)}

    found = lanes.zeros(matrices, target, state.x)
    none = jax.tree.map(lambda leaf: np.zeros(leaf.shape, bool), (state, generator))
    # some samplers do not keep these
    kept = {name: zero for name, zero in found.items() if getattr(state, name).shape == zero.shape}
    return none[0]._replace(**kept), none[1]
