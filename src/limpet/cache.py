"""Compiled programs are kept between processes, in a folder of the user's.

It may be removed at any time. A file that cannot be read or written is no mishap: the program is
compiled again.
"""

import contextlib
import functools
import hashlib
import os
import sys
from pathlib import Path

import jax
import llvmlite.binding as llvm


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
    return Path(chosen or f"{base}/limpet").expanduser() / _processor()


@functools.cache
def _processor():
    features = llvm.get_host_cpu_features().flatten()
    return f"{llvm.get_host_cpu_name()}-{hashlib.sha256(features.encode()).hexdigest()[:8]}"


@functools.cache
def _usable(place: Path) -> bool:
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
    return os.access(place, os.W_OK)


def keep_programs():
    """Turn on JAX's own cache, unless the user has."""
    place, given = folder(), getattr(jax.config, "jax_compilation_cache_dir", None)
    if place is not None and not given and _usable(place):
        jax.config.update("jax_compilation_cache_dir", str(place))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)


def kept(key: str, make) -> bytes:
    """The bytes kept under a key, or else made and kept."""
    place = folder()
    if place is None or not _usable(place):
        return make()
    path = place / f"{key}.native"
    with contextlib.suppress(OSError):
        found = path.read_bytes()
        if found[:32] == hashlib.sha256(found[32:]).digest():
            return found[32:]
    data = make()
    with contextlib.suppress(OSError):
        draft = path.with_suffix(f".{os.getpid()}")  # whole or not there at all
        draft.write_bytes(hashlib.sha256(data).digest() + data)
        draft.replace(path)
    return data
