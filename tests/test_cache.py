"""The folder of compiled programs: the user's alone, whole entries only, and limited in size."""

import os
import stat
import subprocess
import sys

import pytest

from limpet.engine import cache

pytestmark = pytest.mark.optimized


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder that is not there yet."""
    monkeypatch.setenv("LIMPET_CACHE", str(tmp_path / "above" / "cache"))
    return cache.folder()


def never():
    raise AssertionError("it was to be found")


def test_it_is_kept_and_found(place):
    assert cache.load_or_make("key", lambda: b"made") == b"made"
    assert cache.load_or_make("key", never) == b"made"
    for path in (place, place.parent, place.parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert [path.name for path in place.iterdir()] == ["key.native"]


def test_an_entry_is_of_its_key_alone(place):
    cache.load_or_make("one", lambda: b"the code of one")
    (place / "one.native").rename(place / "other.native")
    assert cache.load_or_make("other", lambda: b"the code of the other") == b"the code of the other"


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
@pytest.mark.parametrize("above", [False, True])
def test_a_folder_that_others_can_write_to_is_not_used(place, mode, above, caplog):
    place.mkdir(parents=True, mode=0o700)
    (place.parent.parent if above else place).chmod(mode)
    for key in "ab":
        assert cache.load_or_make(key, lambda: b"made") == b"made"
    assert not list(place.iterdir())
    assert caplog.text.count("others can write to") == 1
    assert "chmod go-w" in caplog.text


def test_a_folder_of_another_user_is_not_used(place, monkeypatch, caplog):
    place.mkdir(parents=True, mode=0o700)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    assert cache.load_or_make("key", lambda: b"made") == b"made"
    assert not list(place.iterdir())
    assert "belongs to another user" in caplog.text


def test_links_are_not_followed(place, tmp_path):
    place.mkdir(parents=True, mode=0o700)
    (tmp_path / "precious").write_bytes(b"precious")
    (place / "key.native").symlink_to(tmp_path / "precious")
    assert cache.load_or_make("key", lambda: b"made") == b"made"
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert not (place / "key.native").is_symlink()


def test_the_oldest_go(place, monkeypatch):
    monkeypatch.setattr(cache, "MOST_BYTES", 1000)
    for k in range(9):
        cache.load_or_make(str(k), lambda: bytes(200))
        os.utime(place / f"{k}.native", (k, k))
    left = {path.name for path in place.iterdir()}
    assert left == {f"{k}.native" for k in (5, 6, 7, 8)}


# a fast machine compiles this in less than is worth keeping
CODE = """
import limpet
from limpet.engine import cache
cache.WORTH_KEEPING = 0
limpet.find_start(limpet.Target(lambda x: x[:1] ** 2 + x[1:] ** 2 - 1, 0.1), [1.0, 0.5])
"""


def test_entries_of_jax_that_were_cut_off_are_removed(place):
    """JAX itself leaves them where they are, and warns of them in every process."""
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, "-c", CODE]
    subprocess.run(command, env=environment, check=True)
    assert list(place.glob("jit*-cache"))
    for k, path in enumerate(place.glob("jit*-cache")):
        os.truncate(path, path.stat().st_size * (k % 2) // 2)
        os.utime(path, (1, 1))
    os.utime(place / "looked", (0, 0))
    subprocess.run(command, env=environment, check=True)
    assert all(cache._is_whole(path.read_bytes()) for path in place.glob("jit*-cache"))


def test_it_is_made_when_a_target_is_used_and_then_jax_keeps_programs_too(place):
    environment = os.environ.copy()
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    before = f"import limpet, os; assert not os.path.exists({str(place.parent)!r})"
    subprocess.run([sys.executable, "-c", before + CODE], env=environment, check=True)
    assert any("jit" in path.name for path in place.iterdir())
