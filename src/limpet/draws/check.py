"""`limpet check`: what of a store is intact, file by file, and what to do about the rest."""

import dataclasses
import re

import numpy as np

from limpet.draws import arrays, sessions, states
from limpet.draws.home import DRAFTS, DamagedError, Home
from limpet.draws.reader import never_written, specification_of
from limpet.draws.where import as_home
from limpet.draws.writer import metadata_of
from limpet.errors import StoreError
from limpet.run.specification import RunSpecification

CHUNK_NAME = re.compile(r"c(\.\d+)+")
MOST_NAMED = 20  # bad files of one kind that are listed


@dataclasses.dataclass
class TileReport:
    """What is left of a tile: its states, slot by slot, and the draws of each chain."""

    chains: tuple[int, int]  # the first and the last
    states: list[str]  # of each slot: how many draws it tells of, or what is wrong
    intact: int = 0  # states
    draws: int = 0  # that every chain has, by the newest intact state
    never_written: bool = False


@dataclasses.dataclass
class ArrayReport:
    """What is left of an array: how many chunks there should be, and which are bad."""

    chunks: int = 0
    bad: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class StoreReport:
    """What of a store is intact."""

    store: str
    specification: str  # "intact", or what is wrong
    start: str = "unknown"
    metadata: list[str] = dataclasses.field(default_factory=list)  # wrong for other readers of zarr
    tiles: list[TileReport] = dataclasses.field(default_factory=list)
    arrays: dict[str, ArrayReport] = dataclasses.field(default_factory=dict)
    links: list[str] = dataclasses.field(default_factory=list)
    unexpected: list[str] = dataclasses.field(default_factory=list)
    drafts: int = 0  # that a run is writing, or a killed one left: they mean nothing

    @property
    def readable(self) -> bool:
        """Whether every draw that was committed can be read."""
        states_left = all(tile.intact or tile.never_written for tile in self.tiles)
        return states_left and not any(array.bad for array in self.arrays.values())

    @property
    def intact(self) -> bool:
        """Whether all is as limpet wrote it; files of others do no harm."""
        whole = all(tile.intact == len(tile.states) or tile.never_written for tile in self.tiles)
        known = self.specification == self.start == "intact"
        return known and whole and self.readable and not self.metadata and not self.links

    @property
    def advice(self) -> str:
        """What to do."""
        if self.intact:
            return "Everything is intact."
        if self.specification != "intact":
            return "Put back zarr.json as limpet wrote it: nothing can be read without it."
        if self.start != "intact":
            return (
                "The run cannot go on without limpet/start: put it back. limpet.open reads what is"
                " intact."
            )
        if self.readable:
            return "All draws can be read; limpet.resume(store, target) puts the rest in order."
        return (
            "limpet.resume(store, target) makes the draws of damaged tiles again, bit for bit;"
            " limpet.open reads what is intact."
        )

    def to_json(self) -> dict:
        """All of it as plain values."""
        return dataclasses.asdict(self) | {
            "readable": self.readable,
            "intact": self.intact,
            "advice": self.advice,
        }

    def __str__(self):
        rows = [("specification", self.specification), ("start", self.start)]
        for tile in self.tiles:
            held = f"{tile.draws:,} draws ({'; '.join(tile.states)})"
            held = "nothing written yet" if tile.never_written else held
            rows.append((f"chains {tile.chains[0]} to {tile.chains[1]}", held))
        for name, array in self.arrays.items():
            good = array.chunks - len(array.bad)
            rows.append((name, f"{good:,} of {array.chunks:,} chunks intact"))
            rows += [("", bad) for bad in array.bad[:MOST_NAMED]]
            if len(array.bad) > MOST_NAMED:
                rows.append(("", f"and {len(array.bad) - MOST_NAMED:,} more"))
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:{width}}  {about}" for name, about in rows]
        lines += [f"for other readers of zarr: {wrong}" for wrong in self.metadata]
        lines += [f"a link: {name}" for name in self.links]
        lines += [f"not limpet's: {name}" for name in self.unexpected[:MOST_NAMED]]
        if self.drafts:
            lines.append(f"drafts: {self.drafts}, of a run that goes on, or was killed: no harm")
        return "\n".join([*lines, "", self.advice])


