"""Programs of which some arrays are in memory, and operations on them loops.

    workspace.py  the memory itself
    memory.py     arrays in memory, and loops over them
    shared.py     arrays that all lanes share
    deferred.py   products, until it is known which entries are needed
    program.py    a program, operation by operation: which are loops
    entries.py    operations entry by entry, which become part of the loop that reads them
    sums.py       reductions and running sums
    products.py   products of matrices
    moves.py      operations that move entries about; most cost nothing
    places.py     entries at places that are computed: tables, or lane by lane
    matrices.py   Cholesky, Gauss and substitution
    banded.py     matrices of three diagonals
    sorting.py    sorting
    plans.py      sums of products by tables: sparse matrices
    control.py    loops and branches
    fusion.py     loops over the same entries, made one: by what they read and write (access.py), as
                  their text says it (text.py), and what that spares (forwarding.py)

Rules are registered in `LOOPS` (`program.py`) under the name of their operation; its parameters are
those that its rule for numbers (`limpet.lanes.rules`) honours.
"""

from limpet.lanes.loops import (  # noqa: F401
    banded,
    control,
    entries,
    matrices,
    moves,
    places,
    plans,
    products,
    sorting,
    sums,
)
from limpet.lanes.loops.memory import REGISTERS
from limpet.lanes.loops.program import run
from limpet.lanes.loops.workspace import Workspace

__all__ = ["REGISTERS", "Workspace", "run"]
