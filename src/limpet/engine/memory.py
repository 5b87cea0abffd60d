"""How much memory there is to spare.

Systems promise more memory than they have, and end a program that takes it at its word: what needs
much is refused in words before.
"""

import contextlib
import math
from pathlib import Path

SYSTEM, CONTAINER = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def spare_bytes() -> float:
    """Memory that can be had without others' suffering; infinite where the system does not say."""
    spare = math.inf
    with contextlib.suppress(OSError, ValueError, KeyError):
        spare = 1024.0 * _numbers(SYSTEM)["MemAvailable:"]
    with contextlib.suppress(OSError, ValueError, KeyError):  # there may be no limit
        most = int((CONTAINER / "memory.max").read_text())
        used = int((CONTAINER / "memory.current").read_text())
        cached = _numbers(CONTAINER / "memory.stat")["inactive_file"]  # given back when needed
        spare = min(spare, float(most - used + cached))
    return spare


def _numbers(file: Path) -> dict[str, int]:
    """The first number of each line, by the word before it."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {name: int(number) for name, number, *_ in lines}


def in_words(size: float) -> str:
    """So many bytes: "3.2 GB", or "4.5 MB"."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"
