"""The attributes of a run: mappings in Python and in zarr, JSON text in netCDF."""

import json
import numbers

import numpy as np
import xarray as xr

from limpet.errors import InputError


class NestedAttribute(dict):
    """A mapping that netCDF can hold, where an attribute is a number, a text or an array.

    It is a dict for every reader, and its JSON text when it is turned into an array, which is what
    the libraries that write netCDF do with attributes.
    """

    def __array__(self, dtype=None, copy=None):
        return np.array(json.dumps(self), "S")  # JSON is ASCII; HDF5 does not take NumPy's "U"


# xarray asks `isinstance` before it hands an attribute on to be written, and of the types that it
# lets pass this one alone can be joined
numbers.Number.register(NestedAttribute)


def nested(attributes: dict) -> dict:
    """Attributes whose mappings netCDF can hold, too."""
    return {
        name: NestedAttribute(value) if isinstance(value, dict) else value
        for name, value in attributes.items()
    }


def attributes_of(draws: xr.DataTree) -> dict:
    """The attributes of draws; what a netCDF file holds as JSON text is a mapping again."""
    return {str(name): _read(name, value) for name, value in draws.attrs.items()}


def _read(name, value):
    if not (isinstance(value, str) and value.startswith("{")):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise InputError(
            f"draws.attrs[{name!r}] is no JSON text ({error}): expected it as limpet.sample"
            " returned it, or as it was in the file."
        ) from None