def check(store) -> StoreReport:
    """Look at every file of a store; one that is being written to may well look damaged.

    Parameters
    ----------
    store : str, path or zarr store
        What `limpet.sample(store=...)` was given.

    Returns
    -------
    StoreReport
        What is intact; `print` shows it, `to_json` gives it as plain values.
    """
    home = as_home(store)
    if not home.exists():
        raise StoreError(f"There is no store {str(home)!r}: check the path.")
    try:
        run = specification_of(home)
    except StoreError as error:
        return StoreReport(str(home), _printable(str(error)))
    report = StoreReport(str(home), "intact")
    report.start = _start(home, run)
    found = []
    for tile in range(run.tiles):
        intact, about = _tile(home, run, tile)
        report.tiles.append(about)
        found.append(intact[0] if intact else None)
        if not intact and report.start != "intact":
            break  # nothing tells that there are so many chains
    for (group, _), array in arrays.draw_arrays(run).items():
        report.arrays[array.name] = _array(home, run, group, array, found)
    for name, text in metadata_of(run).items():
        try:
            if home.read(name, size=len(text)) != text:
                report.metadata.append(f"{name!r} was changed")
        except DamagedError as error:
            report.metadata.append(str(error))
    _look_around(home, run, report)
    return report


def _start(home, run: RunSpecification) -> str:
    try:
        arrays.start_array(run).read(home, run.key, 0, 0)
    except DamagedError as error:
        return str(error)
    return "intact"


def _tile(home, run, tile):
    """The intact states of a tile, the newest first, and what to report."""
    intact, slots = [], []
    for slot in states.SLOTS:
        try:
            state = states.read(home, run, tile, slot)
        except DamagedError as error:
            slots.append(str(error))
            continue
        intact.append(state.essentials(run, tile))
        slots.append(f"state {state.counter}: {_fewest(run, state):,}")
    intact.sort(key=lambda state: -state.counter)
    chains = run.chains_of(tile)
    about = TileReport((chains[0], chains[-1]), slots, len(intact))
    about.draws = _fewest(run, intact[0]) if intact else 0
    about.never_written = not intact and never_written(home, run, tile)
    if len(intact) == 1 and intact[0].counter == 0:  # there was no second one yet
        about.states = [slots[0]]
    return intact, about


def _fewest(run, state):
    return min(int(state.draws(run, group).min()) for group in run.groups)


def _array(home: Home, run, group, array, found) -> ArrayReport:
    """Every chunk that the tiles' states tell of."""
    report = ArrayReport()
    there = set(home.names_in(array.name))
    of_draws = group if group in run.groups else "posterior"
    for tile, state in enumerate(found):
        if state is None or array.empty:
            continue
        draws = state.draws(run, of_draws)
        for k in range(-(-int(draws.max()) // run.chunk)):
            report.chunks += 1
            place = array.place(tile, k)
            if place.rpartition("/")[2] not in there:
                report.bad.append(f"{place!r} is missing")
                if len(report.bad) > len(there) + MOST_NAMED:  # a state that cannot be true
                    return report
                continue
            try:
                chunk = array.read(home, run.key, tile, k)
            except DamagedError as error:
                report.bad.append(str(error))
                continue
            due = k * run.chunk + np.arange(run.chunk) < draws[:, None]
            if arrays.missing(chunk[: len(draws)][due]).any():
                report.bad.append(f"{place!r} is an older version, and lacks draws")
    return report


def _look_around(home, run, report: StoreReport):
    """Links, and files that limpet did not write."""
    every = [*arrays.draw_arrays(run).values(), arrays.start_array(run)]
    chunked = {array.name for array in every}
    known = {"zarr.json", sessions.PLACE, *metadata_of(run)}
    known |= {states.place(t, s) for t in range(run.tiles) for s in states.SLOTS}
    known |= {states.owner(t) for t in range(run.tiles)}
    for place, is_link in home.all_names():
        folder, _, name = place.rpartition("/")
        if is_link:
            report.links.append(_printable(place))
        elif folder == DRAFTS:
            report.drafts += 1
        elif not (folder in chunked and CHUNK_NAME.fullmatch(name)) and place not in known:
            report.unexpected.append(_printable(place))


def _printable(text):
    """Text without what a terminal would obey."""
    return text if text.isprintable() else repr(text)
