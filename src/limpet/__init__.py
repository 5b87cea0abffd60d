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

Importing limpet turns on JAX's 64-bit mode (`jax_enable_x64`) for the whole process: a point cannot
be held on a surface with the seven digits of single precision. Nothing else happens: JAX itself is
imported when something of limpet is first used, and may still be told which devices to use; a
process may fork, and no file is written.
When a target is first used, JAX is told to keep compiled programs between processes, in the user's
cache folder, unless it was told of another: `LIMPET_CACHE` names a folder, or none if it is empty.
"""

import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limpet.api import *  # noqa: F403

DOUBLES = "JAX_ENABLE_X64"

if "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_enable_x64", True)
    _restore = None
else:  # JAX reads it when it is imported, which takes seconds that `limpet --help` does not have
    _restore = os.environ.get(DOUBLES, "")
    os.environ[DOUBLES] = "true"


def __getattr__(name: str) -> Any:
    if name != "__all__" and name.startswith("__"):
        raise AttributeError(f"module 'limpet' has no attribute {name!r}")
    if importlib.util.find_spec(f"limpet.{name}"):
        return importlib.import_module(f"limpet.{name}")
    return globals().setdefault(name, getattr(_load(), name))


def __dir__() -> list[str]:
    return _load().__all__


def _load() -> Any:
    """The public names; with them comes JAX, after which other processes need not be told of it."""
    global _restore
    api = importlib.import_module("limpet.api")
    if _restore:
        os.environ[DOUBLES] = _restore
    elif _restore == "":
        os.environ.pop(DOUBLES, None)
    _restore = None
    return api
