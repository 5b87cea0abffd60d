"""Shapes are checked as they are written; what one process has compiled is there for the others.

Most of what tests compile runs for a moment: it is compiled quickly, and runs at half its speed.
Tests marked `optimized` have programs as users do: those of the compiler, and those that sample for
long.
"""

import gc
import os
import shutil
import signal
import sys
import tempfile
from importlib.metadata import version

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

QUICK = "JAX_DISABLE_MOST_OPTIMIZATIONS"
os.environ[QUICK] = "1"  # here, before JAX is imported, and in the processes that tests start
# XLA's older way to write machine code takes half the time; later releases have only the newer one
if version("jaxlib").startswith("0.10."):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
OURS = "JAX_COMPILATION_CACHE_DIR" not in os.environ
if OURS:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="limpet-tests-")
    # as limpet has it where it chooses the folder; JAX would keep only what takes a second
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.02"

# Every array that goes in or out of these has the shape it says. (What users call checks its
# arguments itself, and refuses them in words.)
assert "limpet" not in sys.modules, "limpet was imported before its shapes could be checked"
INSIDE = ["limpet.kernels", "limpet.geometry.linalg", "limpet.geometry.metric"]
install_import_hook([*INSIDE, "limpet.geometry.projection"], "beartype.beartype")

# The same examples in every run; a busy machine is no failure.
settings.register_profile(
    "limpet", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("limpet")

# JAX makes objects by the million, most of which stay: looking for those that do not is dear
gc.set_threshold(100_000, 20, 50)
# processes that tests start need not compile limpet's modules each
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# a suite started in the background ignores Ctrl-C, and so would the programs that it starts
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Tests draw little: how well chains mix is tested apart."""
    config.addinivalue_line("filterwarnings", "ignore::limpet.MixingWarning")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Programs of tests that are marked are compiled as users have them, those of others quickly.

    What was compiled in the other way is forgotten: neighbours should be of one kind.
    """
    yes = item.get_closest_marker("optimized") is not None
    if yes == (os.environ[QUICK] == "0"):
        return
    os.environ[QUICK] = str(int(not yes))
    import jax  # after limpet, which chooses how it computes

    from limpet.engine import rows
    from limpet.run import tile

    jax.config.update(QUICK.lower(), not yes)
    jax.clear_caches()
    rows._compile.cache_clear()
    tile._compile.cache_clear()


def pytest_unconfigure():
    """Leave nothing behind."""
    if OURS:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
