"""One core, and times of two things made by turns."""

import argparse
import json
import os
import statistics
import warnings
from pathlib import Path

THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}


def pin():
    """Keep this process, and those it starts, to one core."""
    os.environ.update(THREADS)
    warnings.simplefilter("ignore")  # short runs mix badly, and say so
    if hasattr(os, "sched_setaffinity"):  # in time: JAX starts its threads when it first computes
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def processor_seconds() -> float:
    """Of this process, and of those it started that have ended: some compile for it."""
    return sum(os.times()[:4])


def spread(values) -> dict:
    """The median and the middle half."""
    low, median, high = statistics.quantiles(values, n=4)
    return {"median": median, "low": low, "high": high}


def ratio(first, second, turns: int) -> dict:
    """Of two rates or times measured by turns, so that a noisy machine is noisy for both."""
    first(), second()  # compiled and warm
    pairs = [(first(), second()) for _ in range(turns)]
    return spread([a / b for a, b in pairs]) | {
        "first": statistics.median(a for a, _ in pairs),
        "second": statistics.median(b for _, b in pairs),
    }


def measure_and_write(doc: str, measure) -> dict:
    """Measure, and write the result to the file named on the command line."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    file = parser.parse_args().json
    result = measure()
    file.write_text(json.dumps(result, indent=1) + "\n")
    return result
