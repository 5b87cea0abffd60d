"""What a run shows while it goes on: a live panel in a terminal, plain lines elsewhere.

Showing never ends a run: what cannot be written is dropped.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple, cast

import rich.console
import rich.live
import rich.table
import rich.text
from rich.progress_bar import ProgressBar

from limpet.errors import InputError, LimpetWarning, warn
from limpet.report import notebook
from limpet.run.mixing import QUIET

SECONDS_BETWEEN_LINES = 10.0  # of plain text: few in a log, and soon enough for a person
BAR_COLUMNS = 32  # where there is room for them: the panel then has 80, as terminals usually do
COLUMNS_BESIDE_BAR = 48  # that the rest of its line takes
DOING = {
    "start": "starting",
    "ladder": "climbing",
    "compile": "compiling",
    "warmup": "warming up",
    "draws": "drawing",
    "done": "done",
}
# phases of which it is not known how far they are, and what may be said; limpet.lanes refuses
# programs that it would compile for more than a minute
OPEN_ENDED = {
    "start": "finding the surface",
    "ladder": "finding a ladder",
    "compile": "up to a minute",
}


class Progress(NamedTuple):
    """How far a run is; `None` where it is too early to tell.

    `phase` is "start" (looking for the surface), "ladder" (of `limpet.Exchange()`), "compile",
    "warmup", "draws" or "done". `r_hat` and `ess` are running estimates of what `limpet.summary`
    will show, of the worst of 32 coordinates; there is no `ess` while chains disagree.
    """

    phase: str
    draws: int  # so far, of all chains together
    asked: int
    chains: int
    draws_per_second: float | None
    seconds_left: float | None  # until the run is done; at most, of a warm-up that ends by itself
    acceptance: dict[str, float | None]
    r_hat: float | None
    ess: float | None
    elapsed: float = 0.0  # seconds since the run began, or went on
    steps: int = 0  # of warm-up that every chain has made
    warmup: int = 0  # steps of warm-up per chain; at most, if it ends by itself
    workers: int | None = None  # of an executor, that have answered lately
    ends_by_itself: bool = False  # whether warm-up does
    settled: int | None = None  # rounds without a change of sizes, while these are being found
    ess_asked: int | None = None  # of a run that draws until it has so many effective draws


Show = Callable[[Progress], object]


def at_the_start(chains: int, draws: int, ess: int | None = None) -> Progress:
    """The progress of a run that has just begun."""
    begun = Progress("start", 0, chains * draws, chains, None, None, {}, None, None)
    return begun._replace(ess_asked=ess)


@contextlib.contextmanager
def show_progress(progress: bool | Show) -> Iterator[Show]:
    """A function to be given the progress now and then."""
    if callable(progress):
        yield _UsersFunction(progress)
    elif not isinstance(progress, bool):
        raise InputError(
            f"progress={progress!r}: expected True, False, or a function that is given a"
            " limpet.Progress about five times a second."
        )
    elif not progress:
        yield lambda _: None
    else:
        console = rich.console.Console(file=cast(IO[str], Unfailing(sys.stderr)))
        if console.is_jupyter:
            cell = notebook.Display(rich.text.Text("limpet starting", style="bold"))
            yield lambda now: cell.update(panel(now, notebook.WIDTH))
        elif is_live(console):
            last = _Panel()
            with rich.live.Live(last, console=console, refresh_per_second=8):
                yield last
        else:
            with _Lines(console) as lines:
                yield lines


def is_live(console: rich.console.Console) -> bool:
    """Whether what was written can be written over: FORCE_COLOR makes no terminal of a file."""
    return console.is_terminal and not console.is_dumb_terminal and console.file.isatty()


class Unfailing:
    """A stream that drops what it cannot write: nobody reads it any more, or there is none."""

    def __init__(self, stream):
        self.stream = stream

    def write(self, text: str) -> int:
        """Write, if that is possible."""
        with contextlib.suppress(Exception):
            try:
                self.stream.write(text)
            except UnicodeEncodeError as error:
                self.stream.write(text.encode(error.encoding, "replace").decode(error.encoding))
        return len(text)

    def flush(self):
        """Flush, if that is possible."""
        with contextlib.suppress(Exception):
            self.stream.flush()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        with contextlib.suppress(Exception):
            return self.stream.isatty()
        return False

    def __getattr__(self, name):
        return getattr(self.stream, name)


class _UsersFunction:
    """A user's function, which may fail: that is worth a warning, once."""

    def __init__(self, function: Show):
        self.function, self.failed = function, False

    def __call__(self, now: Progress):
        try:
            return self.function(now)
        except Exception as error:
            if not self.failed:
                self.failed = True
                warn(
                    f"progress={self.function!r} raised {type(error).__name__}: {error}. The run"
                    " goes on; to stop it return False.",
                    LimpetWarning,
                )


class _Latest:
    """The progress as it was told last, on a clock that goes on."""

    def __init__(self):
        self.told: tuple[Progress, float] | None = None

    def __call__(self, now: Progress):
        self.told = now, time.monotonic()

    def now(self) -> Progress | None:
        """The progress as it is now, as far as that is known."""
        if self.told is None:
            return None
        progress, at = self.told
        if progress.phase == "done":
            return progress
        return progress._replace(elapsed=progress.elapsed + time.monotonic() - at)


