"""limpet: sample probability distributions that are concentrated near a surface.

>>> import jax.numpy as jnp
>>> import limpet
>>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
>>> draws = limpet.sample(circle, start=[1.0, 0.0], draws=200, chains=4, seed=1)
>>> draws.posterior["x"].shape
(4, 200, 2)

`Target` says what to sample, and `sample` samples it: with `Lifted`, or with `SAS`,
`SurfaceSampler` or `RandomWalk` as its `kernel`. `resume` and `open` are for runs with a store.
`summary`, `plot` and `autocorrelation_time` tell how a run went, `partition_ratio` and `ladder`
what the density integrates to. `find_start` looks for the surface alone. `to_inference_data` and
`as_blackjax` hand draws and samplers to others.

Importing limpet turns on JAX's 64-bit mode (`jax_enable_x64`), for the whole process: a point
cannot be held on a surface with the seven digits of single precision. Nothing else happens: JAX
may still be told which devices to use, a process may fork, and no file is written. When a target is
first used, JAX is told to keep compiled programs between processes, in the user's cache folder,
unless it was told of another: `LIMPET_CACHE` names a folder, or none if it is empty.
"""

import jax

jax.config.update("jax_enable_x64", True)

from limpet.draws import open  # noqa: E402
from limpet.errors import (  # noqa: E402
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
from limpet.geometry.start import find_start  # noqa: E402
from limpet.handover import as_blackjax, to_inference_data  # noqa: E402
from limpet.kernels import SAS, Lifted, RandomWalk, SurfaceSampler  # noqa: E402
from limpet.partition import ladder, partition_ratio  # noqa: E402
from limpet.report.diagnostics import autocorrelation_time  # noqa: E402
from limpet.report.plot import plot  # noqa: E402
from limpet.report.progress import Progress  # noqa: E402
from limpet.report.summary import Summary, summary  # noqa: E402
from limpet.sampling import resume, sample  # noqa: E402
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
    "SlowPathWarning",
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
    "to_inference_data",
]


def __dir__():
    return __all__
