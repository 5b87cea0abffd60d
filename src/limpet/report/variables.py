"""The variables of a run by name, and their measures, from draws that are read in pieces."""

import functools
import itertools

import numpy as np
import xarray as xr

from limpet.report.diagnostics import Measures, measure


def names_of(array: xr.DataArray) -> list[str]:
    """A name for each number of a variable, as ArviZ has them: x[0], x[1], or by their labels."""
    axes = [map(str, array[axis].values) for axis in array.dims[2:]]
    return [
        f"{array.name}[{', '.join(at)}]" if at else str(array.name)
        for at in itertools.product(*axes)
    ]


def every_name(posterior: xr.Dataset) -> list[str]:
    """A name for each number of a point."""
    return [name for array in posterior.data_vars.values() for name in names_of(array)]


def measure_variables(posterior: xr.Dataset) -> tuple[list[str], Measures]:
    """The scalar variables of these draws, and the measures of each; nothing stays loaded."""
    names, found = [], []
    for array in posterior.data_vars.values():
        chains, draws = array.shape[:2]
        own = names_of(array)
        if own:
            names += own
            found.append(measure(functools.partial(_read, array), chains, draws, len(own)))
    return names, Measures(*map(np.concatenate, zip(*found, strict=True)))


def _read(array: xr.DataArray, chains: slice, draws: slice) -> np.ndarray:
    """The values of these chains and draws, (chain, draw, variable)."""
    part = array.isel(chain=chains, draw=draws).values
    return part.reshape(*part.shape[:2], -1).astype(float, copy=False)
