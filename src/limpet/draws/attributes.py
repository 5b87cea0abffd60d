"""The attributes of a run: mappings in Python and in zarr, JSON text in netCDF."""

import contextlib
import json
import numbers

import numpy as np
import xarray as xr

from limpet.errors import InputError

NESTED = ("parameters", "acceptance", "counts")  # those that other functions of limpet read


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


def nest(attributes: dict) -> dict:
    """Attributes whose mappings netCDF can hold, too."""
    return {
        name: NestedAttribute(value) if isinstance(value, dict) else value
        for name, value in attributes.items()
    }


def attributes_of(draws: xr.DataTree) -> dict:
    """The attributes of draws; what a netCDF file holds as JSON text is a mapping again."""
    found = {str(name): _read(value) for name, value in draws.attrs.items()}
    for name in NESTED:
        if name in found and not isinstance(found[name], dict):
            raise InputError(
                f"draws.attrs[{name!r}]={draws.attrs[name]!r}: expected a mapping, or its JSON"
                " text, as limpet.sample made it."
            )
    return found


def _read(value):
    if isinstance(value, str) and value.startswith("{"):
        with contextlib.suppress(ValueError):  # a note of the user's own
            return json.loads(value)
    return value
