"""Compiled programs are kept between processes, in a folder of the user's.

What is found there is run, so the folder must be the user's alone: it is made so, and not used if
others own it, or can write to it or to a folder above it. It may be removed at any time: a file
that cannot be read or written only means that a program is compiled again.

JAX's own cache is there, too. An entry of JAX's that was cut off (by a full disk) is not mended by
JAX, which would warn of it in every process: it is removed here.
"""

import contextlib
import functools
import hashlib
import logging
import os
import secrets
import stat
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import jax
import llvmlite.binding as llvm
from jax.experimental.compilation_cache import compilation_cache

LOG = logging.getLogger("limpet")
# Bytes in the folder; files that were not used for longest go. A model takes 0.1 to 5 MB, a suite
# of tests some 100 MB, so that this is a year's work, and little beside a disk.
MOST_BYTES = 2**30
# Seconds: a program of JAX's that took less to compile is not kept, for reading it takes as long.
WORTH_KEEPING = 0.02
SECONDS_OF_WRITING = 60.0  # after which a file is not being written any more: entries are small
ZSTANDARD = bytes.fromhex("28b52ffd")  # how JAX's entries begin if that library is there
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
NO_LINKS = getattr(os, "O_NOFOLLOW", 0)  # Windows has no such flag, nor owners to compare


def folder() -> Path | None:
    """Where programs are kept: LIMPET_CACHE, or the system's usual place; None if it is empty.

    Each kind of processor has a folder of its own in it: a home folder may be shared by several.
    """
    chosen = os.environ.get("LIMPET_CACHE")
    if chosen == "":
        return None
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(chosen or f"{base}/limpet").expanduser().absolute() / _processor()


@functools.cache
def _processor() -> str:
    features = llvm.get_host_cpu_features().flatten()
    return f"{llvm.get_host_cpu_name()}-{hashlib.sha256(features.encode()).hexdigest()[:8]}"


@functools.cache
def _is_usable(place: Path) -> bool:
    """Whether programs can be kept there; makes the folder, and says once why if they cannot."""
    try:
        for missing in reversed([p for p in (place, *place.parents) if not p.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        reason = _danger(place)
    except OSError as error:
        reason = f"{error.strerror} ({error.filename})"
    if reason is None and not os.access(place, os.W_OK):
        reason = "it cannot be written to"
    if reason is not None:
        LOG.warning(
            "Compiled programs are not kept in %s: %s. Make the folder yours alone (chmod go-w), or"
            " name another in LIMPET_CACHE.",
            place,
            reason,
        )
    return reason is None


def _danger(place: Path) -> str | None:
    """What lets others put programs into a folder, if anything does."""
    if os.name == "nt":
        return None
    found = place.resolve()
    for path in (place, found, *place.parents, *found.parents):
        about = path.stat()
        above = path not in (place, found)
        # in folders that are sticky, such as /tmp, others cannot rename what is not theirs
        if about.st_mode & OTHERS_MAY_WRITE and not (above and about.st_mode & stat.S_ISVTX):
            return f"others can write to {path}"
        if about.st_uid not in ((os.getuid(), 0) if above else (os.getuid(),)):
            return f"{path} belongs to another user"
    return None


@functools.cache
def keep_programs() -> None:
    """Let JAX keep its programs too, unless the user has told it where: before it compiles."""
    place, given = folder(), getattr(jax.config, "jax_compilation_cache_dir", None)
    if place is None or given or not _is_usable(place):
        return
    _tidy(place)
    with contextlib.suppress(OSError):
        _remove_cut_off(place)
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
    compilation_cache.reset_cache()  # JAX decides with its first program whether to keep any


def load_or_make(key: str, make: Callable[[], bytes]) -> bytes:
    """The bytes kept under a key, or else made and kept."""
    place = folder()
    if place is None or not _is_usable(place):
        return make()
    path = place / f"{key}.native"
    with contextlib.suppress(OSError):
        found = _read(path)
        if found[:32] == _digest(key, found[32:]):
            os.utime(path)  # it is in use
            return found[32:]
    data = make()
    with contextlib.suppress(OSError):
        _write(path, _digest(key, data) + data)
        _tidy(place)
    return data


def _digest(key: str, data: bytes) -> bytes:
    """Of the bytes together with their key, so that those of another key are not taken for them."""
    return hashlib.sha256(key.encode() + b"\0" + data).digest()


def _read(path: Path) -> bytes:
    with open(os.open(path, os.O_RDONLY | NO_LINKS), "rb") as file:
        return file.read()


def _write(path: Path, data: bytes) -> None:
    """Write a file that is whole or not there at all, under a name that nobody can guess."""
    draft = path.with_name(f"{secrets.token_hex(16)}.draft")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS
        with open(os.open(draft, flags, 0o600), "wb") as file:
            file.write(data)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _tidy(place: Path) -> None:
    """Remove the files that were not used for longest, until the rest fits MOST_BYTES."""
    files: list[tuple[float, int, str]] = []
    for entry in os.scandir(place):
        with contextlib.suppress(OSError):  # another process may have removed it
            about = entry.stat(follow_symlinks=False)
            files.append((max(about.st_mtime, about.st_atime), about.st_size, entry.path))
    size = sum(length for _, length, _ in files)
    for _, length, path in sorted(files):
        if size <= MOST_BYTES:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
            size -= length


def _remove_cut_off(place: Path) -> None:
    """Remove entries of JAX's that are not whole, of those that are new since the last look."""
    look, until = place / "looked", time.time() - SECONDS_OF_WRITING
    since = look.stat().st_mtime if look.exists() else 0.0
    for path in place.glob("*-cache"):
        with contextlib.suppress(OSError):
            if since < path.stat().st_mtime <= until and not _is_whole(_read(path)):
                path.unlink()
    _write(look, b"")
    os.utime(look, (until, until))


def _is_whole(entry: bytes) -> bool:
    """Whether what JAX keeps can be unpacked; what only another library unpacks counts as whole."""
    if entry.startswith(ZSTANDARD):
        return True
    try:
        zlib.decompress(entry)
    except zlib.error:
        return False
    return True
