"""How the time of a step, and of compiling it, grows with the size of a problem.

    python -m bench.growth --json out.json
    python -m bench.growth --json out.json --only chain ring --seconds 20

Each size of a problem has a process of its own, with nothing compiled before. One that takes longer
than `--seconds` is ended, and larger ones of its kind are left out. Times are those of the
processor, for one chain: of a step of `limpet.SAS`, or of a slide of `limpet.Lifted`. After each
chain of beads runs `bench/chain.cpp`, which makes slides with their reverse checks, nothing else.
"""

from bench.timing import pin, processor_seconds, spread

pin()

import argparse
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import limpet
from bench import bonds, problems
from bench.speed import build
from limpet.kernels import noise
from limpet.run import tile

EPS = 0.01
WIDTH, TURNS = 8, 5
AWAY = 50  # steps from the start to the first that is timed
TURN_SECONDS = 0.1  # of a turn, at least
SLIDES = 8  # of a trajectory
NUMBERS = 40_000  # of the points of a chain in one call, so that what Python does is a small share
SECONDS = 120.0  # for one size
BEADS = (10, 30, 60, 100, 300, 1_000, 3_000)


class Kind(NamedTuple):
    """Problems of one kind, by size."""

    make: Callable  # a target and a start
    sizes: tuple[int, ...]
    slide: Callable[[int], float]  # its size
    lifted: bool = False


def dense(n, eps):
    """A third as many constraints as unknowns."""
    return problems.quadratics(n // 3, n, eps)


def _of_beads(beads):
    return 0.6 / beads**0.5


def _of_unknowns(n):
    return 0.5 / n**0.5


def thin_sphere(n, eps):
    """The unit sphere, with n eps at most one, so that moves of every kind succeed for every n.

    Were n eps large, most of the shell would lie far outside, for there is more room.
    """
    return problems.sphere(n, min(eps, 1 / n))


SPHERES, UNKNOWNS = (10, 100, 1_000, 10_000), (15, 30, 60, 120)
KINDS = {
    "sphere": Kind(thin_sphere, SPHERES, _of_unknowns),
    "sphere, Lifted": Kind(thin_sphere, SPHERES, _of_unknowns, lifted=True),
    "dense": Kind(dense, UNKNOWNS, _of_unknowns),
    "dense, Lifted": Kind(dense, UNKNOWNS, _of_unknowns, lifted=True),
    "data": Kind(problems.linear, (10, 100, 1_000), lambda m: 0.2, lifted=True),
    "equation": Kind(problems.lotka_volterra, (50, 200, 1_000), lambda steps: 0.1),
    "chain": Kind(bonds.chain, BEADS, _of_beads),
    "ring": Kind(bonds.ring, BEADS[:-1], _of_beads),
    "star": Kind(bonds.star, (101, 301, 1_001), _of_beads),
    "network": Kind(bonds.network, (50, 150, 500), _of_beads),
}
KINDS |= {  # the same with bonds in random order
    f"{name}, shuffled": Kind(functools.partial(KINDS[name].make, order=1), sizes, _of_beads)
    for name, sizes in {
        "chain": (100, 1_000),
        "ring": (100, 1_000),
        "star": (301, 1_001),
        "network": (150, 500),
    }.items()
}


def program_of(kind: Kind, size):
    """A function that makes some steps of a few chains, how many, and the seconds to compile it."""
    target, x = kind.make(size, EPS)  # on the surface
    slide = kind.slide(size)
    kernel = limpet.SAS(sigma_hrd=slide)
    if kind.lifted:
        kernel = limpet.Lifted(steps=SLIDES, step_size=slide)
    target = target.freeze(jnp.asarray(x))
    block = max(tile.block_for(len(x)), NUMBERS // len(x))
    scales = tile.given_scales(kernel, target, (WIDTH, block))
    states = tile.first_states(kernel, target, np.tile(x, (WIDTH, 1)))
    carry, trace = (states, noise.generators(0, 0, WIDTH)), None
    began = processor_seconds()
    program = tile.compile_steps(kernel, target, carry, scales)
    compiling = processor_seconds() - began

    def go():
        nonlocal carry, trace
        carry, trace = program((kernel, target), carry, scales, trace)
        return trace

    return go, block * (SLIDES if kind.lifted else 1), compiling


def seconds_of_a_step(go, steps):
    """Of the processor, for one chain, where `go` makes so many steps of each."""
    began, spent, made = time.process_time(), -1.0, 0
    while spent < TURN_SECONDS:
        go()
        spent, made = time.process_time() - began, made + steps * WIDTH
    return spent / made


def timed(kind: Kind, size):
    """What is told of one size."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        go, steps, compiling = program_of(kind, size)
    slow = any(issubclass(each.category, limpet.SlowPathWarning) for each in caught)
    seconds = functools.partial(seconds_of_a_step, go, steps)
    for _ in range(-(-AWAY // steps)):
        go()
    return {
        "size": size,
        "seconds": spread([seconds() for _ in range(TURNS)]),
        "compile_seconds": compiling,
        "acceptance": float(np.mean(go().acceptance)),
        "engine": "XLA" if slow else "limpet",
    }


def in_a_process(name, size, seconds):
    """The same by a process that may take so many seconds; None if it takes more."""
    command = [sys.executable, "-m", "bench.growth", "--one", name, str(size)]
    environment = os.environ | {"LIMPET_CACHE": "", "JAX_COMPILATION_CACHE_DIR": ""}
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            command, env=environment, timeout=seconds, check=True, stdout=subprocess.PIPE
        )
        return json.loads(done.stdout)
    return None


def yardstick(program, beads):
    """A chain of beads by a program written for it: three turns."""
    steps = max(4, 200_000 // beads)
    arguments = [program, str(beads), str(steps), str(_of_beads(beads)), "1"]
    turns = [
        json.loads(subprocess.run(arguments, check=True, capture_output=True).stdout)
        for _ in range(3)
    ]
    return {name: float(np.median([turn[name] for turn in turns])) for name in turns[0]}


def measure(names, seconds):
    """All kinds of problems: what is told of each size that there was time for."""
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder, "chain")
        for name in names:
            found = []
            for size in KINDS[name].sizes:
                one = in_a_process(name, size, seconds)
                if one is None:
                    print(f"{name} {size}: more than {seconds:.0f} s; larger ones are left out")
                    break
                if name == "chain":
                    one["yardstick"] = yardstick(program, size)
                found.append(one)
                print(line(name, one), flush=True)
            yield name, found


def line(name, one):
    """What is told of one size, for people."""
    text = f"{name} {one['size']}: {1e6 * one['seconds']['median']:.1f} microseconds a step"
    if "yardstick" in one:
        text += f", {one['seconds']['median'] / one['yardstick']['seconds']:.2f} x C++"
    return f"{text}; compiled in {one['compile_seconds']:.1f} s by {one['engine']}"


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--one", nargs=2, metavar=("KIND", "SIZE"), help="this one only, here")
    options = parser.parse_args()
    if options.one:
        name, size = options.one
        print(json.dumps(timed(KINDS[name], int(size))))
        return
    if options.json is None:
        parser.error("--json: expected a file for the result")
    result = json.loads(options.json.read_text()) if options.json.exists() else {}
    for name, found in measure(options.only, options.seconds):
        result[name] = found
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
