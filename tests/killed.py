"""A run that is to be killed: begins the store it is given, or goes on with it.

`python killed.py STORE DRAWS [N]` prints the draws that each commit made safe; with N it kills
itself at the N-th file that it writes, half of it written.
"""

import os
import signal
import sys
from pathlib import Path

import jax.numpy as jnp
import zarr

import limpet
from limpet import run, store


def circle(x):
    """The surface."""
    return jnp.array([x @ x - 1])


TARGET = limpet.Target(circle, 0.05)
RUN = {"chains": 3, "warmup": 3_000, "seed": 11, "workers": 2, "progress": False}


def die_in_the_middle_of_file(number):
    """Kill this process while it writes its `number`-th file."""
    put, count = zarr.storage.LocalStore.set, 0

    async def dying(self, key, value):
        nonlocal count
        count += 1
        if count == number:
            half = self.root / key
            half.parent.mkdir(parents=True, exist_ok=True)
            half.with_suffix(".partial").write_bytes(value.to_bytes()[: len(value) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        await put(self, key, value)

    zarr.storage.LocalStore.set = dying


def announce(commit):
    """Say what is safe after each commit."""

    def announced(self, tile, writes, snapshot):
        commit(self, tile, writes, snapshot)
        print(int(snapshot["posterior_visits"].min()), flush=True)

    return announced


if __name__ == "__main__":
    store.LONGEST, run.COMMIT, run.WRITING = (
        64,
        0.02,
        1.0,
    )  # many chunks, and many commits to be killed in
    path, draws = Path(sys.argv[1]), int(sys.argv[2])
    if len(sys.argv) > 3:
        die_in_the_middle_of_file(int(sys.argv[3]))
    store.Store.commit = announce(store.Store.commit)
    if path.exists():
        limpet.resume(path, TARGET, workers=2, progress=False)
    else:
        limpet.sample(TARGET, [1.0, 0.0], draws=draws, store=path, **RUN)
    print("done", flush=True)
