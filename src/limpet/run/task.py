"""What a worker of an executor does: one tile for a bounded time, from where it is to its next.

A tile comes with its task and goes back with its draws (`ByMessage`), or is where workers and
coordinator both see it (`limpet.draws.lending`). Either way a task may be done again, anywhere and
any number of times, and makes the same draws, bit for bit. Only how far it comes may differ.
"""

import collections
import hashlib
import inspect
import multiprocessing
import os
import pickle
import platform
import signal
import socket
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol

import numpy as np

from limpet.errors import InputError, LimpetError
from limpet.kernels import Kernel
from limpet.run.quantities import Draws
from limpet.run.specification import RunSpecification
from limpet.run.standing import Standing
from limpet.run.tile_run import TileRun
from limpet.target import Target

MOST_BYTES = 2**25  # of draws in an answer: a task that makes more ends early
MOST_KEPT = 8  # tiles that a worker keeps, of up to some ten megabytes each
# what draws depend on, bit for bit, and what functions are packed for
PACKAGES = ("limpet", "jax", "jaxlib", "numpy", "llvmlite")

# with the count of its state in a store, if it is known to be there
_KEPT: collections.OrderedDict[tuple[bytes, int], "Kept"] = collections.OrderedDict()
_LOCK = threading.Lock()
_INTERRUPTED = threading.Event()  # by Ctrl-C, which all processes of a terminal hear


class Kept(NamedTuple):
    """A tile that a worker has at hand."""

    run: TileRun
    counter: int | None = None  # of its state in a store, if that is just what the tile is


class Answer(NamedTuple):
    """What came of a task: how far a tile is now, and what is to be sent; or what went wrong."""

    worker: str  # who did it: machine, process and thread
    standing: Standing | None = None
    state: bytes = b""  # what the tile needs to go on: nobody has to look into it
    draws: dict[str, Draws] | None = None  # by group, if they are sent
    away: str = ""  # why it could not use the store, if it was to
    error: str = ""


class Given(Protocol):
    """A tile as its task has it."""

    def advance(self, worker: str, packed: bytes, index: int, seconds: float) -> Answer:
        """Advance it for so many seconds."""
        ...


class ByMessage(NamedTuple):
    """A tile that comes with its task, and goes back with its draws."""

    starts: np.ndarray
    state: bytes  # `pack_state` of its snapshot
    waited: float  # seconds in which nobody worked on it, not yet counted

    def advance(self, worker: str, packed: bytes, index: int, seconds: float) -> Answer:
        """Advance it, and answer with all that is new."""
        run = take(packed, index, self.starts).run
        run.restore(unpack_state(self.state))
        run.wait(self.waited)
        made: dict[str, list[Draws]] = collections.defaultdict(list)
        size = 0

        def put(new: dict[str, Draws]) -> bool:
            nonlocal size
            for group, draws in new.items():
                made[group].append(draws)
                size += sum(array.nbytes for array in draws.numbers.values())
            return size <= MOST_BYTES

        advance(run, seconds, put)
        draws = {group: Draws.joined(parts) for group, parts in made.items()}
        answer = Answer(worker, run.standing(), pack_state(run.snapshot()), draws)
        keep(packed, Kept(run))
        return answer


def pack_state(snapshot: dict[str, np.ndarray]) -> bytes:
    """A snapshot as bytes, which a coordinator passes on as they are."""
    return pickle.dumps(snapshot, pickle.HIGHEST_PROTOCOL)


def unpack_state(state: bytes) -> dict[str, np.ndarray]:
    """The snapshot that `pack_state` packed."""
    return pickle.loads(state)


