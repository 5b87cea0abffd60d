"""Stores in folders: files are never reached through a link, and said plainly if refused.

A file is replaced by renaming a draft that is complete and on the disk, so after a kill or a power
cut it is either the old one or the new one. A run locks its folder, and a job the file of its tile.
"""

import contextlib
import errno
import glob
import io
import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from limpet.draws.home import DRAFTS, Bytes, DamagedError, Files, Hold, Home
from limpet.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

OPEN_AT_ONCE = 64  # drafts on their way to the disk together, which is faster than one by one
BUSY = 30.0  # seconds after which a process that does not end its commit has stopped, or hangs
STALE = 60.0  # seconds after which a draft that nobody holds was left by a killed process
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)
PLAIN = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # opening must not wait for the other end of a pipe


class Folder(Home):
    """A folder, by its path."""

    locks = True

    def __init__(self, path: Path):
        self.path = path
        self.address = str(path.absolute())  # the same everywhere, as a rule, where it is shared

    def __str__(self):
        return str(self.path)

    def exists(self) -> bool:
        """Whether there is anything, be it a link to nowhere."""
        return os.path.lexists(self.path)

    def check_writable(self):
        """Only writing tells."""

    def read(self, name: str, size: int | None = None, most: int | None = None) -> Bytes:
        """All of a file; its size is looked at first."""
        with self._opened(name) as (file, length):
            about = f"{name!r} has {length:,} bytes: expected"
            if size is not None and length != size:
                raise DamagedError(f"{about} {size:,}")
            if most is not None and length > most:
                raise DamagedError(f"{about} {most:,} at most")
            return _read(file, name, length)

    def read_first(self, name: str, most: int) -> Bytes:
        """What a file begins with."""
        with self._opened(name) as (file, length):
            return _read(file, name, min(length, most))

    @contextlib.contextmanager
    def _opened(self, name) -> Iterator[tuple[int, int]]:
        """A file, open, and its length."""
        try:
            self._check_folders(name)
            file = os.open(self.path / name, os.O_RDONLY | AT_ONCE | PLAIN)
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
            yield file, status.st_size
        except OSError as error:
            raise DamagedError(f"{name!r} cannot be read ({error.strerror or error})") from None
        finally:
            os.close(file)

    def size_of(self, name: str) -> int | None:
        """How many bytes a file has; None if there is none."""
        try:
            return os.lstat(self.path / name).st_size
        except OSError:
            return None

    def names_in(self, folder: str) -> list[str]:
        """The names in a folder of a store; none if there is no such folder, or a link."""
        try:
            self._check_folders(f"{folder}/any")
            return os.listdir(self.path / folder)
        except (OSError, DamagedError):
            return []

    def all_names(self) -> Iterable[tuple[str, bool]]:
        """Every file and link; drafts as well."""
        for folder, folders, names in os.walk(self.path):
            for name in sorted(folders + names):
                path = Path(folder) / name
                mode = os.lstat(path).st_mode
                if not stat.S_ISDIR(mode):
                    yield path.relative_to(self.path).as_posix(), stat.S_ISLNK(mode)

    def write(self, files: Files, draft: str = "draft"):
        """Replace files, each by its parts one after the other; all are on the disk on return."""
        for first in range(0, len(files), OPEN_AT_ONCE):
            batch = files[first : first + OPEN_AT_ONCE]
            drafts = [f"{DRAFTS}/{draft}.{k}" for k in range(len(batch))]
            with contextlib.ExitStack() as opened:
                written = [
                    opened.enter_context(self._draft(name, parts))
                    for name, (_, parts) in zip(drafts, batch, strict=True)
                ]
                for file in written:
                    os.fsync(file.fileno())
            for name, (place, _) in zip(drafts, batch, strict=True):
                self._check_folders(place)
                os.replace(self.path / name, self.path / place)
        for folder in sorted({os.path.dirname(name) for name, _ in files}):
            _sync_folder(self.path / folder)

    def _draft(self, name, parts):
        self._check_folders(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN
        try:
            number = os.open(self.path / name, flags, 0o666)
        except FileExistsError:  # left by a run that was killed, or of a disk that was full
            os.unlink(self.path / name)
            number = os.open(self.path / name, flags, 0o666)
        file = os.fdopen(number, "wb")
        try:
            for part in parts:
                file.write(part)
            file.flush()
        except BaseException:
            with contextlib.suppress(OSError):  # what could not be written cannot be at the end
                file.close()
            raise
        return file

    def create(self, files: Files, folders: Iterable[str]) -> Hold:
        """Make a store under another name, and rename it: it is either whole or not there."""
        draft = Folder(self.path.parent / f".{self.path.name}.{uuid.uuid4().hex}")
        held = None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._remove_stale()
        try:
            draft.path.mkdir()
            held = draft.hold()
            draft.fill(files, folders)
            self._rename(draft.path)
            _sync_folder(self.path.parent)
        except BaseException:
            if held is not None:
                held.close()
            shutil.rmtree(draft.path, ignore_errors=True)
            raise
        held.path = self.path
        return held

    def fill(self, files: Files, folders: Iterable[str]):
        """Make all folders, and write what there is at first."""
        for folder in {*(os.path.dirname(name) for name, _ in files), *folders, DRAFTS}:
            (self.path / folder).mkdir(parents=True, exist_ok=True)
        self.write(files)

    def _rename(self, draft):
        """Give a store its name; never over one that is there."""
        try:
            if os.path.lexists(self.path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            draft.rename(self.path)  # over a store that was made since, this fails: it is not empty
        except OSError as error:
            if error.errno not in TAKEN:
                raise
            raise self.made_meanwhile() from None

    def _remove_stale(self):
        """Remove drafts of this store that killed processes left."""
        for draft in self.path.parent.glob(f".{glob.escape(self.path.name)}.{'[0-9a-f]' * 32}"):
            with contextlib.suppress(OSError, StoreError):
                if draft.is_symlink() or time.time() - draft.stat().st_mtime < STALE:
                    continue
                held = Folder(draft).hold()
                shutil.rmtree(draft, ignore_errors=True)
                held.close()

    def hold(self, shared: bool = False) -> "FolderHold":
        """Open the folder as no other run can, but for others who share it as well."""
        held = self.enter()
        if fcntl is None or held.folder is None:
            return held
        with self.explaining("open"):
            if not _lock(held.folder, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
                held.close()
                raise StoreError(
                    f"store={str(self)!r} is being written to by another run: wait for it, or stop"
                    " it (limpet.open can read the store meanwhile)."
                )
        return held

    def enter(self) -> "FolderHold":
        """Open the folder, as any number of processes can."""
        held = FolderHold(self.path)
        if fcntl is None:
            return held
        if not self.path.exists():
            raise StoreError(f"There is no store {str(self)!r}: check the path.")
        with self.explaining("open"):
            held.folder = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return held

    def tidy(self):
        """Remove what a killed run was writing."""
        self._check_folders(f"{DRAFTS}/draft")
        for name in os.listdir(self.path / DRAFTS):
            os.unlink(self.path / DRAFTS / name)

    def anchored(self) -> "Folder":
        """The same, whatever folder the process goes to."""
        return Folder(self.path.absolute())

    def remedy(self, error: OSError) -> str:
        """What to do about something that the system refused."""
        if error.errno in FULL:
            return "Make room on the disk"
        if error.errno in REFUSED:
            return "Choose a folder that can be written to"
        return "Choose another path"

    def _check_folders(self, name):
        """Refuse a way to a file that leads out of the store."""
        _check_folders(self.path, name)


class FolderHold(Hold):
    """An open folder and perhaps a file in it, which are locked."""

    def __init__(self, path: Path):
        self.path = path
        self.folder: int | None = None
        self.owned: int | None = None

    def own(self, name: str) -> bool:
        """Lock a file, which is made if it was not there."""
        if fcntl is None:
            return True
        self.owned = self._open(name)
        return _lock(self.owned, fcntl.LOCK_EX)

    @contextlib.contextmanager
    def owning(self, name: str) -> Iterator[None]:
        """Lock a file for a moment; others have it no longer than a commit takes."""
        if fcntl is None:
            yield
            return
        number, until = self._open(name), time.monotonic() + BUSY
        try:
            while not _lock(number, fcntl.LOCK_EX):
                if time.monotonic() > until:
                    raise OSError(errno.EBUSY, f"another process has had {name!r} for long")
                time.sleep(0.01)
            yield
        finally:
            os.close(number)

    def _open(self, name):
        _check_folders(self.path, name)
        return os.open(self.path / name, os.O_RDWR | os.O_CREAT | PLAIN, 0o666)

    def is_there(self) -> bool:
        """Whether the path is still that of the open folder."""
        try:
            now = os.stat(self.path)
            return self.folder is None or os.path.samestat(now, os.fstat(self.folder))
        except FileNotFoundError:
            return False

    def close(self):
        """Let others write."""
        held, self.folder, self.owned = (self.owned, self.folder), None, None
        for number in held:
            if number is not None:
                os.close(number)


def _lock(number: int, how: int) -> bool:
    """Whether an open file or folder could be locked; the lock ends with the process."""
    assert fcntl is not None
    try:
        fcntl.flock(number, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(file, name, length) -> Bytes:
    contents = bytearray(length)
    with io.FileIO(file, closefd=False) as opened:
        view, done = memoryview(contents), 0
        while done < len(view) and (more := opened.readinto(view[done:])):
            done += more
    if done < len(view):
        raise DamagedError(f"{name!r} ended early")
    return contents


def _check_folders(path, name):
    parts = name.split("/")[:-1]
    for k in range(len(parts)):
        folder = "/".join(parts[: k + 1])
        if not stat.S_ISDIR(os.lstat(path / folder).st_mode):
            raise DamagedError(f"{folder!r} is a link, or not a folder")


def _sync_folder(path: Path):
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