class _Panel(_Latest):
    """What a live display draws again and again."""

    def __rich_console__(self, console, options):
        if (now := self.now()) is not None:
            yield panel(now, options.max_width)


class _Lines(_Latest):
    """A line at each change of phase, and every ten seconds, also while nothing is told."""

    def __init__(self, console):
        super().__init__()
        self.console, self.over = console, threading.Event()
        self.thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def __call__(self, now: Progress):
        changed = self.told is None or self.told[0].phase != now.phase
        super().__call__(now)
        if changed:
            self._print()

    def _tick(self):
        while not self.over.wait(SECONDS_BETWEEN_LINES):
            self._print()

    def _print(self):
        if (now := self.now()) is not None:
            self.console.print(line(now), soft_wrap=True, highlight=False)


def line(now: Progress) -> str:
    """The progress in one line of text."""
    elapsed = [f"{_clock(now.elapsed)} elapsed"] if now.elapsed >= 1 else []
    elapsed += _workers(now)
    if now.phase in OPEN_ENDED or now.phase == "warmup":
        doing = f"limpet: {now.chains:,} chains, {_doing(now)}"
        return ", ".join([doing, *_before(now), *_waiting(now), *_pace(now), *elapsed])
    done, whole = _far(now)
    share = f"limpet: {_draws(now).lstrip()} ({min(done / whole, 1):.0%})"
    accepted = [f"{figure} accepted" for figure in _acceptance(now)]
    return ", ".join([share, *_pace(now), *accepted, *_mixing(now), *elapsed])


def panel(now: Progress, width: int = 80):
    """The progress as a bar with figures below it: as many lines from first to last."""
    done, whole = _far(now)
    columns = max(1, min(BAR_COLUMNS, width - COLUMNS_BESIDE_BAR))
    open_ended = now.phase in OPEN_ENDED or _is_at_most(now)
    bar = ProgressBar(whole, done, width=columns, pulse=open_ended)
    bar.complete_style = bar.pulse_style = "cyan"
    bar.finished_style = "green"
    heading = rich.table.Table.grid(padding=(0, 1))
    share = "    " if open_ended else f"{min(done / whole, 1):4.0%}"
    figures = [share, f"{now.chains:,} chains", *_workers(now), _clock(now.elapsed)]
    heading.add_row(bar, "   ".join(figures))
    table = rich.table.Table.grid(padding=(0, 2))
    table.add_column(width=len("limpet warming up"))
    table.add_row(rich.text.Text(f"limpet {_doing(now)}", style="bold"), heading)
    waiting, pace = list(_waiting(now)), list(_pace(now))
    figures = {
        "draws": [_draws(now).removesuffix(" draws"), *_before(now), *([] if waiting else pace)],
        "accepted": _acceptance(now),
        "mixing": [*waiting, *pace] if waiting else _mixing(now),
    }
    for name, values in figures.items():
        table.add_row(rich.text.Text(name, style="dim"), "   ".join(values) or "too early to tell")
    return table


def _far(now):
    """How much is done, and how much there is to do: of what matters most at the time."""
    if now.phase == "warmup":
        return now.steps, max(now.warmup, 1)  # there may be no warm-up
    if now.ess_asked is not None:
        return now.ess or 0.0, now.ess_asked
    return now.draws, now.asked


def _draws(now):
    if now.ess_asked is not None:  # how many it takes nobody knows
        return f"{now.draws:,} draws"
    asked = f"{now.asked:,}"
    return f"{now.draws:>{len(asked)},} of {asked} draws"


def _workers(now):
    return [] if now.workers is None else [f"{now.workers:,} workers"]


def _doing(now):
    if now.phase == "done" and now.draws < now.asked:
        return "stopped"
    return DOING[now.phase]


def _before(now):
    """How far a run is that does not draw yet."""
    if now.phase in OPEN_ENDED:
        yield OPEN_ENDED[now.phase]
    if _is_at_most(now):
        yield f"step {now.steps:,} of at most {now.warmup:,}"
    elif now.phase == "warmup":
        yield f"{now.steps:,} of {now.warmup:,} steps"


def _is_at_most(now):
    """Whether it is only known how long warm-up may take."""
    return now.phase == "warmup" and now.ends_by_itself


def _waiting(now):
    """What a warm-up waits for that ends by itself."""
    if _is_at_most(now) and now.settled is None:
        yield "sizes found, until chains agree"
    elif _is_at_most(now):
        yield f"sizes settled in {now.settled} of {QUIET} rounds"


def _pace(now):
    if now.draws_per_second and now.phase in ("draws", "done"):
        yield f"{now.draws_per_second:,.0f} draws/s"
    if now.seconds_left is not None and now.phase in ("warmup", "draws"):
        yield f"{'at most ' if _is_at_most(now) else ''}{_clock(now.seconds_left)} left"


def _acceptance(now):
    for move, acceptance in now.acceptance.items():
        if acceptance is not None:
            yield f"{move} {acceptance:.1%}"


def _mixing(now):
    if now.r_hat is not None:
        yield f"worst R-hat {now.r_hat:.3f}"
    if now.ess is not None:
        of = "" if now.ess_asked is None else f" of {now.ess_asked:,}"
        yield f"least ESS about {now.ess:,.0f}{of}"


def _clock(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