def versions() -> dict[str, str]:
    """What must be the same wherever a run is advanced."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python} | {name: version(name) for name in PACKAGES}


def pack(specification: RunSpecification | None, kernel: Kernel, target: Target) -> bytes:
    """What tiles of a run have in common, for `advance_tile`; a target that cannot be is named."""
    import cloudpickle  # the user's functions may be of no module; only needed here

    try:
        return cloudpickle.dumps((specification, kernel, target))
    except Exception as error:
        parts = "; ".join(_unpackable(cloudpickle.dumps, target)) or f"{type(error).__name__}"
        raise InputError(
            f"target={target!r} cannot be sent to workers of an executor: {parts} ({error})."
            " Expected functions of arrays, numbers and other functions: make what cannot be sent"
            " inside the function, or leave out executor."
        ) from error


def _unpackable(dump, target):
    """Which of the user's functions cannot be packed, and for which of their variables."""
    for name, function in target.functions.items():
        while hasattr(function, "function"):  # as limpet has wrapped it
            function = function.function
        if _packs(dump, function):
            continue
        used = {}
        if inspect.isfunction(function):
            found = inspect.getclosurevars(function)
            used = {**found.globals, **found.nonlocals}
        odd = [f"{n!r}, a {type(v).__name__}" for n, v in used.items() if not _packs(dump, v)]
        yield f"{name} uses {', '.join(odd)}" if odd else f"{name} is {function!r}"
    if not _packs(dump, target.data):
        yield "its data"


def _packs(dump, value):
    try:
        dump(value)
    except Exception:
        return False
    return True


def advance_tile(
    expected: dict[str, str], packed: bytes, index: int, given: Given, seconds: float
) -> Answer:
    """Advance a tile for so many seconds, after compiling; never beyond its last draw.

    `packed` is what `pack` made in a process with the `expected` versions.
    """
    worker = f"{socket.gethostname()}, process {os.getpid()}, thread {threading.get_ident()}"
    here = versions()
    if different := [name for name in here if here[name] != expected.get(name)]:
        theirs, ours = (
            ", ".join(f"{name} {every.get(name)}" for name in different)
            for every in (here, expected)
        )
        return Answer(worker, error=f"it has {theirs}, where the run has {ours}")
    _hear_interrupts()
    try:
        return given.advance(worker, packed, index, seconds)
    except LimpetError as error:
        return Answer(worker, error=str(error).rstrip("."))
    except Exception as error:
        return Answer(worker, error=f"{type(error).__name__}: {error}")


def advance(run: TileRun, seconds: float, put: Callable[[dict[str, Draws]], Any]):
    """Advance a tile for so many seconds, or until `put`, which is given its draws, says False."""
    began = time.perf_counter()
    run.compile()
    now = time.perf_counter()
    run.count_from(now, 0.0, now - began)
    while not (run.done or run.stuck.any()):
        more = put(run.advance())
        if time.perf_counter() >= now + seconds or _INTERRUPTED.is_set() or more is False:
            break


def take(packed: bytes, index: int, starts: np.ndarray) -> Kept:
    """The tile, as kept here or made anew; nobody else here has it meanwhile."""
    with _LOCK:
        kept = _KEPT.pop((_digest(packed), index), None)
    if kept is not None:
        return kept
    try:
        specification, kernel, target = pickle.loads(packed)
    except ImportError as error:
        raise LimpetError(
            f"it cannot import what the target is made of ({error}): put that module where workers"
            " find it, or define the functions in the program that calls limpet"
        ) from None
    return Kept(TileRun(specification, kernel, target, index, starts))


def keep(packed: bytes, tile: Kept):
    """Keep a tile for its next task, if that comes here: making one takes a tenth of a second."""
    with _LOCK:
        _KEPT[_digest(packed), tile.run.index] = tile
        while len(_KEPT) > MOST_KEPT:
            _KEPT.popitem(last=False)


def _digest(packed):
    return hashlib.blake2b(packed, digest_size=16).digest()


def _hear_interrupts():
    """In a process of a pool, let Ctrl-C end a task at its next block, and not the process.

    Whoever sent the task hears it, too, and waits for what there is.
    """
    _INTERRUPTED.clear()
    main = threading.current_thread() is threading.main_thread()
    if main and multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, lambda *_: _INTERRUPTED.set())
