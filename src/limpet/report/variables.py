"""The variables of a run by name, and their measures, from draws that are read in pieces."""

import functools

import numpy as np
import xarray as xr

from limpet.layout import labels
from limpet.report.diagnostics import Measures, measure


def measure_variables(posterior: xr.Dataset) -> tuple[list[str], Measures]:
    """The scalar variables of these draws, and the measures of each; nothing stays loaded."""
    names, found = [], []
    for name, array in posterior.data_vars.items():
        chains, draws, *shape = array.shape
        own = labels(str(name), tuple(shape))
        if own:
            names += own
            found.append(measure(functools.partial(_read, array), chains, draws, len(own)))
    return names, Measures(*map(np.concatenate, zip(*found, strict=True)))


def _read(array: xr.DataArray, chains: slice, draws: slice) -> np.ndarray:
    """The values of these chains and draws, (chain, draw, variable)."""
    part = array.isel(chain=chains, draw=draws).values
    return part.reshape(*part.shape[:2], -1).astype(float, copy=False)
