"""A long run at full speed into a store: memory, commits, and how soon it stops when asked to.

    python -m bench.soak                      # ten minutes, some 20 GB of disk
    python -m bench.soak --minutes 3 --folder /data

Prints the resident memory in the second minute and in the last one, the longest time between two
commits, the seconds from SIGTERM to the end of the process, and what the store has then. It reads
/proc, so it needs Linux.
"""

import argparse
import itertools
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import limpet

LOOK = 0.05  # seconds between two looks at the store and the process
RUN = """
import sys, limpet
from limpet.paper import two_spheres
target = limpet.Target(two_spheres, eps=0.005)
limpet.sample(target, [1.0, 0.0, 0.0], draws=10**9, store=sys.argv[1], progress=False)
"""


def resident(process) -> float:
    """Megabytes of memory that a process has in use."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def watch(process, store: Path, seconds: float):
    """Memory by time, and when commits were made, from the first on."""
    memory, commits, began = [], [], None
    while began is None or time.monotonic() < began + seconds:
        if process.poll() is not None:
            raise SystemExit(f"the run ended with status {process.returncode}")
        for state in store.glob("limpet/tiles/0.*"):
            written = state.stat().st_mtime
            if written not in commits:
                commits.append(written)
                began = began or time.monotonic()
        if began is not None:
            memory.append((time.monotonic() - began, resident(process)))
        time.sleep(LOOK)
    return memory, sorted(commits)


def measure(folder: Path, minutes: float):
    """Run, watch, stop, and tell."""
    store = folder / "run.zarr"
    process = subprocess.Popen([sys.executable, "-c", RUN, str(store)], stderr=subprocess.DEVNULL)
    memory, commits = watch(process, store, 60 * minutes)
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait()
    took = time.monotonic() - asked
    second = [size for at, size in memory if 60 <= at < 120]
    last = [size for at, size in memory if at >= 60 * (minutes - 1)]
    mean = [sum(sizes) / len(sizes) for sizes in (second, last)]
    gaps = [b - a for a, b in itertools.pairwise(commits)]
    draws = limpet.open(store)
    print(f"resident memory: minute 2 {mean[0]:.0f} MB, last minute {mean[1]:.0f} MB,")
    print(f"    ratio {mean[1] / mean[0]:.3f}, at most {max(size for _, size in memory):.0f} MB")
    print(f"commits: {len(commits)}, at most {max(gaps):.2f} s apart")
    print(f"SIGTERM to the end: {took:.2f} s")
    print(f"draws per chain in the store: {draws.posterior.sizes['draw']:,}")


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure(Path(folder), options.minutes)


if __name__ == "__main__":
    main()
