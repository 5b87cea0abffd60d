"""The samplers, one file each."""

from limpet.kernels.base import Kernel
from limpet.kernels.exchange import Exchange
from limpet.kernels.lifted import Lifted
from limpet.kernels.random_walk import RandomWalk
from limpet.kernels.sas import SAS
from limpet.kernels.states import Info, Move, Outcome, State
from limpet.kernels.strata import StrataSampler
from limpet.kernels.surface import SurfaceSampler

__all__ = [
    "SAS",
    "Exchange",
    "Info",
    "Kernel",
    "Lifted",
    "Move",
    "Outcome",
    "RandomWalk",
    "State",
    "StrataSampler",
    "SurfaceSampler",
]
