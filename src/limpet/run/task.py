"""What a worker of an executor does: one tile for a bounded time, from its snapshot to its next.

A task depends on nothing but its arguments, so it may be done again, anywhere and any number of
times, with the same answer, bit for bit. Only how far it comes in its time may differ.
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
from importlib.metadata import version
from typing import NamedTuple

import numpy as np

from limpet.errors import InputError, LimpetError
from limpet.kernels import Kernel
from limpet.run.quantities import Draws
from limpet.run.specification import RunSpecification
from limpet.run.tile_run import TileRun
from limpet.target import Target

MOST_BYTES = 2**25  # of draws in an answer: a task that makes more ends early
MOST_KEPT = 8  # tiles that a worker keeps, of up to some ten megabytes each
# what draws depend on, bit for bit, and what functions are packed for
PACKAGES = ("limpet", "jax", "jaxlib", "numpy", "llvmlite")

_KEPT: collections.OrderedDict[tuple[bytes, int], TileRun] = collections.OrderedDict()
_LOCK = threading.Lock()
_INTERRUPTED = threading.Event()  # by Ctrl-C, which all processes of a terminal hear


class Answer(NamedTuple):
    """What came of a task: a tile as it is now, and its new draws; or what went wrong."""

    worker: str  # who did it: machine, process and thread
    snapshot: dict[str, np.ndarray]
    draws: dict[str, Draws]  # by group
    error: str = ""


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
    expected: dict[str, str],
    packed: bytes,
    index: int,
    starts: np.ndarray,
    snapshot: dict[str, np.ndarray],
    seconds: float,
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
        return Answer(worker, {}, {}, f"it has {theirs}, where the run has {ours}")
    _hear_interrupts()
    try:
        run = _take(packed, index, starts)
        run.restore(snapshot)
        draws = _advance(run, seconds)
        answer = Answer(worker, run.snapshot(), draws)
        _keep(packed, run)
        return answer
    except LimpetError as error:
        return Answer(worker, {}, {}, str(error))
    except Exception as error:
        return Answer(worker, {}, {}, f"{type(error).__name__}: {error}")


def _advance(run: TileRun, seconds: float) -> dict[str, Draws]:
    began = time.perf_counter()
    run.compile()
    now = time.perf_counter()
    run.count_from(now, 0.0, now - began)
    made: dict[str, list[Draws]] = collections.defaultdict(list)
    size, until = 0, now + seconds
    while not (run.done or run.stuck.any()):
        for group, draws in run.advance().items():
            made[group].append(draws)
            size += sum(array.nbytes for array in draws.numbers.values())
        if time.perf_counter() >= until or size > MOST_BYTES or _INTERRUPTED.is_set():
            break
    return {group: Draws.joined(parts) for group, parts in made.items()}


def _take(packed: bytes, index: int, starts: np.ndarray) -> TileRun:
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
    return TileRun(specification, kernel, target, index, starts)


def _keep(packed: bytes, run: TileRun):
    """Keep a tile for its next task, if that comes here: making one takes a tenth of a second."""
    with _LOCK:
        _KEPT[_digest(packed), run.index] = run
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
