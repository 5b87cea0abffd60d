"""A step of one chain as a program for many chains and many turns."""

from collections.abc import Callable
from typing import Any, NamedTuple

from limpet import lanes
from limpet.engine import xla
from limpet.engine.apart import compiled
from limpet.engine.cache import load_or_make

Step = Callable[[Any, Any, Any], tuple[Any, Any]]  # constants, carry, inputs -> carry, output
Program = Callable[..., tuple[Any, Any]]  # constants, carries, inputs -> carries, outputs


class Example(NamedTuple):
    """What a step is given, as arrays or their shapes, for one chain and one turn.

    A step is `carry, output = step(constants, carry, inputs)`.
    """

    constants: Any
    carry: Any
    inputs: Any


def program(
    step: Step,
    example: Example,
    *,
    width: int,
    block: int,
    zero: Callable[[], Any] = lambda: None,
    on_refusal: Callable[[lanes.UnsupportedError], None] = lambda reason: None,
) -> Program:
    """Compile a step for `width` chains and whole blocks of turns.

    The program takes constants, carries of arrays (chains, ...) and inputs of arrays (chains,
    turns, ...), and returns the last carries and all outputs, written over those of an earlier call
    if these are given. `zero()` tells which entries of the carry are zero now and always;
    `on_refusal(reason)` is called before a step goes to XLA, which is slower.
    """
    try:
        return lanes.scan(step, *example, zero, load_or_make, chains=width, compiled=compiled)
    except lanes.UnsupportedError as reason:
        on_refusal(reason)
        return xla.scan(step, *example, width, block)
