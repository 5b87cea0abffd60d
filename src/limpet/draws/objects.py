"""Stores elsewhere: objects of whatever zarr can write to, such as S3 or a dictionary in memory.

An object is replaced at once, so nothing is renamed. There are no locks: who finds that another
process has gone on with a tile stops (`limpet.draws.writer`).
"""

import asyncio
import contextlib
import errno
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from limpet.draws.home import DamagedError, Files, Hold, Home, UnreachableError
from limpet.errors import StoreError

if TYPE_CHECKING:
    from zarr.abc.store import Store as ZarrStore

CLAIM = "limpet/claim"  # whose store it is while it is being made
AT_ONCE = 64  # objects that are written at a time
LONGEST = 400  # letters of what a store says went wrong

T = TypeVar("T")


class Objects(Home):
    """What a zarr store has below a path."""

    locks = False

    def __init__(self, store: "ZarrStore", below: str, called: str, address: str | None = None):
        self.store, self.below, self.called = store, below.strip("/"), called
        self.address = address

    def __str__(self):
        return self.called

    def _key(self, name):
        return f"{self.below}/{name}" if self.below else name

    def _do(self, work: Callable[[], Awaitable[T]], doing: str) -> T:
        """Wait for what zarr does, in its own thread: what goes wrong is an OSError."""
        from zarr.core.sync import sync

        async def waiting():
            return await work()  # some stores ask for its thread already here

        try:
            return sync(waiting())
        except FileNotFoundError:
            raise
        except Exception as error:  # every kind of store has its own
            first = str(error).strip().split("\n\n")[0]  # obstore goes on at length
            words = " ".join(f"{type(error).__name__}: {first}".split())
            raise OSError(errno.EIO, f"{doing}, {words[:LONGEST]}") from error

    def _reading(self, work: Callable[[], Awaitable[T]], name: str) -> T | None:
        """The same, of what is only read: that it cannot be reached does not mean damage."""
        try:
            return self._do(work, f"reading {name!r}" if name else "looking what there is")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreachableError(
                f"Could not read store={str(self)!r}: {error.strerror}. {self.remedy(error)}."
            ) from error

    def exists(self) -> bool:
        """Whether there is anything below the path."""
        return self._reading(lambda: self.store.is_empty(self.below), "") is False

    def read(self, name: str, size: int | None = None, most: int | None = None) -> bytes:
        """All of an object; its size is looked at first."""
        length = self.size_of(name)
        about = f"{name!r} has {length or 0:,} bytes: expected"
        if length is not None and size is not None and length != size:
            raise DamagedError(f"{about} {size:,}")
        if length is not None and most is not None and length > most:
            raise DamagedError(f"{about} {most:,} at most")
        return self._get(name)

    def read_first(self, name: str, most: int) -> bytes:
        """What an object begins with."""
        from zarr.abc.store import RangeByteRequest

        # some servers of S3 do not take a range that is the whole
        whole = (self.size_of(name) or 0) <= most
        return self._get(name, None if whole else RangeByteRequest(0, most))

    def _get(self, name, part=None) -> bytes:
        from zarr.core.buffer import default_buffer_prototype

        kind, key = default_buffer_prototype(), self._key(name)
        found = self._reading(lambda: self.store.get(key, kind, part), name)
        if found is None:
            raise DamagedError(f"{name!r} is missing")
        return found.to_bytes()

    def size_of(self, name: str) -> int | None:
        """How many bytes an object has; None if there is none."""
        return self._reading(lambda: self.store.getsize(self._key(name)), name)

    def names_in(self, folder: str) -> list[str]:
        """The names below a path that have no further slash."""
        return self._reading(lambda: _all(self.store.list_dir(self._key(folder))), folder) or []

    def all_names(self) -> Iterable[tuple[str, bool]]:
        """Every object of the store; none is a link."""
        before = self._key("")
        names = self._reading(lambda: _all(self.store.list_prefix(before)), "") or []
        inside = sorted(name.removeprefix(before) for name in names)
        return [(name, False) for name in inside if name != CLAIM]

    def write(self, files: Files, draft: str = "draft"):
        """Replace objects; all are stored on return."""
        for first in range(0, len(files), AT_ONCE):
            batch = files[first : first + AT_ONCE]
            ready = [(self._key(name), _buffer(parts)) for name, parts in batch]
            self._do(lambda ready=ready: self._set(ready), "writing")

    async def _set(self, ready):
        await asyncio.gather(*(self.store.set(*each) for each in ready))

    def create(self, files: Files, folders: Iterable[str]) -> Hold:
        """Claim the path, then write: the last of the files makes it a store."""
        mine = uuid.uuid4().hex.encode()
        claim = self._key(CLAIM), _buffer([mine])
        self._do(lambda: self.store.set_if_not_exists(*claim), "writing")
        with contextlib.suppress(DamagedError):
            if self.read(CLAIM, most=len(mine)) == mine:
                self.write(files[:-1])
                self.write(files[-1:])
                return ObjectsHold()
        raise self.made_meanwhile()

    def hold(self, shared: bool = False) -> Hold:
        """See that it can be written to; nobody is kept out."""
        self.check_writable()
        return ObjectsHold()

    def enter(self) -> Hold:
        """The same."""
        return self.hold()

    def check_writable(self):
        """Refuse a store that is not made for what a run does."""
        store = self.store
        lacking = {
            "is read-only": store.read_only,
            "cannot be written to": not store.supports_writes,
            "cannot replace what it has": not store.supports_deletes,
            "cannot list what it has": not store.supports_listing,
        }
        for what, lacks in lacking.items():
            if lacks:
                raise StoreError(f"store={str(self)!r} {what}: expected one that is not so.")

    def tidy(self):
        """There are no drafts."""

    def anchored(self) -> "Objects":
        """The same: folders are nothing to it."""
        return self

    def remedy(self, error: OSError) -> str:
        """What to do about something that was refused."""
        return "See that it can be reached, and read and written by you"


class ObjectsHold(Hold):
    """Nothing that could be held."""

    def own(self, name: str) -> bool:
        """Whether none has it is not known."""
        return True

    def owning(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Nor is it for a moment."""
        return contextlib.nullcontext()

    def is_there(self) -> bool:
        """Not known without asking."""
        return True

    def close(self):
        """There is nothing to let go of."""


def _buffer(parts) -> Any:
    from zarr.core.buffer import default_buffer_prototype

    return default_buffer_prototype().buffer.from_bytes(b"".join(parts))


async def _all(names) -> list[str]:
    return [name async for name in names]
