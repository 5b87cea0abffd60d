"""How the command speaks and ends: results to standard output, everything else to standard error.

Nothing here imports JAX until it has to: that takes seconds, and help and usage can do without.
"""

import contextlib
import errno
import functools
import io
import json
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, NoReturn

import rich.console
import typer

from limpet.errors import LimpetError, LimpetWarning
from limpet.report.progress import Unfailing, is_live

if TYPE_CHECKING:
    import xarray as xr

BROKEN_PIPE = 128 + 13  # exit status of a program that SIGPIPE ended, as shells have it
PAGE_WIDTH = 110  # columns of tables that are not for a terminal: what the widest table takes


@contextlib.contextmanager
def shell_conventions() -> Iterator[None]:
    """Warnings and errors in a line each, without tracebacks; exit codes as shells expect them."""
    _open_streams()
    # like Ctrl-C, so that what is half done is tidied up; limpet.sample has a handler of its own
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        # nobody may read what is said there: that ends nothing
        with warnings.catch_warnings(), contextlib.redirect_stderr(Unfailing(sys.stderr)):
            warnings.simplefilter("always", LimpetWarning)
            warnings.showwarning = lambda message, *_: say(f"Warning: {message}")
            yield
            sys.stdout.flush()  # while what is wrong with it can still be told
    except LimpetError as error:
        say(f"Error: {error}")
        raise typer.Exit(1) from None
    except BrokenPipeError:  # nobody reads the results: `limpet summary run.zarr | head -1`
        raise typer.Exit(BROKEN_PIPE) from None
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO):
            raise
        say(f"Error: the results cannot be written to standard output: {error.strerror}.")
        raise typer.Exit(1) from None
    except KeyboardInterrupt as stop:
        # at once: threads of a run may go on for a while, and a compiler for a minute
        os._exit(128 + (stop.args[0] if stop.args else signal.SIGINT))
    finally:
        signal.signal(signal.SIGTERM, before)
        for stream in (sys.stdout, sys.stderr):
            _leave_nothing(stream)


def import_limpet() -> None:
    """Import all of limpet, and JAX; a signal meanwhile ends the process at once and quietly.

    Nothing is begun yet that would have to be tidied up, and modules that are interrupted while
    they are imported may raise anything, or nothing.
    """
    signals = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(number, _exit) for number in signals]
    try:
        import limpet.api  # noqa: F401
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    os._exit(128 + number)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(number)


def _open_streams() -> None:
    """Give what the shell closed (`2>&-`) an end, or a file opened next would be in its place."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - it stays open
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal has Greek letters


def _leave_nothing(stream: IO[str]) -> None:
    """Drop what cannot be written: Python would try again as it ends, and end with status 120."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(message: str) -> None:
    """Print a line that is no result."""
    # to sys.stderr as it is now: while progress is shown, that prints above it
    print(printable(message), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Text that may be from somebody's store, without what a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def print_json(facts: Any) -> None:
    """Print a result for programs."""
    # what could not be computed is NaN, which JSON does not have
    facts = json.loads(json.dumps(facts), parse_constant=lambda _: None)
    typer.echo(json.dumps(facts, indent=2))


class Page(rich.console.Console):
    """Where tables go: as wide as the terminal, or wide enough where there is none."""

    def __init__(self):
        super().__init__(width=None if sys.stdout.isatty() else PAGE_WIDTH)

    def on_broken_pipe(self) -> None:
        """Leave it to `shell_conventions`; rich would end with status 1."""
        raise


def print_run(draws: "xr.DataTree", store: str, as_json: bool, in_haste: bool = False) -> None:
    """What is in a store, as tables or as JSON; without tables if it is large, and time short."""
    import limpet
    from limpet.report.advice import MOST_VALUES_AGAIN
    from limpet.run.clock import account

    chains, count = (draws["posterior"].sizes[name] for name in ("chain", "draw"))
    attributes = {str(name): value for name, value in draws.attrs.items()}
    asked, table = attributes["draws_asked"], None
    large = (
        sum(variable.size for variable in draws["posterior"].data_vars.values()) > MOST_VALUES_AGAIN
    )
    if count >= 2 and not (in_haste and large):
        with _sign_of_life("computing the summary"):
            table = limpet.summary(draws)
    if as_json:
        facts = {"store": store, "complete": count == asked, "chains": chains, "draws": count}
        facts |= attributes
        facts["variables"] = table.variables.to_dataframe().to_dict("index") if table else {}
        print_json(facts)
        return
    so_far = "" if count == asked else f" so far, of {asked:,} asked for"
    kernel = printable(attributes["kernel"])
    typer.echo(f"{kernel}: {chains:,} chains of {count:,} draws{so_far}, in {account(attributes)}")
    if table:
        typer.echo()
        Page().print(table)


def _sign_of_life(doing: str):
    """What is being done, where it can be wiped out again."""
    console = rich.console.Console(stderr=True)
    return console.status(doing) if is_live(console) else contextlib.nullcontext()


@contextlib.contextmanager
def experiment_progress(quiet: bool):
    """Two functions: one shows what is being sampled, the other says what was found."""
    import rich.progress

    console = rich.console.Console(stderr=True, quiet=quiet)
    columns = ("[bold]{task.description}", rich.progress.BarColumn())
    with rich.progress.Progress(
        *columns,
        rich.progress.TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not is_live(console),
    ) as progress:
        task = progress.add_task("compiling")

        def show(what, now):
            progress.update(task, description=what, completed=now.draws, total=now.asked)

        yield show, functools.partial(progress.console.print, highlight=False)
