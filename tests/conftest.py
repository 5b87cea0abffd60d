"""Programs that one process of the suite has compiled are there for the others."""

import os
import shutil
import signal
import tempfile

OURS = "JAX_COMPILATION_CACHE_DIR" not in os.environ
if OURS:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="limpet-tests-")

# a suite started in the background ignores Ctrl-C, and so would the programs that it starts
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure():
    """Leave nothing behind."""
    if OURS:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
