"""Doors for models that people already have, in NumPyro or PyMC."""

from limpet.models.numpyro import from_numpyro
from limpet.models.pymc import from_pymc
from limpet.models.target import ModelTarget

__all__ = ["ModelTarget", "from_numpyro", "from_pymc"]
