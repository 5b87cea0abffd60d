"""Draws on disk: a zarr folder that a run writes as it goes, and goes on from after anything.

    posterior/x, sample_stats/lp, ...   draws, in chunks of one tile's chains and some draws
    limpet/tiles                        one row of bytes a tile: all it needs to go on
    limpet/start                        where the chains began
    zarr.json                           what the run is, as JSON: nothing in a store is ever run

zarr replaces files as a whole, so a chunk is either the old one or the new one. A commit writes a
tile's draws first and its row of `limpet/tiles` last: that row says how many draws there are, and
steps made since the last one are made again, bit for bit, when the run is resumed.
"""

import contextlib
import errno
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from limpet import results
from limpet.collect import Chunk
from limpet.errors import InputError, StoreError
from limpet.layout import Layout

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

FORMAT = 3
CHUNK_BYTES = 2**22
SHORTEST, LONGEST = 16, 4096  # draws of a chunk
STATS = {"lp": np.float64, "step": np.int64}
MISSING = {"f": np.nan, "i": -1}  # what no draw ever is


class Store:
    """A store that a run writes to; only one process at a time can hold it."""

    limit = np.iinfo(np.int64).max  # chains ahead of the others keep what they drew

    def __init__(self, path: Path):
        import zarr  # slow to import, and wanted here only

        self.path = path
        self.about = read_about(path)
        self.length = self.about["chunk"]
        self.layout = Layout.from_json(self.about["layout"])
        with _explained(path, "write to"):
            self.folder = _locked(path)
            self.root: Any = zarr.open_group(path, mode="r+")
            self.arrays = {
                (group, name): _array(path, self.root, f"{group}/{name}")
                for group, names in _contents(self.about["groups"], self.layout.names).items()
                for name in names
            }
            self.tiles = _array(path, self.root, "limpet/tiles")
        self.growing = threading.Lock()
        self.committed = {}  # draws of a group and its first chain, when the store was opened

    @classmethod
    def create(cls, path: Path, about: dict, starts, snapshot: dict) -> "Store":
        """A new store for the run that `about` tells of; a tile will write such a snapshot."""
        layout = Layout.from_json(about["layout"])
        width, chains = about["width"], about["chains"]
        fitting = CHUNK_BYTES // (8 * width * (layout.size + len(STATS)))
        length = int(np.clip(fitting, SHORTEST, LONGEST))
        import zarr
        from zarr.codecs import Crc32cCodec

        fields = [[name, array.dtype.str, array.shape] for name, array in snapshot.items()]
        about = about | {"format": FORMAT, "chunk": length, "snapshot": fields}
        axes = dict(zip(layout.names, zip(layout.shapes, layout.axes, strict=True), strict=True))
        room = -(-about["draws"] // length) * length
        draft = path.parent / f".{path.name}.{os.getpid()}"
        with _explained(path, "create"):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                # under another name until it is complete: a store is either whole or not there
                root = zarr.create_group(draft, attributes={"limpet": about})
                for group, names in _contents(about["groups"], layout.names).items():
                    for name in names:
                        shape, own = axes[name] if group in about["groups"] else ((), ())
                        dtype = np.dtype(STATS[name] if group == "sample_stats" else float)
                        root.create_array(
                            f"{group}/{name}",
                            shape=(chains, room, *shape),
                            chunks=(width, length, *(max(size, 1) for size in shape)),
                            dtype=dtype,
                            fill_value=MISSING[dtype.kind],
                            compressors=[Crc32cCodec()],
                            dimension_names=["chain", "draw", *own],
                        )
                row = len(_packed(snapshot))
                root.create_array(
                    "limpet/tiles",
                    shape=(-(-chains // width), row),
                    chunks=(1, row),
                    dtype=np.uint8,
                    compressors=[Crc32cCodec()],
                )
                root.create_array("limpet/start", data=starts, compressors=[Crc32cCodec()])
                if path.exists():  # made by another process since it was looked for
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                draft.rename(path)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        return cls(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.folder is not None:
            os.close(self.folder)

    @property
    def starts(self):
        """Where the chains began."""
        return _read(self.path, _array(self.path, self.root, "limpet/start"), ...)

    def snapshot(self, tile: int):
        """What a tile needs to go on, as it was last committed; all zero if it never was."""
        snapshot = _snapshot(self.path, self.about, self.tiles, tile)
        for group in self.about["groups"]:
            draws = snapshot[f"{group}_visits"].max() // self.about["thin"]
            self.committed[group, tile * self.about["width"]] = draws
        return snapshot

    def drawn(self, first_chain: int, chains: int, draws: int):
        """The draws of these chains again, a chunk at a time: (number of the first, points)."""
        for first in range(0, draws, self.length):
            chunk = self.chunk("posterior", first_chain, chains, first // self.length)
            yield first, chunk.x

    def extend(self, draws: int):
        """Ask for more draws."""
        with _explained(self.path, "write to"):
            self.about["draws"] = draws
            self.root.attrs["limpet"] = self.about

    def chunk(self, group, first_chain, chains, k):
        """The k-th chunk of these chains' draws, with what is already stored of it."""
        chunk = Chunk(
            np.full((chains, self.length, self.layout.size), np.nan),
            np.full((chains, self.length), np.nan),
            np.full((chains, self.length), -1),
        )
        if k * self.length < self.committed.get((group, first_chain), 0):
            for array, part in self._places(group, chunk):
                part[...] = _read(self.path, array, self._box(first_chain, chains, k))
        return chunk

    def prepared(self, kept: dict) -> list:
        """What of a tile's draws has to be written, apart from what goes on changing.

        Chunks that are complete are let go of.
        """
        writes = []
        for group, draws in kept.items():
            complete = draws.draws.min() // self.length
            for k, chunk in draws.chunks.items():
                for array, part in self._places(group, chunk):
                    box = self._box(draws.first_chain, len(part), k)
                    writes.append((array, box, part if k < complete else part.copy()))
            draws.chunks = {k: chunk for k, chunk in draws.chunks.items() if k >= complete}
        return writes

    def commit(self, tile: int, writes: list, snapshot: dict):
        """Bring a tile up to date: its draws, then what it needs to go on."""
        self._still_there()
        try:
            with _explained(self.path, "write to"):
                for array, box, part in writes:
                    self._grow(array, box[1].stop)
                    array[box] = part
                self.tiles[tile] = _packed(snapshot)
        except StoreError:
            self._still_there()  # if it is not, that is what to say
            raise

    def _box(self, first_chain, chains, k):
        draws = slice(k * self.length, (k + 1) * self.length)
        return slice(first_chain, first_chain + chains), draws

    def _places(self, group, chunk):
        """The arrays of a group, each with its part of a chunk, which is a view of it."""
        pieces = zip(self.layout.names, self.layout.pieces(chunk.x), strict=True)
        places = [(self.arrays[group, name], piece) for name, piece in pieces]
        if group == "posterior":
            stats = {"lp": chunk.lp, "step": chunk.step}
            places += [(self.arrays["sample_stats", name], stats[name]) for name in STATS]
        return places

    def _grow(self, array, draws):
        with self.growing:
            if array.shape[1] < draws:
                array.resize((array.shape[0], draws, *array.shape[2:]))

    def _still_there(self):
        """Refuse to go on in a folder that was removed: zarr would quietly make it anew."""
        try:
            now = os.stat(self.path)
            same = self.folder is None or os.path.samestat(now, os.fstat(self.folder))
        except FileNotFoundError:
            same = False
        if not same:
            raise StoreError(
                f"store={str(self.path)!r} was removed or replaced while the run was writing to it."
                " Start again with a store that nothing else touches."
            )


def open(store) -> xr.DataTree:
    """The draws of a store, read from disk as they are used; also while its run is going on.

    Parameters
    ----------
    store : str or path
        What `limpet.sample(store=...)` was given.

    Returns
    -------
    xarray.DataTree
        As from `limpet.sample`: the draws that every chain had at the last commit.

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
    import zarr

    path = as_path(store)
    about = read_about(path)
    layout = Layout.from_json(about["layout"])
    root: Any = zarr.open_group(path.absolute(), mode="r")  # read later, maybe from another folder
    tiles = _array(path, root, "limpet/tiles")
    # before the draws, which there are at least as many of
    snapshots = [_snapshot(path, about, tiles, k) for k in range(tiles.shape[0])]
    visits = [s[f"{group}_visits"].min() for group in about["groups"] for s in snapshots]
    draws = min(about["draws"], int(min(visits)) // about["thin"])
    arrays = {
        group: {
            name: indexing.LazilyIndexedArray(
                _StoredArray(path, _array(path, root, f"{group}/{name}"), draws)
            )
            for name in names
        }
        for group, names in _contents(about["groups"], layout.names).items()
    }
    return results.tree(arrays, layout, snapshots, about)


def as_path(store) -> Path:
    """The path of a store, as an argument."""
    if not isinstance(store, str | os.PathLike) or not str(store):
        raise InputError(f"store={store!r}: expected the path of a folder, such as 'run.zarr'.")
    return Path(store)


def read_about(path: Path) -> dict:
    """What a store says of its run; refused if it is not a store that this limpet can read."""
    import zarr

    if not path.exists():
        raise StoreError(f"There is no store {str(path)!r}: check the path.")
    try:
        about: Any = zarr.open_group(path, mode="r").attrs["limpet"]
        version = about["format"]
    except Exception as error:
        raise StoreError(
            f"{str(path)!r} is not a limpet store, or its zarr.json is damaged"
            f" ({type(error).__name__}: {error}): expected a folder that limpet.sample(store=...)"
            " made."
        ) from None
    if version != FORMAT:
        raise StoreError(
            f"store={str(path)!r} is of format {version}, written by limpet"
            f" {about.get('limpet_version')}; this limpet reads format {FORMAT}: use the version"
            " that wrote it."
        )
    return about


class _StoredArray(BackendArray):
    """Draws on disk, as xarray reads them; what cannot be read is said plainly."""

    def __init__(self, path, array, draws):
        self.path, self.array = path, array
        self.shape = (array.shape[0], draws, *array.shape[2:])
        self.dtype = array.dtype

    def __getitem__(self, key):
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key):
        # the array may be longer than what is committed: nothing beyond is ever asked for
        key = tuple(
            slice(*k.indices(size)) if isinstance(k, slice) else k
            for k, size in zip(key, self.shape, strict=True)
        )
        try:
            read = self.array.oindex[key]
            if not _missing(read).any():
                return read
        except Exception:
            pass
        raise StoreError(self._damage())

    def _damage(self):
        """Which draws cannot be read."""
        width, length = self.array.chunks[:2]
        for draw in range(0, self.shape[1], length):
            for chain in range(0, self.shape[0], width):
                last = min(draw + length, self.shape[1])
                try:
                    if not _missing(self.array[chain : chain + width, draw:last]).any():
                        continue
                except Exception:
                    pass
                return (
                    f"store={str(self.path)!r}: draws {draw} to {last - 1} of chains {chain} to"
                    f" {min(chain + width, self.shape[0]) - 1} in {self.array.path!r} cannot be"
                    " read: the file is damaged or missing. All earlier draws can:"
                    f" use .isel(draw=slice(0, {draw}))."
                )
        return f"store={str(self.path)!r}: {self.array.path!r} could not be read; try again."


def _array(path, root, name):
    try:
        return root[name]
    except Exception as error:
        raise StoreError(
            f"store={str(path)!r}: the folder {name!r} in it is missing or damaged"
            f" ({type(error).__name__}: {error}). Put it back, or begin again in another store."
        ) from None


def _missing(read):
    return read < 0 if read.dtype.kind == "i" else np.isnan(read)


def _read(path, array, selection):
    try:
        return array[selection]
    except Exception as error:
        raise StoreError(
            f"store={str(path)!r}: {array.path!r} is damaged ({type(error).__name__}: {error}). The"
            " run cannot go on from it, but the draws can still be read, with"
            f" xarray.open_zarr({str(path)!r}, group='posterior', consolidated=False)."
        ) from None


def _contents(groups, names):
    """The arrays of each group."""
    return {group: names for group in groups} | {"sample_stats": tuple(STATS)}


def _packed(snapshot):
    return np.frombuffer(b"".join(array.tobytes() for array in snapshot.values()), np.uint8)


def _snapshot(path, about, tiles, k):
    row = _read(path, tiles, k).tobytes()
    snapshot, first = {}, 0
    for name, dtype, shape in about["snapshot"]:
        count = int(np.prod(shape))
        array = np.frombuffer(row, dtype, count, first).reshape(shape)
        snapshot[name], first = array.copy(), first + array.nbytes
    return snapshot


def _locked(path):
    """An open folder that no other process can open so; the lock ends with the process."""
    if fcntl is None:
        return None
    folder = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        raise StoreError(
            f"store={str(path)!r} is being written to by another run: wait for it, or stop it"
            " (limpet.open can read the store meanwhile)."
        ) from None
    return folder


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def _explained(path, doing):
    """What the system refused, as a StoreError."""
    try:
        yield
    except OSError as error:
        reason = "choose another path"
        if error.errno in FULL:
            reason = "make room on the disk"
        elif error.errno in REFUSED:
            reason = "choose a folder that can be written to"
        after = "" if doing == "create" else ", then go on with limpet.resume: all that was"
        after += "" if doing == "create" else " committed before is safe"
        raise StoreError(
            f"Could not {doing} store={str(path)!r}: {error.strerror or error}."
            f" {reason.capitalize()}{after}."
        ) from error
