"""A coordinator that is to be killed: it begins the store it is given, or goes on with it.

`python coordinator.py STORE ENGINE` samples by "threads", "processes" or "dask", and prints a
line every time it looks.
"""

import contextlib
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from elsewhere import START, make_target
from killed import RUN

import limpet
from limpet.draws.where import as_home

PLANNED = 10**7  # draws per chain: days


@contextlib.contextmanager
def workers(engine):
    """What advances tiles; nothing, for threads."""
    if engine == "threads":
        yield None
    elif engine == "processes":
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            yield pool
    else:
        from distributed import Client, LocalCluster

        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            yield client


def say(now):
    """What was drawn, while something is drawn."""
    if now.phase in ("warmup", "draws"):
        os.write(sys.stdout.fileno(), f"{now.draws}\n".encode())


if __name__ == "__main__":
    path, engine = sys.argv[1:]
    with workers(engine) as executor:
        if as_home(path).exists():
            limpet.resume(path, make_target(), executor=executor, progress=say)
        else:
            options = RUN | {"chains": 257, "draws": PLANNED, "store": path}
            limpet.sample(make_target(), START, executor=executor, progress=say, **options)
