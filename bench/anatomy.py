"""Where the time of a step goes, in nanoseconds of one chain's step.

    python -m bench.anatomy --json out.json

Parts of the step are compiled by themselves. What the whole costs beyond them is selecting between
moves, acceptance and the trace. Outside of the step, the collecting of draws is timed in a run.
"""

from bench.timing import measure_and_write, pin

pin()

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np

import limpet
from bench.speed import TARGET, limpets
from limpet import lanes
from limpet.geometry.linalg import factor, inner, log_abs_det, solve, tangent
from limpet.kernels import noise
from limpet.paper import START
from limpet.paper.experiments import PAPER
from limpet.run import tile

WIDTH, STEPS, REPEATS = 128, 256, 30


def nanoseconds(function, constants, carry, inputs):
    """Of a turn of one chain."""
    one = jax.tree.map(lambda leaf: leaf[0], (carry, inputs))
    program = lanes.scan(function, constants, one[0], jax.tree.map(lambda leaf: leaf[0], one[1]))
    best, over = np.inf, None
    for _ in range(REPEATS):
        began = time.perf_counter()
        _, over = program(constants, carry, inputs, over)
        best = min(best, time.perf_counter() - began)
    return 1e9 * best / (WIDTH * STEPS)


def measure():
    """All parts."""
    starts = limpet.find_start(TARGET, START, count=WIDTH, seed=0)
    target = TARGET.freeze(jnp.asarray(starts[0]))
    states = tile.first_states(PAPER, target, starts)
    generators = noise.generators(0, 0, WIDTH)
    scales = tile.given_scales(PAPER, target, (WIDTH, STEPS))

    def whole(cap):
        kernel = dataclasses.replace(PAPER, newton_cap=cap)
        return nanoseconds(tile.step, (kernel, target), (states, generators), scales)

    def draws(_, generator, scales):
        generator, new = noise.draw(generator, 3)
        return generator, jnp.sum(new.z) + new.choice + new.coin

    def normals(target, x, scales):
        values, gradients = target.values_and_normals(x)
        # x is carried, so that no turn can be left out
        return x + 1e-9 * values[0] * gradients[:, 1], ()

    def algebra(target, x, scales):
        values, gradients = target.values_and_normals(x)
        L = factor(gradients)
        A = inner(gradients, gradients + 1.0)
        moved = tangent(gradients, L, x) + tangent(gradients, L, solve(A, values) @ gradients.T)
        return x + 1e-9 * moved * log_abs_det(A), ()

    parts = {
        "whole step": whole(5),
        "noise": nanoseconds(draws, (), generators, scales),
        "q and its normals, once": nanoseconds(normals, target, states.x, scales),
        "a Newton update in each projection": (whole(5) - whole(2)) / 3,
    }
    matrices = nanoseconds(algebra, target, states.x, scales)
    parts["a factor, two projections, a solve and a determinant"] = (
        matrices - parts["q and its normals, once"]
    )
    attrs = limpets(256, 2e7)
    parts["limpet.sample, all in all"] = 1e9 * attrs["seconds"] / attrs["steps"]
    return parts


if __name__ == "__main__":
    result = measure_and_write(__doc__, measure)
    for name, value in result.items():
        print(f"{name}: {value:.0f} ns")
