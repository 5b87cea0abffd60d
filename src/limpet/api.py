"""Every public name. `limpet` takes them from here when one of them is first used."""

from limpet.draws import open
from limpet.errors import (
    ExecutorError,
    InputError,
    InterruptedWarning,
    LimpetError,
    LimpetWarning,
    MixingWarning,
    PrecisionWarning,
    SlowPathWarning,
    StartError,
    StoreError,
    StuckError,
)
from limpet.geometry.start import find_start
from limpet.handover import as_blackjax, to_inference_data
from limpet.kernels import SAS, Exchange, Lifted, RandomWalk, StrataSampler, SurfaceSampler
from limpet.models import ModelTarget, from_numpyro, from_pymc
from limpet.models.spheres import sticky_spheres
from limpet.partition import ladder, partition_ratio
from limpet.report.bonds import label_graph
from limpet.report.diagnostics import autocorrelation_time
from limpet.report.plot import plot
from limpet.report.progress import Progress
from limpet.report.summary import Summary, summary
from limpet.sampling import resume, sample
from limpet.strata import Strata
from limpet.symmetries import crankshaft, pivot
from limpet.target import Target

__all__ = [
    "SAS",
    "Exchange",
    "ExecutorError",
    "InputError",
    "InterruptedWarning",
    "Lifted",
    "LimpetError",
    "LimpetWarning",
    "MixingWarning",
    "ModelTarget",
    "PrecisionWarning",
    "Progress",
    "RandomWalk",
    "SlowPathWarning",
    "StartError",
    "StoreError",
    "Strata",
    "StrataSampler",
    "StuckError",
    "Summary",
    "SurfaceSampler",
    "Target",
    "as_blackjax",
    "autocorrelation_time",
    "crankshaft",
    "find_start",
    "from_numpyro",
    "from_pymc",
    "label_graph",
    "ladder",
    "open",
    "partition_ratio",
    "pivot",
    "plot",
    "resume",
    "sample",
    "sticky_spheres",
    "summary",
    "to_inference_data",
]
