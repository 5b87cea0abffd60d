"""How a run is asked to stop: by Ctrl-C, by SIGTERM, or by the function that hears its progress."""

import contextlib
import contextvars
import signal
import threading
from collections.abc import Callable, Iterator

from limpet.errors import InterruptedWarning, warn

OnInterruption = Callable[[InterruptedWarning], object]


def _warn(interruption: InterruptedWarning):
    warn(interruption, InterruptedWarning)


_ON_INTERRUPTION: contextvars.ContextVar[OnInterruption] = contextvars.ContextVar(
    "what a run does when it was interrupted", default=_warn
)


@contextlib.contextmanager
def on_interruption(act: OnInterruption) -> Iterator[None]:
    """Runs inside call `act` when they were interrupted, instead of warning.

    For those who must know, in their own thread: filters of warnings are the whole process's.
    """
    token = _ON_INTERRUPTION.set(act)
    try:
        yield
    finally:
        _ON_INTERRUPTION.reset(token)


def tell_interruption(interruption: InterruptedWarning):
    """Warn that a run was interrupted, or tell whoever wants to know."""
    _ON_INTERRUPTION.get()(interruption)


@contextlib.contextmanager
def every_one_heard() -> Iterator[None]:
    """Interruptions leave what is inside, also those that get lost on the way.

    One in fifty would: Python ignores exceptions in callbacks of its garbage collector, of which
    JAX has a slow one, and JAX makes other errors of some that it meets.
    """
    main = threading.current_thread() is threading.main_thread()
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM) if main}
    before = {number: act for number, act in handlers.items() if callable(act)}
    came = []

    def handle(number, frame):
        try:
            before[number](number, frame)
        except BaseException:  # a handler that returns has dealt with it
            came.append(number)
            raise

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    except Exception as error:
        if came:
            raise KeyboardInterrupt(came[0]) from error
        raise
    finally:
        for number, act in before.items():
            signal.signal(number, act)
    if came:
        raise KeyboardInterrupt(came[0])


class Signals:
    """Ctrl-C and SIGTERM ask to stop; asked twice, they interrupt.

    Only the main thread of a program hears signals.
    """

    def __init__(self):
        self.stop = threading.Event()
        self.came: int | None = None  # the number of the first one
        self._at_once = False

    def __enter__(self):
        main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if main else ()
        self.before = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_):
        self.stop.set()
        for number, handler in self.before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def nothing_to_lose(self) -> Iterator[None]:
        """Leave what is inside at the first signal, for there are no draws yet to be kept."""
        self._at_once = True
        try:
            yield
        except (Exception, KeyboardInterrupt):  # JAX makes other errors of some interruptions
            if self.came is None:
                raise
        finally:
            self._at_once = False

    def _handle(self, number, _):
        again, self.came = self.came is not None, self.came or number
        self.stop.set()
        if again or self._at_once:
            raise KeyboardInterrupt(number)
