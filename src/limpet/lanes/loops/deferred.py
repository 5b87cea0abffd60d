"""Products that are not computed before it is known which of their entries are needed.

The derivative of m gradients has an axis for each gradient twice, and is read on the diagonal of
these two alone, by a product with a sparse matrix: the other entries would be (m - 1) / m of the
work.
"""

import dataclasses
from collections.abc import Callable

from limpet.lanes.loops.memory import Computed, Stored


@dataclasses.dataclass(eq=False)
class Deferred(Computed):
    """A product of which each entry is a sum; `several` computes some of them side by side."""

    several: Callable = dataclasses.field(kw_only=True)
    stored: Callable[[], Stored] = dataclasses.field(kw_only=True)  # all of them


@dataclasses.dataclass(eq=False)
class Unwritten(Deferred):
    """An array that may be written where it is changed at once, for nothing else reads it."""

    into: Callable[[Stored], Stored] = dataclasses.field(kw_only=True)


@dataclasses.dataclass(eq=False)
class ShortSum(Computed):
    """Sums of a few terms each, computed where they are read.

    The last operation is an addition, so that no entry depends on whether it is stored: products
    may be fused with what follows.
    """


def computed(value):
    """The array, all entries of which will be read."""
    return value.stored() if isinstance(value, Deferred) else value


def entries(code, value, indices) -> list:
    """Some entries of an array."""
    if isinstance(value, Deferred):
        return value.several(indices)
    return [value.at(code, index) for index in indices]
