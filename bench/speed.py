"""Steps per second of `limpet.sample`, beside a C++ program written for the one model.

    python -m bench.speed --json out.json

The model is ellipsoid-sphere at beta = 2 10^4 with the paper's settings, draws kept in memory.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import limpet
from bench.timing import measure_and_write, pin, ratio
from limpet.paper import START, ellipsoid_sphere, eps_of
from limpet.paper.experiments import PAPER

BETA, TURNS = 2e4, 9
TARGET = limpet.Target(ellipsoid_sphere, eps=eps_of(BETA))


def limpets(chains, steps, workers=1):
    """A run of about this many steps in all."""
    draws = max(1, int(steps * PAPER.draw_share() / chains))
    options = {"warmup": 0, "kernel": PAPER, "workers": workers, "progress": False}
    return limpet.sample(TARGET, START, draws=draws, chains=chains, **options).attrs


def limpets_rate(chains, steps=8e6, workers=1):
    """Steps per second."""
    attrs = limpets(chains, steps, workers)
    return attrs["steps"] / attrs["seconds"]


def build(folder, name="yardstick"):
    """A yardstick, compiled."""
    program = Path(folder) / name
    source = Path(__file__).with_name(f"{name}.cpp")
    options = ["-std=c++17", "-O3", "-march=native"]
    subprocess.run([os.environ.get("CXX", "g++"), *options, source, "-o", program], check=True)
    return program


def yardstick(program, seed=1):
    """A run of the yardstick: 256 chains, one after the other."""
    arguments = [program, "16000", "256", str(BETA), str(seed)]
    return json.loads(subprocess.run(arguments, check=True, capture_output=True).stdout)


def measure():
    """All lines, as ratios to the yardstick in the same minute."""
    everywhere = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
    pin()
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder)

        def yardsticks_rate():
            run = yardstick(program)
            return run["steps"] / run["seconds"]

        lines = {
            "256 chains": ratio(lambda: limpets_rate(256), yardsticks_rate, TURNS),
            "one chain": ratio(lambda: limpets_rate(1, 1e6), yardsticks_rate, TURNS),
        }
        reference = yardstick(program)
        ours = limpets(256, 2e7)["acceptance"]
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, everywhere)
        cores = len(everywhere)
        lines[f"256 chains, {cores} cores"] = ratio(
            lambda: limpets_rate(256, workers=cores), yardsticks_rate, TURNS
        )
    theirs = {move: reference[move] for move in ours}
    return {"lines": lines, "acceptance": {"limpet": ours, "yardstick": theirs}}


if __name__ == "__main__":
    result = measure_and_write(__doc__, measure)
    for name, line in result["lines"].items():
        print(f"{name}: {line['median']:.2f} ({line['low']:.2f} to {line['high']:.2f}) x C++")
