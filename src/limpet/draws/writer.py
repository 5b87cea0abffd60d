"""A store that a run writes to, as it goes.

    posterior/x, sample_stats/lp, ...   draws, in chunks (`limpet.draws.arrays`)
    limpet/tiles                        the last two states of each tile (`limpet.draws.states`)
    limpet/start                        where the chains began
    limpet/session                      whose workers may write, if any did (`sessions`)
    limpet/drafts                       files that are being written, of a store in a folder
    zarr.json                           what the run is, as JSON: nothing in a store is ever run

Where that is, a folder or elsewhere, its `limpet.draws.home.Home` alone knows. A commit brings a
tile's draws there first and its state last. Each tile has files of its own, and only a tile's state
says what of them counts.

One process writes to all tiles, or several to one tile each: jobs, or workers to whom the one
process has lent its tiles (`limpet.draws.lending`). A tile's states are counted, and who finds
another count than the last of its own stops: somebody else has gone on with the tile.
"""

import contextlib
import dataclasses
import uuid
from typing import NamedTuple

import numpy as np

from limpet import errors
from limpet.draws import arrays, sessions, states
from limpet.draws.home import DamagedError, Files, GoneOnError, Hold, Home, UnreachableError
from limpet.draws.reader import read_root, specification_of
from limpet.draws.where import as_home
from limpet.errors import InputError, StoreError
from limpet.run.goal import Goal
from limpet.run.quantities import POINT, Numbers, allocate, blank
from limpet.run.specification import RunSpecification, SpecificationError, check_names


class Write(NamedTuple):
    """A chunk to write: of which array, which one, and its numbers, which nothing changes."""

    array: arrays.StoredArray
    k: int
    part: np.ndarray


