"""From the start of a process to the first draw.

    python -m bench.startup --json out.json

Each line is a process of its own, timed from outside, beside NumPyro's NUTS on the same model.
"""

import os
import subprocess
import sys
import tempfile
import time

from bench.timing import measure_and_write, pin, spread

MODEL = """
import jax.numpy as jnp
a, b, axes = jnp.array([0.0, 0, 1]), jnp.array([0.0, -1, 0]), jnp.array([2.0, 3, 5])
def q(x):
    return jnp.stack([jnp.sum((x - a) ** 2) - 2, jnp.sum((x - b) ** 2 / axes) - 1])
"""
LIMPET = f"""
import limpet
{MODEL}
limpet.sample(
    limpet.Target(q, eps=0.005), [1.0, 0.0, 0.0], draws=1, chains=4, warmup=0, progress=False
)
"""
NUMPYRO = f"""
import jax, numpyro
from numpyro.infer import MCMC, NUTS
numpyro.enable_x64()
{MODEL}
nuts = NUTS(potential_fn=lambda x: jnp.sum((q(x) / 0.005) ** 2) / 2)
run = MCMC(nuts, num_warmup=0, num_samples=1, progress_bar=False)
run.run(jax.random.key(0), init_params=jnp.array([0.8, 0.3, -0.2]))
jax.block_until_ready(run.get_samples())
"""
TURNS = 5


def seconds(code, cache=""):
    """Of a process that runs this."""
    began = time.perf_counter()
    environment = os.environ | {"LIMPET_CACHE": cache, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.perf_counter() - began


def measure():
    """All lines, by turns."""
    pin()
    with tempfile.TemporaryDirectory() as warm:
        seconds(LIMPET, warm)
        lines = {
            "import jax, xarray": lambda: seconds("import jax, xarray"),
            "import limpet": lambda: seconds("from limpet import *"),  # all that is else put off
            "NumPyro, first draw": lambda: seconds(NUMPYRO),
            "limpet, first draw": lambda: seconds(LIMPET),
            "limpet, first draw of a model seen before": lambda: seconds(LIMPET, warm),
        }
        turns = [{name: line() for name, line in lines.items()} for _ in range(TURNS)]

    def ratio(first, second):
        return spread([turn[first] / turn[second] for turn in turns])

    *_, new, seen = lines
    return {
        "seconds": {name: spread([turn[name] for turn in turns]) for name in lines},
        "ratios": {
            "import": ratio("import limpet", "import jax, xarray"),
            "new": ratio(new, "NumPyro, first draw"),
            "seen": ratio(seen, "NumPyro, first draw"),
        },
    }


if __name__ == "__main__":
    result = measure_and_write(__doc__, measure)
    for name, line in result["seconds"].items():
        print(f"{name}: {line['median']:.2f} s")
