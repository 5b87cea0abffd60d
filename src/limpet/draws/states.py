"""The states of tiles: all that a tile needs to go on, the last two of each kept.

They are written in turn to two files, after the draws that they speak of. If one is damaged, or was
cut short, the other is seconds older. A state says how many draws its chains have; steps made since
are made again, bit for bit.
"""

import contextlib
import json
import struct
from typing import NamedTuple

import numpy as np

from limpet.draws.home import TAG_BYTES, DamagedError, Home, tag
from limpet.kernels import Move
from limpet.kernels.states import Outcome
from limpet.run.clock import PHASES
from limpet.run.specification import RunSpecification

FOLDER = "limpet/tiles"
SLOTS = (0, 1)
LONGEST_HEADER = 2**16  # bytes
# the largest state that is read: some arrays of a number for each number and each constraint of
# each chain, several times what any kernel has; and what does not grow with them, of which power
# sums over batches of draws are 2**23 bytes at most, half of all
SPARE_ARRAYS, SPARE_BYTES = 8, 2**24
LEAST = {"warmup_steps": -1}  # not known yet; of others 0
TYPES = ("<f8", "<i8", "<u8", "|b1")  # of the arrays of a state


class State(NamedTuple):
    """What a tile was when it was written for the `counter`-th time."""

    counter: int
    arrays: dict[str, np.ndarray]

    def draws(self, run: RunSpecification, group: str) -> np.ndarray:
        """How many draws each chain has."""
        return self.arrays[f"{group}_visits"] // run.thin

    def essentials(self, run: RunSpecification, tile: int) -> "State":
        """What a reader of draws needs: far less than what it takes to go on."""
        return State(self.counter, {name: self.arrays[name] for name, *_ in _essentials(run, tile)})


def place(tile: int, slot: int) -> str:
    """The file of a tile's state."""
    return f"{FOLDER}/{tile}.{slot}"


def owner(tile: int) -> str:
    """The file that whoever advances this tile alone holds; there is nothing in it."""
    return f"{FOLDER}/{tile}.owner"


def file(key: bytes, tile: int, state: State) -> tuple[str, tuple]:
    """What to write: its place, and the parts of the file."""
    name = place(tile, state.counter % len(SLOTS))
    arrays = {n: np.asarray(a, a.dtype.newbyteorder("<")) for n, a in state.arrays.items()}
    described = [[n, a.dtype.str, a.shape] for n, a in arrays.items()]
    header = json.dumps({"counter": state.counter, "arrays": described}).encode()
    parts = [struct.pack("<I", len(header)), header, *(a.tobytes() for a in arrays.values())]
    contents = b"".join(parts)
    return name, (contents, tag(key, name, contents))


def read(home: Home, run: RunSpecification, tile: int, slot: int) -> State:
    """The state in a slot; refused if it is not the one that was written there."""
    name = place(tile, slot)
    n, m = run.layout.size, run.constraints
    most = SPARE_BYTES + SPARE_ARRAYS * 8 * run.width * (n + m) * (m + 1)
    contents = home.read(name, most=most)
    if len(contents) < 4 + TAG_BYTES:
        raise DamagedError(f"{name!r} is too short")
    view = memoryview(contents)[:-TAG_BYTES]
    if contents[-TAG_BYTES:] != tag(run.key, name, view):
        raise DamagedError(f"{name!r} is damaged, or of another place or run")
    try:
        state = _unpack(view)
        _check(state, run, tile)
    except ValueError as error:
        raise DamagedError(f"{name!r} makes no sense ({error})") from None
    except (TypeError, KeyError, RecursionError, OverflowError):  # told in words of Python's
        raise DamagedError(f"{name!r} makes no sense") from None
    return state


def read_all(home: Home, run: RunSpecification, tile: int):
    """The intact states of a tile, the newest first; and what is wrong with the others."""
    intact, wrong = [], []
    for slot in SLOTS:
        try:
            intact.append(read(home, run, tile, slot))
        except DamagedError as error:
            wrong.append(str(error))
    return sorted(intact, key=lambda state: -state.counter), wrong


def read_last(home: Home, run: RunSpecification, tile: int) -> State:
    """The newest intact state of a tile, of which only one is read, as a rule."""
    try:
        return read(home, run, tile, newest(home, tile) % len(SLOTS))
    except DamagedError:
        intact, wrong = read_all(home, run, tile)
        if not intact:
            raise DamagedError("; ".join(wrong)) from None
        return intact[0]


def newest(home: Home, tile: int) -> int:
    """How often a tile was written, as far as what states begin with tells; -1 if never."""
    found = [-1]
    for slot in SLOTS:
        with contextlib.suppress(DamagedError, ValueError, TypeError, KeyError, RecursionError):
            view = memoryview(home.read_first(place(tile, slot), 4 + LONGEST_HEADER))
            found.append(_counter(_header(view)[0]))
    return max(found)


def blank(run: RunSpecification, tile: int) -> State:
    """What `limpet.open` shows of a tile that has written nothing yet."""
    return State(-1, {n: np.zeros(shape, dtype) for n, dtype, shape in _essentials(run, tile)})


def _unpack(view):
    header, first = _header(view)
    counter, arrays = _counter(header), {}
    for name, dtype, shape in header["arrays"]:
        if dtype not in TYPES or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"{name!r} is of an unknown kind")
        array = np.ndarray(shape, dtype, view, first).copy()  # refused if longer than the file
        arrays[name], first = array, first + array.nbytes
    if first != len(view):
        raise ValueError("its size does not fit")
    return State(counter, arrays)


def _header(view):
    """What a state says of itself, and where its arrays begin."""
    if len(view) < 4:
        raise ValueError("it is too short")
    (length,) = struct.unpack("<I", view[:4])
    if not length <= min(LONGEST_HEADER, len(view) - 4):
        raise ValueError("its header is too long")
    return json.loads(bytes(view[4 : 4 + length])), 4 + length


def _counter(header) -> int:
    counter = header["counter"]
    if type(counter) is not int or counter < 0:
        raise ValueError("its number is none")
    return counter


def _essentials(run, tile):
    """Name, type and shape of what is read of every state, whatever the kernel."""
    chains = len(run.chains_of(tile))
    yield "step", "<i8", ()
    yield "warmup_steps", "<i8", ()
    for name in PHASES:
        yield name, "<f8", ()
    yield "sizes", "<f8", (len(run.sizes),)
    yield "scale", "<f8", (run.layout.size,)
    yield "in_bonds", "<i8", ()
    yield "counts", "<i8", (2, chains, len(Move), len(Outcome))
    yield "acceptance", "<f8", (2, chains, len(Move), len(Outcome))
    for group in run.groups:
        yield f"{group}_visits", "<i8", (chains,)
    if run.pairs:
        yield "exchanges", "<i8", (2, chains, run.pairs, len(Outcome))
        yield "exchange_acceptance", "<f8", (2, chains, run.pairs)
        yield "round_trips", "<i8", (2, chains)


def _check(state, run, tile):
    for name, dtype, shape in _essentials(run, tile):
        if name not in state.arrays:
            raise ValueError(f"it lacks {name}")
        array = state.arrays[name]
        if array.dtype != np.dtype(dtype) or array.shape != shape:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, expected {dtype} {shape}")
        if not np.isfinite(array).all() or (array < LEAST.get(name, 0)).any():
            raise ValueError(f"{name} has numbers that cannot be")
    for name in ("sizes", "scale"):
        if not (state.arrays[name] < 1e300).all():
            raise ValueError(f"{name} has numbers that cannot be")
