"""How many chains go side by side: the lanes of the program that is being written.

More lanes share what is the same for all of them, such as entries of constant matrices and indices,
and have more to do while one addition waits for another; but arrays need more room, and lanes wait
for the slowest. A chain's numbers do not depend on it.
"""

import contextlib
import contextvars
from collections.abc import Iterator

from limpet.lanes import machine

FEW = 4  # where all numbers are in registers of 256 bits, which are enough for no more
# Where arrays are in memory: with 8 in place of 4, a slide takes 0.6 to 0.7 of the time on dense
# quadratics, an equation in time and a chain of 100 beads, on a processor of 512 bits.
MANY = 8
# Operations up to which numbers in registers of 512 bits have MANY lanes. On a processor that
# halves such instructions, a step of the paper's sampler (1,501) takes 0.7 to 0.8 of the time, a
# trajectory on two spheres (1,917) and one in 30 dimensions (5,544) 0.8 to 0.9, of ten beads
# (44,472) and four quadratics (48,263) 0.8 to 1; and compiling these last 1.3 to 1.5 times as long.
MOST_IN_WIDE_REGISTERS = 10_000
# Bytes of all arrays with MANY lanes, beyond those of tables, which all lanes share. Measured with
# caches of 48 kB and 2 MB, on a machine with other work: chains of 300 and 1,000 beads, with 2 and
# 7 MB, take 0.85 and 0.75 of the time with FEW; one of 100, with 0.7 MB, as long; 40 quadratics in
# 120 unknowns, with 6 MB and tables of 5 MB, 1.5 times as long. Where caches have 48 kB and 1 MB,
# these last take 1.55 times as long, too, and chains as long with either.
MOST_FOR_MANY = 3 * 2**19
_NOW = contextvars.ContextVar("lanes", default=FEW)


def in_registers(operations: int, chains: int, quick: bool) -> int:
    """The lanes of a program on numbers in registers, for about so many chains."""
    worth = operations <= MOST_IN_WIDE_REGISTERS and not quick
    return MANY if worth and chains > FEW and machine.is_wide() else FEW


def lanes() -> int:
    """The lanes of the program that is being written."""
    return _NOW.get()


@contextlib.contextmanager
def side_by_side(count: int) -> Iterator[None]:
    """Programs that are written inside have so many lanes."""
    token = _NOW.set(count)
    try:
        yield
    finally:
        _NOW.reset(token)
