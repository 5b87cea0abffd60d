"""A store that a run writes to, as it goes.

    posterior/x, sample_stats/lp, ...   draws, in chunks (`limpet.draws.arrays`)
    limpet/tiles                        the last two states of each tile (`limpet.draws.states`)
    limpet/start                        where the chains began
    limpet/drafts                       files that are being written
    zarr.json                           what the run is, as JSON: nothing in a store is ever run

A commit brings a tile's draws to the disk first and its state last. Each tile has files of its own,
and only a tile's state says what of them counts.

One process writes to all tiles, or several to one tile each. A tile's states are counted, and who
finds another count than the last of its own stops: somebody else has gone on with the tile.
"""

import contextlib
import dataclasses
import errno
import glob
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import numpy as np

from limpet import errors
from limpet.draws import arrays, files, states
from limpet.draws.reader import as_path, read_root, specification_of
from limpet.errors import InputError, StoreError
from limpet.run.quantities import POINT, Numbers, allocate, blank
from limpet.run.specification import RunSpecification, SpecificationError, check_names

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

STALE = 60.0  # seconds after which a draft that nobody holds was left by a killed process
TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


class Write(NamedTuple):
    """A chunk to write: of which array, which one, and its numbers, which nothing changes."""

    array: arrays.StoredArray
    k: int
    part: np.ndarray


