"""Where the bytes of a store are: a folder, or objects that somebody else keeps.

Everything is read and written whole, by name. What a home must promise is little: what is written
replaces what was there at once or not at all, and is safe on return. What a commit means is not its
business: only a tile's state, written last, says what of its draws counts.
"""

import abc
import contextlib
import hashlib
from collections.abc import Iterable, Iterator

import google_crc32c
import numpy as np

from limpet.errors import StoreError

TAG_BYTES = 16
DRAFTS = "limpet/drafts"  # what a killed run leaves here means nothing
Files = list[tuple[str, tuple]]  # names, and parts that are written one after the other

Bytes = bytes | bytearray


class DamagedError(StoreError):
    """A file of a store that is not what was written, or is missing."""


class UnreachableError(StoreError):
    """A store that does not answer, or not to this user: that says nothing of what it holds."""


def tag(key: bytes, name: str, contents) -> bytes:
    """What tells that these contents are of this run and this place in it.

    The checksum is one that processors compute; the digest of a few bytes binds it to its place.
    """
    numbers = np.frombuffer(contents, np.uint8)
    place = f"{name} {google_crc32c.value(numbers):08x} {numbers.nbytes}"
    return hashlib.blake2b(place.encode(), key=key, digest_size=TAG_BYTES).digest()


class GoneOnError(StoreError):
    """A tile that somebody else has gone on with."""


class Hold(abc.ABC):
    """A store that this process writes to, until it is closed."""

    @abc.abstractmethod
    def own(self, name: str) -> bool:
        """Keep other processes from what has this name; whether none has it."""

    @abc.abstractmethod
    def owning(self, name: str) -> contextlib.AbstractContextManager[None]:
        """The same for a moment; waits for others who have it for a moment."""

    @abc.abstractmethod
    def is_there(self) -> bool:
        """Whether the store was neither removed nor replaced, as far as that is easily seen."""

    @abc.abstractmethod
    def close(self):
        """Let others write; a process that ends lets them, too."""


class Home(abc.ABC):
    """Where a store is; `str` is what the user calls it."""

    locks: bool  # whether a process can keep others out
    address: str | None  # by which other processes may find it, on this machine or another

    @abc.abstractmethod
    def exists(self) -> bool:
        """Whether there is anything, be it no store."""

    @abc.abstractmethod
    def check_writable(self):
        """Refuse what is easily seen not to be made for writing."""

    @abc.abstractmethod
    def read(self, name: str, size: int | None = None, most: int | None = None) -> Bytes:
        """All of a file; one that is longer than it can be is not read."""

    @abc.abstractmethod
    def read_first(self, name: str, most: int) -> Bytes:
        """What a file begins with."""

    @abc.abstractmethod
    def size_of(self, name: str) -> int | None:
        """How many bytes a file has; None if there is none."""

    @abc.abstractmethod
    def names_in(self, folder: str) -> list[str]:
        """The names in a folder of a store; none if there is no such folder."""

    @abc.abstractmethod
    def all_names(self) -> Iterable[tuple[str, bool]]:
        """Every file of the store, and whether it is a link."""

    @abc.abstractmethod
    def write(self, files: Files, draft: str = "draft"):
        """Replace files; all are safe on return. Nobody else may use the same name of a draft."""

    @abc.abstractmethod
    def create(self, files: Files, folders: Iterable[str]) -> Hold:
        """Make a store, refused if there is one; the last of the files says that it is whole.

        Other files may be written into the folders afterwards.
        """

    @abc.abstractmethod
    def hold(self, shared: bool = False) -> Hold:
        """Keep other runs out, but for those who share it as well, where that can be done."""

    @abc.abstractmethod
    def enter(self) -> Hold:
        """Write without keeping anybody out."""

    @abc.abstractmethod
    def tidy(self):
        """Remove what a killed run was writing."""

    @abc.abstractmethod
    def anchored(self) -> "Home":
        """The same, whatever folder the process goes to."""

    @abc.abstractmethod
    def remedy(self, error: OSError) -> str:
        """What to do about something that was refused."""

    @contextlib.contextmanager
    def explaining(self, doing: str) -> Iterator[None]:
        """What was refused, as a StoreError."""
        try:
            yield
        except DamagedError as error:
            raise StoreError(f"Could not {doing} store={str(self)!r}: {error}.") from None
        except OSError as error:
            after = "" if doing == "create" else ", then go on with limpet.resume: all that was"
            after += "" if doing == "create" else " committed before is safe"
            raise StoreError(
                f"Could not {doing} store={str(self)!r}: {error.strerror or error}."
                f" {self.remedy(error)}{after}."
            ) from error

    def made_meanwhile(self) -> StoreError:
        """What to say if a store was made just before this one would have been."""
        return StoreError(
            f"store={str(self)!r} was made by another run since this one began: choose another"
            " path, or go on with that run by limpet.resume once it has ended."
        )
