"""The users' own names of the axes of their variables, and the labels along these.

What is given is refused unless the result can have it; what a store has of it is not trusted more.
"""

import collections
import dataclasses
import json
import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import xarray as xr

from limpet.errors import InputError
from limpet.layout import Layout, axes_of

TAKEN = ("chain", "draw")
LONGEST_TEXT = 300  # letters of a name or a label
MOST_BYTES = 2**22  # of all labels in a store: half of the longest zarr.json that is read
INDENT = 20  # bytes around each label there
SHOWN = 200  # letters of a value in a message
LABELS = "strings, or finite numbers of at most 64 bits"


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """Names of axes by variable, and labels by axis; where there are none, limpet has its own."""

    dims: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    coords: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, layout: Layout, dims: Any, coords: Any) -> "Coordinates":
        """What a user gave for the variables of a layout; either may be None."""
        named = {} if dims is None else _read_dims(layout, dims)
        lengths = _lengths(layout, named)
        return cls(named, {} if coords is None else _read_coords(lengths, coords))

    @classmethod
    def from_json(cls, layout: Layout, structure: Any) -> "Coordinates":
        """What `to_json` wrote."""
        if type(structure) is dict and structure.keys() == {"dims", "coords"}:
            self = cls.of(layout, structure["dims"], structure["coords"])
            if self and self.to_json() == structure:
                return self
        raise InputError(f"{_shown(structure)}: expected dims and coords, as limpet writes them.")

    def to_json(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "dims": {name: [*axes] for name, axes in self.dims.items()},
            "coords": {axis: [*labels] for axis, labels in self.coords.items()},
        }

    def __bool__(self) -> bool:
        """Whether there is anything that limpet would not say by itself."""
        return bool(self.dims or self.coords)

    def axes(self, layout: Layout) -> list[tuple[str, ...]]:
        """The names of each variable's own axes."""
        variables = zip(layout.names, layout.axes, strict=True)
        return [self.dims.get(name, usual) for name, usual in variables]

    def check_storable(self) -> None:
        """Refuse more labels than a store has room for."""
        labels = [label for axis in self.coords.values() for label in axis]
        size = sum(len(json.dumps(label)) + INDENT for label in labels)
        if size > MOST_BYTES:
            raise InputError(
                f"coords has {len(labels):,} labels, which fill {size:,} bytes of a store:"
                f" expected at most {MOST_BYTES:,}. Whole numbers from 0 on need no labels; or"
                " give labels to the result, draws.posterior[name].assign_coords(...)."
            )


def dataset(
    arrays: Mapping[str, Any],
    lead: tuple[str, ...],
    dims: Mapping[str, tuple[str | None, ...]],
    coords: Mapping[str, Sequence[Any]],
) -> xr.Dataset:
    """Arrays with the names of their axes, after those that lead, and labels along all of them.

    Where `dims` has None, too few names or nothing, and where `coords` has nothing, limpet names
    and counts by itself; of too many names the first are taken: a log density has fewer axes.
    """
    variables, labels = {}, {}
    for name, array in arrays.items():
        usual = axes_of(name, array.shape[len(lead) :])
        given = dims.get(name, ())[: len(usual)]
        own = [*(known or axis for known, axis in zip(given, usual, strict=False))]
        axes = (*lead, *own, *usual[len(own) :])
        variables[name] = (axes, array)
        for axis, size in zip(axes, array.shape, strict=True):
            labels[axis] = _as_array(coords[axis]) if axis in coords else np.arange(size)
    return xr.Dataset(variables, labels)


def _as_array(labels):
    """Strings as objects, since zarr warns of NumPy's own."""
    words = any(isinstance(label, str) for label in labels)
    return np.array(labels, object) if words else labels


def _read_dims(layout, given) -> dict[str, tuple[str, ...]]:
    """Names of axes by variable."""
    if not isinstance(given, Mapping):
        raise InputError(
            f"dims={_shown(given)}: expected a dict from variables to lists of names, such as"
            f" {{{layout.names[0]!r}: {[*layout.axes[0]]!r}}}."
        )
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    for name in given:
        if name not in shapes:
            raise InputError(
                f"dims has {_shown(name)}, which is no variable: expected some of {_all(shapes)}."
            )
    return {name: _read_names(name, names, shapes) for name, names in given.items()}


