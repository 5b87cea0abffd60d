"""Shapes are checked as they are written; what one process has compiled is there for the others."""

import os
import shutil
import signal
import sys
import tempfile

from jaxtyping import install_import_hook

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

# a suite started in the background ignores Ctrl-C, and so would the programs that it starts
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Tests draw little: how well chains mix is tested apart."""
    config.addinivalue_line("filterwarnings", "ignore::limpet.MixingWarning")


def pytest_unconfigure():
    """Leave nothing behind."""
    if OURS:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
