"""Runs that are to be killed: each begins the store it is given, or goes on with it.

`python killed.py STORE` makes a run for each line that it reads, and tells its process and, when it
has ended, how. A run prints how many draws each chain has, every time it looks; with a number N in
its line it kills itself before the N-th time that it brings a file to the disk or gives it its
name. All settings are those that users have. Runs are forks of one process, in which limpet was
imported and nothing was computed yet: importing takes longer than most of them live.
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
        # at once, lest half a line be left behind
        os.write(sys.stdout.fileno(), f"{now.draws // now.chains}\n".encode())


def run(path, number):
    """Begin, or go on."""
    if number is not None:
        die_at_file(number)
    if path.exists():
        limpet.resume(path, TARGET, progress=say)
    else:
        limpet.sample(TARGET, [1.0, 0.0], draws=PLANNED, store=path, progress=say, **RUN)


if __name__ == "__main__":
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            run(Path(sys.argv[1]), int(line) if line.strip() else None)
            os._exit(0)
        print("begun", process, flush=True)
        print("ended", os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
