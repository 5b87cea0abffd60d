"""How a step of one chain becomes a program for many: compiled lanes, or XLA where these refuse.

`program.py` chooses; `xla.py` is the second way; `cache.py` keeps what was compiled;
`interrupts.py` lets one leave calls that take long.
"""

from limpet.engine.program import Example, program

__all__ = ["Example", "program"]
