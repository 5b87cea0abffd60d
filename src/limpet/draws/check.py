"""`limpet check`: what of a store is intact, file by file, and what to do about the rest."""

import dataclasses
import os
import re
import stat
from pathlib import Path

import numpy as np

from limpet.draws import arrays, files, states
from limpet.draws.reader import as_path, never_written, specification_of
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
    store : str or path
        What `limpet.sample(store=...)` was given.

    Returns
    -------
    StoreReport
        What is intact; `print` shows it, `to_json` gives it as plain values.
    """
    path = as_path(store)
    if not path.is_dir():
        raise StoreError(f"There is no store {str(path)!r}: check the path.")
    try:
        run = specification_of(path)
    except StoreError as error:
        return StoreReport(str(path), _printable(str(error)))
    report = StoreReport(str(path), "intact")
    report.start = _start(path, run)
    found = []
    for tile in range(run.tiles):
        intact, about = _tile(path, run, tile)
        report.tiles.append(about)
        found.append(intact[0] if intact else None)
        if not intact and report.start != "intact":
            break  # nothing tells that there are so many chains
    for (group, _), array in arrays.draw_arrays(run).items():
        report.arrays[array.name] = _array(path, run, group, array, found)
    for name, text in metadata_of(run).items():
        try:
            if files.read(path, name, size=len(text)) != text:
                report.metadata.append(f"{name!r} was changed")
        except files.DamagedError as error:
            report.metadata.append(str(error))
    _look_around(path, run, report)
    return report


def _start(path, run: RunSpecification) -> str:
    try:
        arrays.start_array(run).read(path, run.key, 0, 0)
    except files.DamagedError as error:
        return str(error)
    return "intact"


def _tile(path, run, tile):
    """The intact states of a tile, the newest first, and what to report."""
    intact, slots = [], []
    for slot in states.SLOTS:
        try:
            state = states.read(path, run, tile, slot)
        except files.DamagedError as error:
            slots.append(str(error))
            continue
        intact.append(state.essentials(run, tile))
        slots.append(f"state {state.counter}: {_fewest(run, state):,}")
    intact.sort(key=lambda state: -state.counter)
    chains = run.chains_of(tile)
    about = TileReport((chains[0], chains[-1]), slots, len(intact))
    about.draws = _fewest(run, intact[0]) if intact else 0
    about.never_written = not intact and never_written(path, run, tile)
    if len(intact) == 1 and intact[0].counter == 0:  # there was no second one yet
        about.states = [slots[0]]
    return intact, about


def _fewest(run, state):
    return min(int(state.draws(run, group).min()) for group in run.groups)


def _array(path: Path, run, group, array, found) -> ArrayReport:
    """Every chunk that the tiles' states tell of."""
    report = ArrayReport()
    there = set(files.names_in(path, array.name))
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
                chunk = array.read(path, run.key, tile, k)
            except files.DamagedError as error:
                report.bad.append(str(error))
                continue
            due = k * run.chunk + np.arange(run.chunk) < draws[:, None]
            if arrays.missing(chunk[: len(draws)][due]).any():
                report.bad.append(f"{place!r} is an older version, and lacks draws")
    return report


def _look_around(path, run, report: StoreReport):
    """Links, and files that limpet did not write."""
    every = [*arrays.draw_arrays(run).values(), arrays.start_array(run)]
    chunked = {array.name for array in every}
    known = {"zarr.json", *metadata_of(run)}
    known |= {states.place(t, s) for t in range(run.tiles) for s in states.SLOTS}
    known |= {states.owner(t) for t in range(run.tiles)}
    for folder, folders, names in os.walk(path):
        inside = Path(folder).relative_to(path)
        for name in sorted(folders + names):
            place = (inside / name).as_posix()
            mode = os.lstat(Path(folder) / name).st_mode
            chunk = inside.as_posix() in chunked and CHUNK_NAME.fullmatch(name)
            if stat.S_ISLNK(mode):
                report.links.append(_printable(place))
            elif inside.as_posix() == files.DRAFTS:
                report.drafts += 1
            elif not stat.S_ISDIR(mode) and not chunk and place not in known:
                report.unexpected.append(_printable(place))


def _printable(text):
    """Text without what a terminal would obey."""
    return text if text.isprintable() else repr(text)
