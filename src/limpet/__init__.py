"""limpet: sample probability distributions that are concentrated near a surface.

Importing limpet turns on JAX's 64-bit mode (`jax_enable_x64`), for the whole process: a point
cannot be held on a surface with the seven digits of single precision.
"""

import jax

jax.config.update("jax_enable_x64", True)

from limpet.diagnostics import autocorrelation_time  # noqa: E402
from limpet.errors import (  # noqa: E402
    InputError,
    LimpetError,
    LimpetWarning,
    PrecisionWarning,
    StartError,
    StuckError,
)
from limpet.kernels import SAS, RandomWalk, SurfaceSampler  # noqa: E402
from limpet.results import Summary, summary  # noqa: E402
from limpet.run import sample  # noqa: E402
from limpet.start import find_start  # noqa: E402
from limpet.target import Target  # noqa: E402

__all__ = [
    "SAS",
    "InputError",
    "LimpetError",
    "LimpetWarning",
    "PrecisionWarning",
    "RandomWalk",
    "StartError",
    "StuckError",
    "Summary",
    "SurfaceSampler",
    "Target",
    "autocorrelation_time",
    "find_start",
    "sample",
    "summary",
]
