"""Programs that take LLVM long are compiled by a process of their own.

A thread in LLVM hears nothing, cannot be ended, and keeps others out of LLVM meanwhile; and a fault
of LLVM, or a lack of memory, would end everything. A process can be left, and leaves nothing.
"""

import contextlib
import functools
import inspect
import json
import logging
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from limpet.engine.interrupts import interruptible, until_done
from limpet.lanes import UnsupportedError, machine

LOG = logging.getLogger("limpet")
# Lines that LLVM compiles in about a second (a tenth of a second per thousand, measured); another
# process takes 0.1 s to begin.
MOST_LINES_HERE = 10_000


def compiled(text: str, *, quick: bool, unroll: bool = True) -> bytes:
    """As `lanes.machine.compiled`, and Ctrl-C is heard."""
    here = functools.partial(machine.compiled, text, quick=quick, unroll=unroll)
    if text.count("\n") <= MOST_LINES_HERE or not _is_python(sys.executable):
        return interruptible(here)()
    data = text.encode()
    options = json.dumps({"bytes": len(data), "quick": quick, "unroll": unroll})
    try:
        code, status = _answer(f"{options}\n".encode() + data)
    except OSError as error:
        LOG.debug("There can be no other process: %s", error)
        return interruptible(here)()
    if status == 0 and code:
        return code
    if status == -getattr(signal, "SIGKILL", 9):  # as the system does when memory runs out
        raise MemoryError(
            f"Compiling the steps of this model, {len(data) >> 20} MB of program, needs more memory"
            " than this machine has to spare. Try a smaller model, or end other programs."
        )
    if status not in (0, 1):  # which are Python's own, of an error of that process alone, perhaps
        raise UnsupportedError(f"this program, at which LLVM ends with status {status}")
    LOG.debug("Another process could not compile; this one tries")
    return interruptible(here)()


def _is_python(program: str | None) -> bool:
    """Whether it is an interpreter: inside another program, Python takes that for its own."""
    return Path(program or "").name.lower().startswith("python")


def _answer(request: bytes) -> tuple[bytes, int]:
    """What another process writes, and its status."""
    # Ctrl-C in a terminal is not for it: this process decides what that means. It is given the
    # file's text, for the folder of the file has modules with names of the standard library's
    command = [sys.executable, "-P", "-c", inspect.getsource(machine)]
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        process_group=None if os.name == "nt" else 0,
    )
    pipes = [pipe for pipe in (child.stdin, child.stdout) if pipe is not None]

    def converse() -> tuple[bytes, int]:
        to, back = pipes
        with contextlib.suppress(BrokenPipeError):  # its status tells why
            to.write(request)
            to.flush()
        return back.read(), child.wait()

    thread = ThreadPoolExecutor(1)
    future = thread.submit(converse)
    thread.shutdown(wait=False)
    try:
        return until_done(future)
    finally:
        child.kill()
        wait([future])
        child.wait()
        for pipe in pipes:
            with contextlib.suppress(OSError):  # what it was not told is of no use any more
                pipe.close()
