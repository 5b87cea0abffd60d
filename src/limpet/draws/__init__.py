"""Where draws go on disk: what a store is, how it is written, read and checked."""

from limpet.draws.check import check
from limpet.draws.reader import open

__all__ = ["check", "open"]
