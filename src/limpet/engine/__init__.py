"""How a step of one chain becomes a program for many: compiled lanes, or XLA where these refuse.

`program.py` chooses, and `rows.py` for what runs once; `xla.py` is the second way; `apart.py` has
large programs compiled by another process; `cache.py` keeps what was compiled; `interrupts.py` lets
one leave calls that take long.
"""

from limpet.engine.program import Example, program
from limpet.engine.rows import of_rows

__all__ = ["Example", "of_rows", "program"]
