"""Shapes are checked as they are written; what one process has compiled is there for the others."""

import os
import shutil
import signal
import tempfile

from jaxtyping import install_import_hook

OURS = "JAX_COMPILATION_CACHE_DIR" not in os.environ
if OURS:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="limpet-tests-")

# before limpet is imported: every array that goes in or out of these has the shape it says
install_import_hook(
    ["limpet.kernels", "limpet.geometry", "limpet.engine", "limpet.target", "limpet.target_checks"],
    "beartype.beartype",
)

# a suite started in the background ignores Ctrl-C, and so would the programs that it starts
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure():
    """Leave nothing behind."""
    if OURS:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
