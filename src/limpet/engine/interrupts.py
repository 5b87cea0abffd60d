"""Ctrl-C during long calls inside libraries, where Python would not hear it."""

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

SECONDS_BETWEEN_LOOKS = 0.2  # at a call that is long: what a person takes for at once


def interruptible(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The same function, done in a thread of its own while the main thread waits.

    For calls that are long inside a library, where no signal would be heard. A handler that raises
    leaves the call behind, to end unseen.
    """

    @functools.wraps(function)
    def call(*arguments: Given.args, **named: Given.kwargs) -> Result:
        if threading.current_thread() is not threading.main_thread():
            return function(*arguments, **named)
        thread = ThreadPoolExecutor(1)
        future = thread.submit(function, *arguments, **named)
        thread.shutdown(wait=False)
        return until_done(future)

    return call


class AbandonedError(BaseException):
    """A call was left, for its results are not wanted any more; no fault of the call's."""


_UNWANTED: contextvars.ContextVar[Callable[[], bool]] = contextvars.ContextVar(
    "whether results are not wanted any more", default=lambda: False
)


@contextlib.contextmanager
def leaving_if(unwanted: Callable[[], bool]) -> Generator[None]:
    """Calls inside that can be left, in this thread, are when `unwanted()`: `AbandonedError`."""
    token = _UNWANTED.set(unwanted)
    try:
        yield
    finally:
        _UNWANTED.reset(token)


def until_done(future: Future[Result]) -> Result:
    """The result of a call in another thread; signals are heard meanwhile."""
    while not_done([future], SECONDS_BETWEEN_LOOKS):
        if _UNWANTED.get()():
            raise AbandonedError
    return future.result()


def not_done(futures: Iterable[Future[Any]], seconds: float) -> set[Future[Any]]:
    """What is still not done after so many seconds.

    Signals are heard meanwhile. (They are also by `Thread.join`, but Python 3.11 believes that a
    thread has ended if a handler raises in there, and does not wait for it before it exits.)
    """
    return wait(futures, seconds).not_done
