"""Long calls inside libraries, where a signal would not be heard, as calls that can be left."""

import functools
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait

WAIT = 0.2  # seconds between two looks at a call that is long


def interruptible(function):
    """The same function, done in a thread of its own while the main thread waits.

    For calls that are long inside a library, where no signal would be heard. A handler that raises
    leaves the call behind, to end unseen.
    """

    @functools.wraps(function)
    def call(*arguments):
        if threading.current_thread() is not threading.main_thread():
            return function(*arguments)
        thread = ThreadPoolExecutor(1)
        future = thread.submit(function, *arguments)
        thread.shutdown(wait=False)
        while not_done([future], WAIT):
            pass
        return future.result()

    return call


def not_done(futures: Iterable[Future], seconds: float) -> set[Future]:
    """What is still not done after so many seconds.

    Signals are heard meanwhile. (They are also by `Thread.join`, but Python 3.11 believes that a
    thread has ended if a handler raises in there, and does not wait for it before it exits.)
    """
    return wait(futures, seconds).not_done
