"""limpet: sample probability distributions that are concentrated near a surface.

Importing limpet turns on JAX's 64-bit mode (`jax_enable_x64`), for the whole process: a point
cannot be held on a surface with the seven digits of single precision. When a target is first used,
JAX is also told to keep compiled programs between processes, in the user's cache folder, unless it
was told of another: `LIMPET_CACHE` names a folder, or none if it is empty.
"""

import jax

jax.config.update("jax_enable_x64", True)

from limpet.diagnostics import autocorrelation_time  # noqa: E402
from limpet.errors import (  # noqa: E402
    InputError,
    InterruptedWarning,
    LimpetError,
    LimpetWarning,
    MixingWarning,
    PrecisionWarning,
    StartError,
    StoreError,
    StuckError,
)
from limpet.handover import as_blackjax  # noqa: E402
from limpet.kernels import SAS, Lifted, RandomWalk, SurfaceSampler  # noqa: E402
from limpet.partition import ladder, partition_ratio  # noqa: E402
from limpet.plot import plot  # noqa: E402
from limpet.progress import Progress  # noqa: E402
from limpet.results import Summary, summary  # noqa: E402
from limpet.run import resume, sample  # noqa: E402
from limpet.start import find_start  # noqa: E402
from limpet.store import open  # noqa: E402
from limpet.target import Target  # noqa: E402

__all__ = [
    "SAS",
    "InputError",
    "InterruptedWarning",
    "Lifted",
    "LimpetError",
    "LimpetWarning",
    "MixingWarning",
    "PrecisionWarning",
    "Progress",
    "RandomWalk",
    "StartError",
    "StoreError",
    "StuckError",
    "Summary",
    "SurfaceSampler",
    "Target",
    "as_blackjax",
    "autocorrelation_time",
    "find_start",
    "ladder",
    "open",
    "partition_ratio",
    "plot",
    "resume",
    "sample",
    "summary",
]
