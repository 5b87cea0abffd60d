"""What a run shows while it goes on: a live panel in a terminal, plain lines elsewhere."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import rich.console
import rich.live
import rich.table
import rich.text
from rich.progress_bar import ProgressBar

from limpet import notebook
from limpet.errors import InputError

SECONDS = 10.0  # between two plain lines
DOING = {"compile": "compiling", "warmup": "warming up", "draws": "drawing", "done": "done"}
OPEN_ENDED = ("compile", "warmup")  # phases of which it is not known how far they are


class Progress(NamedTuple):
    """How far a run is; `None` where it is too early to tell.

    `phase` is "compile", "warmup", "draws" or "done". `r_hat` and `ess` are running estimates of
    what `limpet.summary` will show, of the worst of 32 coordinates; there is no `ess` while chains
    disagree.
    """

    phase: str
    draws: int  # so far, of all chains together
    asked: int
    chains: int
    draws_per_second: float | None
    seconds_left: float | None
    acceptance: dict[str, float | None]
    r_hat: float | None
    ess: float | None


Show = Callable[[Progress], None]


@contextlib.contextmanager
def shown(progress: bool | Show) -> Iterator[Show]:
    """A function to be given the progress now and then."""
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool):
        raise InputError(
            f"progress={progress!r}: expected True, False, or a function that is given a"
            " limpet.Progress about five times a second."
        )
    elif not progress:
        yield lambda _: None
    else:
        console = rich.console.Console(stderr=True)
        first = rich.text.Text("limpet looking for the surface", style="bold")
        if console.is_jupyter:
            cell = notebook.Display(first)
            yield lambda now: cell.update(panel(now))
        elif console.is_terminal:
            with rich.live.Live(first, console=console, refresh_per_second=8) as live:
                yield lambda now: live.update(panel(now))
        else:
            yield _Lines(console)


class _Lines:
    """A line at each change of phase, and every ten seconds."""

    def __init__(self, console):
        self.console, self.phase, self.last = console, None, -SECONDS

    def __call__(self, now: Progress):
        if now.phase != self.phase or time.monotonic() > self.last + SECONDS:
            self.phase, self.last = now.phase, time.monotonic()
            self.console.print(line(now), soft_wrap=True, highlight=False)


def line(now: Progress) -> str:
    """The progress in one line of text."""
    if now.phase in OPEN_ENDED:
        return f"limpet: {now.chains:,} chains, {_doing(now)}"
    share = f"limpet: {now.draws:,} of {now.asked:,} draws ({now.draws / now.asked:.0%})"
    accepted = [f"{figure} accepted" for figure in _accepted(now)]
    return ", ".join([share, *_pace(now), *accepted, *_mixing(now)])


def panel(now: Progress):
    """The progress as a bar with figures below it: as many lines from first to last."""
    bar = ProgressBar(now.asked, now.draws, width=40, pulse=now.phase in OPEN_ENDED)
    bar.complete_style = bar.pulse_style = "cyan"
    bar.finished_style = "green"
    heading = rich.table.Table.grid(padding=(0, 1))
    heading.add_row(bar, f"{now.draws / now.asked:4.0%}   {now.chains:,} chains")
    table = rich.table.Table.grid(padding=(0, 2))
    table.add_column(width=len("limpet warming up"))
    table.add_row(rich.text.Text(f"limpet {_doing(now)}", style="bold"), heading)
    asked = f"{now.asked:,}"
    draws = f"{now.draws:>{len(asked)},} of {asked}"
    figures = {"draws": [draws, *_pace(now)], "accepted": _accepted(now), "mixing": _mixing(now)}
    for name, values in figures.items():
        table.add_row(rich.text.Text(name, style="dim"), "   ".join(values) or "too early to tell")
    return table


def _doing(now):
    if now.phase == "done" and now.draws < now.asked:
        return "stopped"
    return DOING[now.phase]


def _pace(now):
    if now.draws_per_second:
        yield f"{now.draws_per_second:,.0f} draws/s"
    if now.seconds_left is not None and now.phase != "done":
        yield f"{_clock(now.seconds_left)} left"


def _accepted(now):
    for move, acceptance in now.acceptance.items():
        if acceptance is not None:
            yield f"{move} {acceptance:.1%}"


def _mixing(now):
    if now.r_hat is not None:
        yield f"worst R-hat {now.r_hat:.3f}"
    if now.ess is not None:
        yield f"least ESS about {now.ess:,.0f}"


def _clock(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
