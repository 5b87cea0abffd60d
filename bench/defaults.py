"""What a default run takes on ten models, from the call to the last draw: seconds of a processor.

    python -m bench.defaults                          # this limpet
    python -m bench.defaults --against old/src        # and another, by turns
    python -m bench.defaults --only "30 beads" --turns 3

Each run is a process of its own that has compiled nothing before; this one only starts them, and
imports no limpet. Effective draws are those of the slowest of the observables of `bench.kernels`.
The turns have the seeds 1, 2, ...; medians of them are shown, and ratios turn by turn.
"""

from bench.timing import pin, processor_seconds

pin()

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

EPS = 0.01
MODELS = (
    *("two spheres", "ellipsoid-sphere", "torus", "trimer", "posterior"),
    *("populations", "10 beads", "30 beads", "60 beads", "quadratics"),
)
FEWER = {"quadratics": {"chains": 32}}  # 128 would take ten minutes


def problem(name):
    """A model: its target, a start, and what is observed of draws."""
    import limpet
    from bench.kernels import PROBLEMS, coordinates
    from bench.problems import populations, quadratics

    if name in PROBLEMS:
        found = PROBLEMS[name]
        target = limpet.Target(found.q, EPS, log_density=found.log_density)
        return target, found.start, found.observables
    target, start = populations(EPS) if name == "populations" else quadratics(20, 60, EPS)
    return target, start, coordinates


def run(name, seed):
    """Seconds and effective draws of one run, in this process."""
    from arviz_stats.base import array_stats

    import limpet

    target, start, observables = problem(name)
    began = processor_seconds()
    fewer = FEWER.get(name, {})
    draws = limpet.sample(target, start, workers=1, seed=seed, progress=False, **fewer)
    seconds = processor_seconds() - began
    seen = observables(draws.posterior["x"].values).values()
    return {"seconds": seconds, "ess": min(float(array_stats.ess(each)) for each in seen)}


def measure(name, seed, source):
    """The same in a process that imports limpet from `source`, and finds nothing compiled."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"LIMPET_CACHE": cache}
        if source is not None:
            environment["PYTHONPATH"] = str(source)
        command = [sys.executable, "-m", "bench.defaults", "--one", name, "--seed", str(seed)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Ask, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="folder of another limpet package")
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--one", choices=MODELS, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(run(asked.one, asked.seed)))
        return
    sources = [None] if asked.against is None else [None, asked.against.resolve()]
    ratios = []
    for name in asked.only:
        seeds = range(1, asked.turns + 1)
        turns = [[measure(name, seed, source) for source in sources] for seed in seeds]
        found = [
            {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            for runs in zip(*turns, strict=True)
        ]
        text = ", ".join(f"{each['seconds']:.1f} s, {each['ess']:,.0f} effective" for each in found)
        if len(found) == 2:
            time, ess = ([new[key] / old[key] for new, old in turns] for key in ("seconds", "ess"))
            ratios.append(statistics.median(time))
            text += f": {_by_turn(time)} of the other's time, "
            text += f"{_by_turn(ess)} of its effective draws"
        print(f"{name}: {text}", flush=True)
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, largest {max(ratios):.2f}")


def _by_turn(ratios):
    """Their median, and each of them where there are several."""
    text = f"{statistics.median(ratios):.2f}"
    if len(ratios) > 1:
        text += f" ({' '.join(f'{ratio:.2f}' for ratio in ratios)})"
    return text


if __name__ == "__main__":
    main()
