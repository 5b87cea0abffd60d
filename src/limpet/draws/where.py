"""From what a user calls a store to where it is."""

import os
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limpet.draws.folder import Folder
from limpet.draws.home import Home
from limpet.draws.objects import Objects
from limpet.errors import InputError

if TYPE_CHECKING:
    from zarr.abc.store import Store as ZarrStore
    from zarr.storage import StorePath

    StoreLike = str | os.PathLike[str] | ZarrStore | StorePath
else:
    StoreLike = Any  # importing zarr takes long, and few need it

# kinds of addresses that obstore knows; fsspec knows others, if its parts are installed
OBSTORE = ("s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss")
PATIENCE = 30  # seconds in which an object store that does not answer is asked again


def as_home(store: Any) -> Home:
    """Where a store is: a folder's path, a URL, or a zarr store."""
    if isinstance(store, str) and "://" in store:
        return _at_url(store)
    if isinstance(store, str | os.PathLike):
        if not isinstance(path := os.fspath(store), str) or not path or "\0" in path:
            raise _unknown(store)
        return Folder(Path(path))
    try:
        from zarr.abc.store import Store as ZarrStore
        from zarr.storage import LocalStore, StorePath
    except ImportError:  # so it is none of these
        raise _unknown(store) from None
    given, below = (store.store, store.path) if isinstance(store, StorePath) else (store, "")
    if isinstance(given, LocalStore):
        return Folder(Path(given.root) / below)
    if isinstance(given, ZarrStore):
        return Objects(given, below, str(store))
    raise _unknown(store)


def _unknown(store):
    return InputError(
        f"store={store!r}: expected the path of a folder, such as 'run.zarr', a URL, such as"
        " 's3://bucket/run.zarr', or a zarr store, such as zarr.storage.MemoryStore()."
    )


def _at_url(url: str) -> Home:
    parts = urllib.parse.urlsplit(url)
    if not parts.scheme:
        raise _unknown(url)
    if parts.scheme == "file":
        return Folder(Path(urllib.request.url2pathname(parts.path)))
    try:
        store = _by_obstore(url) if parts.scheme in OBSTORE else _by_fsspec(url)
    except ImportError as error:
        wanted = "'limpet[remote]'" if parts.scheme in OBSTORE else f"fsspec ({error})"
        raise InputError(
            f"store={url!r}: what reads and writes such addresses is not installed:"
            f" python -m pip install {wanted}."
        ) from None
    except Exception as error:  # of their own kinds: no bucket, no account, no such protocol
        raise InputError(
            f"store={url!r} is not understood ({' '.join(str(error).split())}): expected an"
            " address such as 's3://bucket/run.zarr', or a zarr store."
        ) from None
    return Objects(store, "", url, address=url)


def _by_obstore(url) -> "ZarrStore":
    import datetime

    from obstore.store import from_url  # pyright: ignore[reportMissingImports]
    from zarr.storage import ObjectStore

    retries: Any = {"max_retries": 10, "retry_timeout": datetime.timedelta(seconds=PATIENCE)}
    return ObjectStore(from_url(url, retry_config=retries))


def _by_fsspec(url) -> "ZarrStore":
    import fsspec  # noqa: F401  # zarr does not say what is missing
    from zarr.storage import FsspecStore

    return FsspecStore.from_url(url)
