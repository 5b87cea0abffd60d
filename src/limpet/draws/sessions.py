"""Whose workers may write to a store: a word that every coordinator makes up anew.

Who is lent a tile must find that word in the store. So nobody writes to another folder of the same
name, nor to a copy, and nobody goes on once another coordinator has come.
"""

import uuid

from limpet.draws.home import DamagedError, Home

PLACE = "limpet/session"
STOP = "stop"  # the word after it, if tasks are to end at their next commit
LONGEST = 64  # bytes


def new() -> str:
    """A session's own word."""
    return uuid.uuid4().hex


def write(home: Home, session: str, stop: bool = False):
    """Say whose workers may write."""
    words = [session, STOP] if stop else [session]
    home.write([(PLACE, (" ".join(words).encode(),))], f"session-{session}")


def read(home: Home) -> tuple[str, bool] | None:
    """Whose workers may write, and whether they are to stop; None if no one's ever did."""
    try:
        session, *stop = bytes(home.read(PLACE, most=LONGEST)).decode("ascii").split()
    except (DamagedError, ValueError):
        return None
    return session, STOP in stop
