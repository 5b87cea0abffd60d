"""A run that is to be killed: begins the store it is given, or goes on with it.

`python killed.py STORE [N]` prints how many draws each chain has, every time it looks; with N it
kills itself before the N-th time that it brings a file to the disk or gives it its name. All
settings are those that users have.
"""

import os
import signal
import sys
from pathlib import Path

import jax.numpy as jnp

import limpet


def circle(x):
    """The surface."""
    return jnp.array([x @ x - 1])


TARGET = limpet.Target(circle, 0.05)
# of a fast run few draws are kept, so that what was drawn can be drawn again
RUN = {"seed": 11, "thin": 50}
PLANNED = 10**7  # draws per chain: days


def die_at_file(number):
    """Kill this process before it syncs or renames for the `number`-th time."""
    count = 0

    def dying(action):
        def act(*arguments):
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return action(*arguments)

        return act

    os.fsync, os.replace = dying(os.fsync), dying(os.replace)


def say(now):
    """How far the run is: every step of the default sampler is a draw, in all chains alike."""
    if now.phase in ("warmup", "draws"):
        print(now.draws // now.chains, flush=True)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    if len(sys.argv) > 2:
        die_at_file(int(sys.argv[2]))
    if path.exists():
        limpet.resume(path, TARGET, progress=say)
    else:
        limpet.sample(TARGET, [1.0, 0.0], draws=PLANNED, store=path, progress=say, **RUN)