class Store:
    """A store that a run writes to; only one process at a time can hold it, or a tile of it."""

    def __init__(
        self,
        home: Home,
        held: Hold | None = None,
        tile: int | None = None,
        session: str | None = None,
    ):
        """Open a store to go on, with all tiles or with one.

        `held` is given if this process has just made it, and `session` if the process that holds
        all tiles has lent this one.
        """
        self.home, self.tile, self.session = home, tile, session
        self.is_lent, self.to_stop = session is not None, False
        if held is None:
            held = home.enter() if self.is_lent else home.hold(shared=tile is not None)
        self.held = held
        try:
            self.specification = specification_of(home)
            if self.is_lent:
                self._still_lent()
            elif tile is not None:
                self._own(errors.whole("index", tile, 0))
            else:
                with home.explaining("write to"):
                    if sessions.read(home) is not None:
                        self.recall()
                    home.tidy()
                    self._describe()
        except BaseException:
            self.__exit__()
            raise
        # drafts of processes that believe to have the same tile are not to be mixed up
        self.mark = "" if tile is None else f"-{uuid.uuid4().hex}"
        self.counters: dict[int, int] = {}  # of each tile's last state
        self.committed: dict[tuple[str, int], int] = {}  # most draws of a chain, by group and tile

    @classmethod
    def create(cls, home: Home, specification: RunSpecification, starts) -> "Store":
        """A new store for a run; there must be nothing yet."""
        _check_storable(specification)
        with home.explaining("create"):
            held = home.create(_first_files(specification, starts), [states.FOLDER])
        return cls(home, held)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.held.close()

    @property
    def layout(self):
        """What a point is."""
        return self.specification.layout

    @property
    def starts(self):
        """Where the chains began."""
        try:
            return arrays.start_array(self.specification).read(
                self.home, self.specification.key, 0, 0
            )
        except DamagedError as error:
            raise StoreError(
                f"store={str(self.home)!r}: {error}, so the run cannot go on. Its draws can still"
                " be read, with limpet.open."
            ) from None

    def states_of(self, tile: int):
        """The intact states of a tile, the newest first, and what is wrong with the others."""
        intact, wrong = states.read_all(self.home, self.specification, tile)
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

    def lend(self) -> str:
        """The session by which workers may write to tiles from now on, until `recall`."""
        if self.session is None:
            self.session = sessions.new()
            with self.home.explaining("write to"):
                sessions.write(self.home, self.session)
        return self.session

    def check_session(self):
        """Refuse to go on with a store that another coordinator's workers write to."""
        found = sessions.read(self.home)
        if self.session is not None and found is not None and found[0] != self.session:
            raise GoneOnError(
                f"store={str(self.home)!r}: another process has gone on with this run, so this one"
                " stops. No draw is lost."
            )

    def ask_to_stop(self):
        """Let tasks end at their next commit."""
        self.check_session()
        if self.session is not None:
            with self.home.explaining("write to"):
                sessions.write(self.home, self.session, stop=True)

    def recall(self):
        """Let no worker write any more, not even one that is thought dead.

        Each finds another session before its next commit. Where there are locks, the commits that
        are under way are over on return.
        """
        self.session = None
        with self.home.explaining("write to"):
            sessions.write(self.home, sessions.new())
            for tile in range(self.specification.tiles) if self.home.locks else ():
                if self.home.size_of(states.owner(tile)) is not None:
                    with self.held.owning(states.owner(tile)):
                        pass
            self.home.tidy()

    def go_on(self, tile: int, state: states.State):
        """Let a tile go on from one of its states."""
        for group in self.specification.groups:
            draws = int(state.draws(self.specification, group).max())
            self.committed[group, tile] = draws

    def extend(self, draws: int, goal: Goal | None):
        """Ask for another number of draws, or for as many as it takes."""
        changed = dataclasses.replace(self.specification, draws=draws, goal=goal)
        note(self.home, "limpet", changed.to_json())
        self.specification = changed
        with self.home.explaining("write to"):
            self._describe()

    def chunk(self, group: str, tile: int, k: int) -> Numbers:
        """A tile's k-th chunk of draws, with what is already stored of it."""
        run = self.specification
        if k * run.chunk < self.committed.get((group, tile), 0):
            try:
                return self.read(group, tile, k)
            except DamagedError as error:
                raise StoreError(
                    f"store={str(self.home)!r}: {error}. limpet.resume(store, target) makes the"
                    " draws of its tile again."
                ) from None
        return blank(group, len(run.chains_of(tile)), run.chunk, run.layout.size)

    def read(self, group: str, tile: int, k: int) -> Numbers:
        """A chunk that is stored."""
        run = self.specification
        chunk = allocate(group, run.width, run.chunk, run.layout.size)
        for array, _, part in self.writes(group, k, chunk):
            part[...] = array.read(self.home, run.key, tile, k)
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
        with self._owning(tile):
            self._still_there()
            self._still_lent()
            self._still_mine(tile)
            self._write(tile, writes, snapshot)

    def _write(self, tile, writes, snapshot):
        key, state = self.specification.key, states.State(self.counters.get(tile, -1) + 1, snapshot)
        try:
            with self.home.explaining("write to"):
                of_draws = [w.array.file(key, tile, w.k, w.part) for w in writes]
                draft = f"{tile}{self.mark}"
                self.home.write(of_draws, draft)
                self.home.write([states.file(key, tile, state)], draft)
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
            with contextlib.suppress(DamagedError):
                have[name] = bytes(self.home.read(name, most=len(wanted[name])))
        changed = [(name, (text,)) for name, text in wanted.items() if have.get(name) != text]
        if changed:
            self.home.write(changed)

    def _own(self, tile):
        """Hold a tile, which no other process then can."""
        if tile >= self.specification.tiles:
            raise InputError(
                f"index={tile}: expected 0 to {self.specification.tiles - 1}, for"
                f" store={str(self.home)!r} has {self.specification.tiles} tiles."
            )
        chains = self.specification.chains_of(tile)
        with self.home.explaining("open"):
            if not self.held.own(states.owner(tile)):
                raise StoreError(
                    f"store={str(self.home)!r}: chains {chains[0]} to {chains[-1]} are being drawn"
                    " by another process: wait for it, or stop it."
                )

    @contextlib.contextmanager
    def _owning(self, tile):
        """What is lent may be lent to somebody else, too: only one at a time writes."""
        if not self.is_lent:
            yield
            return
        with self.home.explaining("write to"), self.held.owning(states.owner(tile)):
            yield

    def _still_lent(self):
        """Refuse to write without leave."""
        if not self.is_lent:
            return
        found = sessions.read(self.home)
        if found is None or found[0] != self.session:
            raise StoreError(
                f"store={str(self.home)!r} is not the one that tasks are to write to: its session"
                f" is {found and found[0]}, expected {self.session}."
            )
        self.to_stop = found[1]

    def _still_mine(self, tile):
        """Refuse to write to a tile that somebody else has gone on with."""
        if self.tile is None and self.home.locks:
            return
        if states.newest(self.home, tile) != self.counters.get(tile, -1):
            self._still_there()  # if it is not, that is what to say
            chains = self.specification.chains_of(tile)
            raise GoneOnError(
                f"store={str(self.home)!r}: another process has gone on with chains {chains[0]} to"
                f" {chains[-1]}, so this one stops. No draw is lost."
            )

    def _still_there(self):
        """Refuse to go on in a store that was removed, or in another run's."""
        there = self.held.is_there()
        if there and not self.home.locks:
            try:
                there = read_root(self.home)["limpet"].get("run") == self.specification.run
            except UnreachableError:
                raise
            except StoreError:
                there = False
        if not there:
            raise StoreError(
                f"store={str(self.home)!r} was removed or replaced while the run was writing to it."
                " Start again with a store that nothing else touches."
            )


def note(home: Home, name: str, value):
    """Write an attribute of a store."""
    root = arrays.group_metadata(read_root(home) | {name: value})
    with home.explaining("write to"):
        home.write([("zarr.json", (root,))])


def new_home(store) -> Home:
    """Where a new store is to be, refused if there is something."""
    home = as_home(store)
    home.check_writable()
    if not home.exists():
        return home
    try:
        about = specification_of(home)
    except StoreError:
        raise StoreError(
            f"store={str(home)!r} exists and is not a limpet store: choose another path."
        ) from None
    raise StoreError(
        f"store={str(home)!r} exists: a run of {about.chains} chains of {about.draws} draws"
        f" with kernel={about.kernel} and seed={about.seed}. To go on with that run use"
        " limpet.resume(store, target); to begin another, remove it or choose another path."
    )


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


def _first_files(run, starts) -> Files:
    """What a new store has; what the run is comes last."""
    return [
        *((name, (text,)) for name, text in metadata_of(run).items()),
        arrays.start_array(run).file(run.key, 0, 0, np.asarray(starts)),
        ("zarr.json", (arrays.group_metadata({"limpet": run.to_json()}),)),
    ]