def _read_names(variable, given, shapes) -> tuple[str, ...]:
    """The names of one variable's axes."""
    about = f"dims of {variable!r}={_shown(given)}"
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{about}: expected a list of strings, a name for each axis.")
    shape = shapes[variable]
    if len(names) != len(shape):
        raise InputError(
            f"{about} has {len(names)} name{'s' * (len(names) != 1)}, but {variable!r} has shape"
            f" {shape}: expected {len(shape)}, one for each axis."
        )
    for name in names:
        if not name or not name.isprintable() or "/" in name or len(name) > LONGEST_TEXT:
            raise InputError(
                f"{about}: expected printable names without a '/', of 1 to {LONGEST_TEXT} letters."
            )
        if name in TAKEN:
            raise InputError(f"{about}: {name!r} is an axis of every variable, choose another.")
        if name in shapes:
            raise InputError(f"{about}: {name!r} is the name of a variable, choose another.")
        if names.count(name) > 1:
            raise InputError(f"{about} has {name!r} twice: expected a name of its own for each.")
    return tuple(str(name) for name in names)


def _lengths(layout, named) -> dict[str, int]:
    """The length of each axis; refused if two variables differ about it."""
    lengths, first = {}, {}
    for name, shape, usual in zip(layout.names, layout.shapes, layout.axes, strict=True):
        for axis, size in zip(named.get(name, usual), shape, strict=True):
            if lengths.setdefault(axis, size) != size:
                raise InputError(
                    f"dims: {axis!r} has length {lengths[axis]} in {first[axis]!r} but {size} in"
                    f" {name!r}: expected one length, or two names."
                )
            first.setdefault(axis, name)
    return lengths


def _read_coords(lengths, given) -> dict[str, list]:
    """Labels by axis; those that are as limpet would count are left out."""
    if not isinstance(given, Mapping):
        raise InputError(
            f"coords={_shown(given)}: expected a dict from names of axes to their labels."
        )
    for axis in given:
        if axis not in lengths:
            known = f"some of {_all(lengths)}" if lengths else "none, for they have no axes"
            raise InputError(
                f"coords has {_shown(axis)}, which is no axis of the variables: expected {known};"
                " dims gives them names."
            )
    read = {axis: _read_labels(axis, labels, lengths[axis]) for axis, labels in given.items()}
    return {axis: labels for axis, labels in read.items() if not _counted(labels)}


def _counted(labels) -> bool:
    return labels == [*range(len(labels))] and float not in map(type, labels)


def _read_labels(axis, given, length) -> list:
    """The labels of one axis as plain strings, whole numbers or doubles."""
    about = f"coords of {axis!r}={_shown(given)}"
    if hasattr(given, "__array__"):
        array = np.asarray(given)
        if array.ndim != 1 or array.dtype.kind not in "iufUTO":  # dates would turn into numbers
            raise InputError(
                f"{about} has shape {array.shape} and type {array.dtype}: expected one axis of"
                f" {LABELS}; of dates take .astype(str)."
            )
        given = array.tolist()
    unordered = isinstance(given, str | bytes | Mapping | set | frozenset)
    if unordered or not isinstance(given, Sized) or not isinstance(given, Iterable):
        raise InputError(f"{about}: expected a list of {length} labels.")
    if len(given) != length:
        raise InputError(
            f"{about} has {len(given)} label{'s' * (len(given) != 1)}: expected {length}, as long"
            " as the axis is."
        )
    labels = [_plain(about, label) for label in given]
    kinds = {type(label) for label in labels}
    if str in kinds and len(kinds) > 1:
        raise InputError(f"{about} has strings and numbers: expected labels of one kind.")
    if float in kinds:
        labels = [float(label) for label in labels]
    (often, times), *_ = collections.Counter(labels).most_common(1) or [(None, 1)]
    if times > 1:
        raise InputError(f"{about} has {_shown(often)} {times} times: expected labels that differ.")
    return labels


def _plain(about, label) -> str | int | float:
    """A label as JSON has it."""
    if isinstance(label, str):
        if label.isprintable() and len(label) <= LONGEST_TEXT:
            return str(label)
        raise InputError(
            f"{about}: {_shown(label)} cannot be printed, or is longer than {LONGEST_TEXT} letters:"
            " expected short labels on one line."
        )
    if not isinstance(label, bool | np.timedelta64):  # whole numbers to Python, and to NumPy
        if isinstance(label, int | np.integer) and -(2**63) <= label < 2**63:
            return int(label)
        if isinstance(label, float | np.floating) and math.isfinite(label):
            return float(label)
    raise InputError(
        f"{about}: {_shown(label)}, a {type(label).__name__}, cannot be a label: expected {LABELS};"
        " of anything else take str(...)."
    )


def _all(names) -> str:
    return _shown([*names])[1:-1]


def _shown(value) -> str:
    """A value in a message, whose ends are enough if it is long."""
    short = reprlib.Repr()  # which gets to the bottom of nothing that a file may have
    short.maxstring = short.maxother = SHOWN
    return short.repr(value)
