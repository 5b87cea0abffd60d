"""What a long run costs: a second worker, a store, and memory as the draws add up.

    python -m bench.runs workers    # two workers beside one
    python -m bench.runs store      # a run into a store beside one in memory
    python -m bench.runs memory     # 20 million draws into a store (Linux: reads /proc)
    python -m bench.runs soak       # ten minutes at full speed, 128 chains, then SIGTERM: 50 GB

Each figure is the median ratio of two runs made one after the other, with the range of the middle
half: a noisy machine is noisy for both.
"""

import itertools
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import limpet
from bench.timing import ratio
from limpet.draws import writer
from limpet.paper import two_spheres

TARGET = limpet.Target(two_spheres, eps=0.005)
START = [1.0, 0.0, 0.0]
TURNS = 9
SOAK = 600  # seconds


def sample(draws, chains=256, **options):
    """A run of the paper's first model, with its seconds of sampling."""
    return limpet.sample(TARGET, START, draws=draws, chains=chains, **{"progress": False} | options)


def seconds(**options):
    """Seconds that sampling took, warm-up and compiling aside."""
    return sample(6_000, **options).attrs["seconds"]


def times(first, second):
    """How many times as long one kind of run takes as another, as text."""
    found = ratio(first, second, TURNS)
    return f"{found['median']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def stored():
    """Seconds of a run into a store."""
    with tempfile.TemporaryDirectory() as folder:
        return seconds(store=Path(folder) / "run.zarr")


def workers():
    """Two workers beside one."""
    faster = times(lambda: seconds(workers=1), lambda: seconds(workers=2))
    print(f"one worker takes {faster} times as long as two")


def store():
    """A run into a store beside one in memory."""
    print(f"a run into a store takes {times(stored, seconds)} times as long as one in memory")


def resident():
    """Megabytes of memory in use now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmRSS")


def memory():
    """Resident memory over 20 million draws."""
    seen = []
    with tempfile.TemporaryDirectory() as folder:
        sample(
            78_125,
            store=Path(folder) / "run.zarr",
            progress=lambda now: seen.append((now.draws / now.asked, resident())),
        )
    for quarter in range(4):
        mine = [megabytes for share, megabytes in seen if int(4 * share) == quarter]
        print(f"quarter {quarter + 1}: {sum(mine) / len(mine):.0f} MB, at most {max(mine):.0f} MB")


def soak():
    """Ten minutes at full speed, then SIGTERM: memory, times between commits, time to stop."""
    commit, at, seen, stopped = writer.Store.commit, [], [], []

    def noted(self, *arguments):
        commit(self, *arguments)
        at.append(time.monotonic())

    def stop():
        stopped.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    writer.Store.commit = noted
    threading.Timer(SOAK, stop).start()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", limpet.LimpetWarning)
        sample(
            10**9,
            chains=128,
            store=Path(folder) / "run.zarr",
            progress=lambda _: seen.append((time.monotonic() - began, resident())),
        )
        print(f"stopped {time.monotonic() - stopped[0]:.2f} s after SIGTERM")
    minutes = [[mb for at, mb in seen if at // 60 == k] for k in (1, SOAK // 60 - 1)]
    second, last = (sum(each) / len(each) for each in minutes)
    print(f"resident in the second minute {second:.0f} MB, in the last {last:.0f} MB")
    print(f"commits at most {max(b - a for a, b in itertools.pairwise(at)):.2f} s apart")


if __name__ == "__main__":
    for name in sys.argv[1:] or ("workers", "store", "memory"):
        {"workers": workers, "store": store, "memory": memory, "soak": soak}[name]()
