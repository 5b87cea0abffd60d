"""`limpet.open`: the draws of a store, read as they are used."""

import json
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from limpet.draws import arrays, states
from limpet.draws.home import DamagedError, Home
from limpet.draws.tree import tree as tree_of
from limpet.draws.where import as_home
from limpet.errors import LimpetWarning, StoreError, warn
from limpet.run.specification import FORMAT, RunSpecification, SpecificationError

LONGEST_JSON = 2**23  # bytes of a zarr.json that is read; parsed, it takes ten times as much


def open(store) -> xr.DataTree:
    """The draws of a store, read from disk as they are used; also while its run is going on.

    Parameters
    ----------
    store : str, path or zarr store
        What `limpet.sample(store=...)` was given.

    Returns
    -------
    xarray.DataTree
        As from `limpet.sample`: the draws that every chain had at the last commit. If the state of
        some chains is damaged, a warning names them, and the others are shown.

    Examples
    --------
    >>> import tempfile
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)
    >>> store = tempfile.mkdtemp() + "/circle.zarr"
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=4, seed=1, store=store)
    >>> limpet.open(store).posterior["x"].shape
    (4, 200, 2)
    """
    return open_home(as_home(store))


def open_home(home: Home) -> xr.DataTree:
    """The draws of a store that is there."""
    home = home.anchored()  # draws are read later, from any folder
    run = specification_of(home)
    # before the draws, which there are at least as many of
    found, lost = _states(home, run)
    draws = min(int(state.draws(run, g).min()) for g in run.groups for state in found.values())
    draws = min(draws, run.draws)
    _check_there(home, run, draws)
    stored = {
        (group, name): indexing.LazilyIndexedArray(_Draws(home, array, run.key, draws))
        for (group, name), array in arrays.draw_arrays(run).items()
    }
    by_group = {
        group: {name: array for (of, name), array in stored.items() if of == group}
        for group in (*run.groups, "sample_stats")
    }
    figures = [found.get(k, states.blank(run, k)).arrays for k in range(run.tiles)]
    keep = None
    if lost:
        keep = np.array([chain // run.width not in lost for chain in range(run.chains)])
    return tree_of(by_group, run, figures, keep)


def read_root(home: Home) -> dict[str, Any]:
    """What the zarr.json of a store has for attributes."""
    wrong = "it has no attributes of limpet's"
    try:
        root = json.loads(home.read("zarr.json", most=LONGEST_JSON))
        attributes = root.get("attributes") if type(root) is dict else None
        if type(attributes) is dict and type(attributes.get("limpet")) is dict:
            return attributes
    except DamagedError as error:
        if not home.exists():
            raise StoreError(f"There is no store {str(home)!r}: check the path.") from None
        wrong = str(error)
    except (ValueError, RecursionError):
        wrong = "it is not JSON"
    raise StoreError(
        f"{str(home)!r} is not a limpet store, or its zarr.json is damaged ({wrong}): expected a"
        " store that limpet.sample(store=...) made."
    )


def specification_of(home: Home) -> RunSpecification:
    """What a store says of its run; refused if it is not a store that this limpet can read."""
    entries = read_root(home)["limpet"]
    version = entries.get("format")
    if version != FORMAT:
        raise StoreError(
            f"store={str(home)!r} is of format {str(version)[:20]!r}, written by limpet"
            f" {str(entries.get('limpet_version'))[:20]!r}; this limpet reads format {FORMAT}: use"
            " the version that wrote it."
        )
    try:
        return RunSpecification.from_json(entries)
    except SpecificationError as error:
        raise StoreError(
            f"store={str(home)!r}: what its zarr.json says of the run is damaged: {error}. Put back"
            " the file as limpet wrote it."
        ) from None


def damaged_tile(home: Home, run: RunSpecification, tile: int, wrong: list[str]) -> str:
    """What to say of a tile of which no state is left."""
    chains = run.chains_of(tile)
    return (
        f"store={str(home)!r}: what is stored of chains {chains[0]} to {chains[-1]} is damaged"
        f" ({'; '.join(wrong)})"
    )


def never_written(home: Home, run: RunSpecification, tile: int) -> bool:
    """Whether a tile has no state because it never had one."""
    there = {*home.names_in(states.FOLDER)}
    if not there.isdisjoint(f"{tile}.{slot}" for slot in states.SLOTS):
        return False
    mine = arrays.draw_arrays(run)["sample_stats", "step"].place(tile, 0).rpartition("/")
    stem = mine[2].removesuffix("0")  # c.TILE.
    return not any(name.startswith(stem) for name in home.names_in(mine[0]))


def _states(home, run):
    """The newest state of each tile, and the tiles of which none is left."""
    found, lost = {}, {}
    for tile in range(run.tiles):
        intact, wrong = states.read_all(home, run, tile)
        if intact:
            found[tile] = intact[0].essentials(run, tile)
        elif never_written(home, run, tile) and _starts_fit(home, run):
            found[tile] = states.blank(run, tile)
        else:
            lost[tile] = damaged_tile(home, run, tile, wrong)
            if not _starts_fit(home, run):  # so nothing tells that there are so many chains
                break
    remedy = "limpet.resume(store, target) makes their draws again, bit for bit"
    if lost and (not found or not _starts_fit(home, run)):
        raise StoreError(f"{next(iter(lost.values()))}: {remedy}.")
    for message in lost.values():
        warn(f"{message}: they are left out. {remedy[0].upper()}{remedy[1:]}.", LimpetWarning)
    return found, lost


def _starts_fit(home, run):
    """Whether the store holds what so many chains began with."""
    array = arrays.start_array(run)
    return home.size_of(array.place(0, 0)) == 8 * array.shape[0] * array.shape[1] + arrays.TAIL


def _check_there(home, run, draws):
    """Refuse states that tell of many more draws than there are files for."""
    needed = run.tiles * (draws // run.chunk)
    if len(home.names_in("sample_stats/step")) < needed // 2:
        raise StoreError(
            f"store={str(home)!r}: it should have {draws:,} draws per chain, but most files of"
            " 'sample_stats/step' are missing. Put them back; `limpet check` lists what is intact."
        )


class _Draws(BackendArray):
    """Draws on disk, as xarray reads them; what cannot be read is said plainly."""

    def __init__(self, home: Home, array: arrays.StoredArray, key: bytes, draws: int):
        self.home, self.array, self.key = home, array, key
        self.shape = (array.shape[0], draws, *array.shape[2:])
        self.dtype = np.dtype(array.dtype)

    def __getitem__(self, key):
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key):
        """Numbers by slices, indices or arrays of indices, one for each axis."""
        every = [_indices(k, size) for k, size in zip(key, self.shape, strict=True)]
        chains, draws, *rest = every
        result = np.empty([len(indices) for indices in every], self.dtype)
        width, length = self.array.chunk_shape[:2]
        if result.size:
            for tile in np.unique(chains // width):
                for k in np.unique(draws // length):
                    rows, columns = chains // width == tile, draws // length == k
                    inside = chains[rows] - tile * width, draws[columns] - k * length, *rest
                    part = self._chunk(int(tile), int(k))[_selection(inside)]
                    if arrays.missing(part).any():
                        self._refuse(int(tile), int(k), "has fewer draws than there should be")
                    result[_selection((np.flatnonzero(rows), np.flatnonzero(columns)))] = part
        alone = tuple(0 if isinstance(k, int | np.integer) else slice(None) for k in key)
        return result[alone]

    def _chunk(self, tile, k):
        try:
            return self.array.read(self.home, self.key, tile, k)
        except DamagedError as error:
            self._refuse(tile, k, str(error))

    def _refuse(self, tile, k, why):
        """Say which draws cannot be read, and which can."""
        width, length = self.array.chunk_shape[:2]
        first, last = k * length, min((k + 1) * length, self.shape[1]) - 1
        chains = f"{tile * width} to {min((tile + 1) * width, self.shape[0]) - 1}"
        raise StoreError(
            f"store={str(self.home)!r}: draws {first} to {last} of chains {chains} in"
            f" {self.array.name!r} cannot be read: the file is damaged or missing ({why})."
            f" Earlier draws can: use .isel(draw=slice(0, {first})). To make them again, use"
            " limpet.resume(store, target)."
        )


def _selection(axes):
    """What selects these indices of each axis; slices, which are fast, where that can be."""
    if all((np.diff(indices) == 1).all() for indices in axes):
        return tuple(slice(indices[0], indices[-1] + 1) for indices in axes)
    return np.ix_(*axes)


def _indices(key, size):
    if isinstance(key, slice):
        return np.arange(*key.indices(size))
    indices = np.atleast_1d(np.asarray(key))
    if len(indices) and not -size <= indices.min() <= indices.max() < size:
        raise IndexError(f"index {indices.min()} or {indices.max()}, of {size}")
    return np.where(indices < 0, indices + size, indices)