class Store:
    """A store that a run writes to; only one process at a time can hold it, or a tile of it."""

    def __init__(self, path: Path, held: int | None = None, tile: int | None = None):
        """Open a store to go on, with all tiles or with one.

        `held` is its folder if this process has just made it.
        """
        self.path, self.tile = path, tile
        self.folder = lock(path, shared=tile is not None) if held is None else held
        self.owned: int | None = None  # the file that tells who has the tile
        try:
            self.specification = specification_of(path)
            if tile is None:
                with files.explaining(path, "write to"):
                    files.remove_drafts(path)
                    self._describe()
            else:
                self._own(errors.whole("index", tile, 0))
        except BaseException:
            self.__exit__()
            raise
        # drafts of processes that believe to have the same tile are not to be mixed up
        self.mark = "" if tile is None else f"-{uuid.uuid4().hex}"
        self.counters: dict[int, int] = {}  # of each tile's last state
        self.committed: dict[tuple[str, int], int] = {}  # most draws of a chain, by group and tile

    @classmethod
    def create(cls, path: Path, specification: RunSpecification, starts) -> "Store":
        """A new store for a run; there must be nothing yet."""
        _check_storable(specification)
        draft = path.parent / f".{path.name}.{uuid.uuid4().hex}"
        held = None
        with files.explaining(path, "create"):
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_stale(path)
            try:
                # under another name until it is complete: a store is either whole or not there
                draft.mkdir()
                held = lock(draft)
                _fill(draft, specification, starts)
                _rename(draft, path)
                files.sync_folder(path.parent)
            except BaseException:
                if held is not None:
                    os.close(held)
                shutil.rmtree(draft, ignore_errors=True)
                raise
        return cls(path, held)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        held, self.folder, self.owned = (self.owned, self.folder), None, None
        for number in held:
            if number is not None:
                os.close(number)

    @property
    def layout(self):
        """What a point is."""
        return self.specification.layout

    @property
    def starts(self):
        """Where the chains began."""
        try:
            return arrays.start_array(self.specification).read(
                self.path, self.specification.key, 0, 0
            )
        except files.DamagedError as error:
            raise StoreError(
                f"store={str(self.path)!r}: {error}, so the run cannot go on. Its draws can still"
                " be read, with limpet.open."
            ) from None

    def states_of(self, tile: int):
        """The intact states of a tile, the newest first, and what is wrong with the others."""
        intact, wrong = states.read_all(self.path, self.specification, tile)
        self.counters[tile] = max((state.counter for state in intact), default=-1)
        return intact, wrong

    def fewest(self) -> int:
        """Draws that every chain has."""
        fewest = []
        for tile in range(self.specification.tiles):
            newest = self.states_of(tile)[0][:1]
            groups = self.specification.groups if newest else ()
            fewest += [int(newest[0].draws(self.specification, g).min()) for g in groups] or [0]
        return min(fewest)

    def go_on(self, tile: int, state: states.State):
        """Let a tile go on from one of its states."""
        for group in self.specification.groups:
            draws = int(state.draws(self.specification, group).max())
            self.committed[group, tile] = draws

    def extend(self, draws: int):
        """Ask for another number of draws."""
        changed = dataclasses.replace(self.specification, draws=draws)
        note(self.path, "limpet", changed.to_json())
        self.specification = changed
        with files.explaining(self.path, "write to"):
            self._describe()

    def chunk(self, group: str, tile: int, k: int) -> Numbers:
        """A tile's k-th chunk of draws, with what is already stored of it."""
        run = self.specification
        if k * run.chunk < self.committed.get((group, tile), 0):
            try:
                return self.read(group, tile, k)
            except files.DamagedError as error:
                raise StoreError(
                    f"store={str(self.path)!r}: {error}. limpet.resume(store, target) makes the"
                    " draws of its tile again."
                ) from None
        return blank(group, len(run.chains_of(tile)), run.chunk, run.layout.size)

    def read(self, group: str, tile: int, k: int) -> Numbers:
        """A chunk that is stored."""
        run = self.specification
        chunk = allocate(group, run.width, run.chunk, run.layout.size)
        for array, _, part in self.writes(group, k, chunk):
            part[...] = array.read(self.path, run.key, tile, k)
        return {name: array[: len(run.chains_of(tile))] for name, array in chunk.items()}

    def writes(self, group: str, k: int, chunk: Numbers) -> list[Write]:
        """The arrays that a chunk is stored in, each with its part of it, which is a view."""
        every = arrays.draw_arrays(self.specification)
        pieces = zip(self.layout.names, self.layout.pieces(chunk[POINT]), strict=True)
        places = [Write(every[group, name], k, np.asarray(piece)) for name, piece in pieces]
        stats = [name for name in chunk if name != POINT]
        places += [Write(every["sample_stats", name], k, chunk[name]) for name in stats]
        return [place for place in places if not place.array.empty]

    def commit(self, tile: int, writes: list[Write], snapshot: dict[str, np.ndarray]):
        """Bring a tile up to date: its draws, then what it needs to go on."""
        self._still_there()
        self._still_mine(tile)
        key, state = self.specification.key, states.State(self.counters.get(tile, -1) + 1, snapshot)
        try:
            with files.explaining(self.path, "write to"):
                of_draws = [w.array.file(key, tile, w.k, w.part) for w in writes]
                draft = f"{tile}{self.mark}"
                files.write(self.path, of_draws, draft)
                files.write(self.path, [states.file(key, tile, state)], draft)
        except StoreError:
            self._still_there()  # if it is not, that is what to say
            raise
        self.counters[tile] = state.counter
        self.go_on(tile, state)

    def _describe(self):
        """Write what other readers of zarr need, where it is not so already."""
        wanted = metadata_of(self.specification)
        have = {}
        for name in wanted:
            with contextlib.suppress(files.DamagedError):
                have[name] = bytes(files.read(self.path, name, most=len(wanted[name])))
        changed = [(name, (text,)) for name, text in wanted.items() if have.get(name) != text]
        if changed:
            files.write(self.path, changed)

    def _own(self, tile):
        """Hold a tile, which no other process then can."""
        if tile >= self.specification.tiles:
            raise InputError(
                f"index={tile}: expected 0 to {self.specification.tiles - 1}, for"
                f" store={str(self.path)!r} has {self.specification.tiles} tiles."
            )
        if fcntl is None:
            return
        chains = self.specification.chains_of(tile)
        with files.explaining(self.path, "open"):
            self.owned = files.open_lock(self.path, states.owner(tile))
            if not _hold(self.owned, fcntl.LOCK_EX):
                raise StoreError(
                    f"store={str(self.path)!r}: chains {chains[0]} to {chains[-1]} are being drawn"
                    " by another process: wait for it, or stop it."
                )

    def _still_mine(self, tile):
        """Refuse to write to a tile that somebody else has gone on with."""
        if self.tile is None:
            return
        newest = max(
            (s.counter for s in states.read_all(self.path, self.specification, tile)[0]), default=-1
        )
        if newest != self.counters.get(tile, -1):
            chains = self.specification.chains_of(tile)
            raise StoreError(
                f"store={str(self.path)!r}: another process has gone on with chains {chains[0]} to"
                f" {chains[-1]}, so this one stops. No draw is lost."
            )

    def _still_there(self):
        """Refuse to go on in a folder that was removed."""
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


