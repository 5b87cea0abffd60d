"""Files of a store: read and written whole, never through a link, and said plainly if refused.

A file is replaced by renaming a draft that is complete and on the disk, so after a kill or a power
cut it is either the old one or the new one.
"""

import contextlib
import errno
import hashlib
import io
import os
import stat
from pathlib import Path

import google_crc32c
import numpy as np

from limpet.errors import StoreError

DRAFTS = "limpet/drafts"  # inside a store; what a killed run leaves here means nothing
OPEN_AT_ONCE = 64  # drafts on their way to the disk together, which is faster than one by one
TAG_BYTES = 16
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
PLAIN = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # opening must not wait for the other end of a pipe


class DamagedError(StoreError):
    """A file of a store that is not what was written, or is missing."""


def tag(key: bytes, name: str, contents) -> bytes:
    """What tells that these contents are of this run and this place in it.

    The checksum is one that processors compute; the digest of a few bytes binds it to its place.
    """
    numbers = np.frombuffer(contents, np.uint8)
    place = f"{name} {google_crc32c.value(numbers):08x} {numbers.nbytes}"
    return hashlib.blake2b(place.encode(), key=key, digest_size=TAG_BYTES).digest()


def read(store: Path, name: str, size: int | None = None, most: int | None = None) -> bytearray:
    """All of a file; its size is looked at first."""
    try:
        _check_folders(store, name)
        file = os.open(store / name, os.O_RDONLY | AT_ONCE | PLAIN)
    except FileNotFoundError:
        raise DamagedError(f"{name!r} is missing") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise DamagedError(f"{name!r} is a link") from None
        raise DamagedError(f"{name!r} cannot be read ({error.strerror or error})") from None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedError(f"{name!r} is not a file")
        length = f"{name!r} has {status.st_size:,} bytes: expected"
        if size is not None and status.st_size != size:
            raise DamagedError(f"{length} {size:,}")
        if most is not None and status.st_size > most:
            raise DamagedError(f"{length} {most:,} at most")
        contents = bytearray(status.st_size)
        with io.FileIO(file, closefd=False) as opened:
            view, done = memoryview(contents), 0
            while done < len(view) and (more := opened.readinto(view[done:])):
                done += more
    except OSError as error:
        raise DamagedError(f"{name!r} cannot be read ({error.strerror or error})") from None
    finally:
        os.close(file)
    if done < len(view):
        raise DamagedError(f"{name!r} ended early")
    return contents


def write(store: Path, files: list[tuple[str, tuple]], draft: str = "draft"):
    """Replace files, each by its parts one after the other; all are on the disk on return."""
    for first in range(0, len(files), OPEN_AT_ONCE):
        batch = files[first : first + OPEN_AT_ONCE]
        drafts = [f"{DRAFTS}/{draft}.{k}" for k in range(len(batch))]
        with contextlib.ExitStack() as opened:
            written = [
                opened.enter_context(_draft(store, name, parts))
                for name, (_, parts) in zip(drafts, batch, strict=True)
            ]
            for file in written:
                os.fsync(file.fileno())
        for name, (place, _) in zip(drafts, batch, strict=True):
            _check_folders(store, place)
            os.replace(store / name, store / place)
    for folder in sorted({os.path.dirname(name) for name, _ in files}):
        sync_folder(store / folder)


def _draft(store, name, parts):
    _check_folders(store, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN
    try:
        number = os.open(store / name, flags, 0o666)
    except FileExistsError:  # left by a run that was killed, or of a disk that was full
        os.unlink(store / name)
        number = os.open(store / name, flags, 0o666)
    file = os.fdopen(number, "wb")
    try:
        for part in parts:
            file.write(part)
        file.flush()
    except BaseException:
        with contextlib.suppress(OSError):  # what could not be written cannot be at the end either
            file.close()
        raise
    return file


def open_lock(store: Path, name: str) -> int:
    """A file that is there to be locked, open; made if it was not there."""
    _check_folders(store, name)
    return os.open(store / name, os.O_RDWR | os.O_CREAT | PLAIN, 0o666)


def remove_drafts(store: Path):
    """Remove what a killed run was writing."""
    _check_folders(store, f"{DRAFTS}/draft")
    for name in os.listdir(store / DRAFTS):
        os.unlink(store / DRAFTS / name)


def sync_folder(path: Path):
    """See that a folder's list of files is on the disk."""
    if os.name == "nt":  # folders cannot be opened there
        return
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some disks cannot do this
            raise
    finally:
        os.close(folder)


def names_in(store: Path, folder: str) -> list[str]:
    """The names in a folder of a store; none if there is no such folder, or a link."""
    try:
        _check_folders(store, f"{folder}/any")
        return os.listdir(store / folder)
    except (OSError, DamagedError):
        return []


def _check_folders(store, name):
    """Refuse a way to a file that leads out of the store."""
    parts = name.split("/")[:-1]
    for k in range(len(parts)):
        folder = "/".join(parts[: k + 1])
        if not stat.S_ISDIR(os.lstat(store / folder).st_mode):
            raise DamagedError(f"{folder!r} is a link, or not a folder")


@contextlib.contextmanager
def explaining(path: Path, doing: str):
    """What the system refused, as a StoreError."""
    try:
        yield
    except DamagedError as error:
        raise StoreError(f"Could not {doing} store={str(path)!r}: {error}.") from None
    except OSError as error:
        reason = "choose another path"
        if error.errno in FULL:
            reason = "make room on the disk"
        elif error.errno in REFUSED:
            reason = "choose a folder that can be written to"
        after = "" if doing == "create" else ", then go on with limpet.resume: all that was"
        after += "" if doing == "create" else " committed before is safe"
        raise StoreError(
            f"Could not {doing} store={str(path)!r}: {error.strerror or error}."
            f" {reason.capitalize()}{after}."
        ) from error