def note(path: Path, name: str, value):
    """Write an attribute of a store."""
    root = arrays.group_metadata(read_root(path) | {name: value})
    with files.explaining(path, "write to"):
        files.write(path, [("zarr.json", (root,))])


def new_path(store) -> Path:
    """A path for a new store, refused if there is something."""
    path = as_path(store)
    if not os.path.lexists(path):
        return path
    try:
        about = specification_of(path)
    except StoreError:
        raise StoreError(
            f"store={str(path)!r} exists and is not a limpet store: choose another path."
        ) from None
    raise StoreError(
        f"store={str(path)!r} exists: a run of {about.chains} chains of {about.draws} draws"
        f" with kernel={about.kernel} and seed={about.seed}. To go on with that run use"
        " limpet.resume(store, target); to begin another, remove it or choose another path."
    )


def _hold(number: int, how: int) -> bool:
    """Whether an open file or folder could be locked; the lock ends with the process."""
    assert fcntl is not None
    try:
        fcntl.flock(number, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(path: Path, shared: bool = False) -> int | None:
    """An open folder that no other run can open so, but for others who share it as well."""
    if fcntl is None:
        return None
    if not path.exists():
        raise StoreError(f"There is no store {str(path)!r}: check the path.")
    with files.explaining(path, "open"):
        folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if not _hold(folder, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            os.close(folder)
            raise StoreError(
                f"store={str(path)!r} is being written to by another run: wait for it, or stop it"
                " (limpet.open can read the store meanwhile)."
            )
    return folder


def _check_storable(specification):
    """Refuse what could not be read back."""
    check_names(specification.layout)
    try:
        RunSpecification.from_json(specification.to_json())
    except (SpecificationError, TypeError, ValueError) as error:
        raise InputError(
            f"This run cannot be written to a store: {error}. The numbers of a kernel must be plain"
            " numbers, words or lists of these."
        ) from None


def metadata_of(run):
    """The zarr.json of every group and array, by its place."""
    every = [*arrays.draw_arrays(run).values(), arrays.start_array(run)]
    groups = {array.name.split("/")[0] for array in every}
    of_groups = {f"{group}/zarr.json": arrays.group_metadata() for group in sorted(groups)}
    return of_groups | {f"{array.name}/zarr.json": array.metadata() for array in every}


def _fill(draft, run, starts):
    """Make all folders of a store, and the files that never change."""
    metadata = metadata_of(run)
    for folder in [*map(os.path.dirname, metadata), states.FOLDER, files.DRAFTS]:
        (draft / folder).mkdir(parents=True, exist_ok=True)
    written = [(name, (text,)) for name, text in metadata.items()]
    written.append(("zarr.json", (arrays.group_metadata({"limpet": run.to_json()}),)))
    written.append(arrays.start_array(run).file(run.key, 0, 0, np.asarray(starts)))
    files.write(draft, written)


def _rename(draft, path):
    """Give a store its name; never over one that is there."""
    try:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        draft.rename(path)  # over a store that was made since, this fails: it is not empty
    except OSError as error:
        if error.errno not in TAKEN:
            raise
        raise StoreError(
            f"store={str(path)!r} was made by another run since this one began: choose another"
            " path, or go on with that run by limpet.resume once it has ended."
        ) from None


def _remove_stale(path):
    """Remove drafts of this store that killed processes left."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 32}"):
        with contextlib.suppress(OSError, StoreError):
            if draft.is_symlink() or time.time() - draft.stat().st_mtime < STALE:
                continue
            held = lock(draft)
            shutil.rmtree(draft, ignore_errors=True)
            if held is not None:
                os.close(held)
