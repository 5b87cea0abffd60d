"""Problem files: what they define, whose they are, and the runs that are made of them."""

import ast
import contextlib
import functools
import re
import runpy
import shlex
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from limpet.cli.terminal import print_json, print_run, printable, say
from limpet.errors import InputError, InterruptedWarning, StoreError
from limpet.report.progress import Progress, show_progress

if TYPE_CHECKING:
    import xarray as xr


def read_problem(path: Path, *names: str) -> dict[str, Any]:
    """What a file defines, which these names must be among."""
    sys.path.insert(0, str(path.resolve().parent))  # as Python does for a script
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what it prints is no result
            defined = runpy.run_path(str(path))
    except SyntaxError as error:
        text = "".join(traceback.format_exception_only(error)).strip()
        raise InputError(text if error.filename else f"{path}: {text}") from None
    except (Exception, SystemExit) as error:
        where, line = f"{path}", ""
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == str(path):
                where, line = f"{path}, line {frame.lineno}", f"\n    {frame.line}"
        raise InputError(f"{where}: {type(error).__name__}: {error}{line}") from None
    for name in names:
        if name not in defined:
            raise InputError(f"{path} does not define {name}: `limpet --help` has an example.")
    return defined


def sampler(problem: Path, options: dict[str, Any]) -> "Callable[..., xr.DataTree]":
    """What samples a problem, with these options of `limpet.sample`."""
    import limpet

    defined = read_problem(problem, "target", "start")
    named = {name: defined.get(name) for name in ("kernel", "dims", "coords")}
    return functools.partial(limpet.sample, defined["target"], defined["start"], **named, **options)


def recorded_problem(store: str) -> Path:
    """The file that a run was begun or last resumed with."""
    from limpet.draws.reader import read_root, specification_of
    from limpet.draws.where import as_home

    home = as_home(store)
    specification_of(home)  # refuses what is not a store
    recorded = str(read_root(home).get("problem", ""))
    path, there = Path(recorded), False
    with contextlib.suppress(OSError):  # a name that no file can have
        there = recorded.isprintable() and path.is_file()
    if not there:
        why = f"{printable(recorded)} is not there" if recorded else "No problem file is recorded"
        command = shlex.join(["limpet", "resume", store])
        raise typer.BadParameter(f"{why}: give it, {command} PROBLEM.py")
    return path


def check_outside(problem: Path, store: str) -> None:
    """Refuse a file inside a store, which may be a stranger's."""
    if problem.resolve().is_relative_to(Path(store).resolve()):
        raise typer.BadParameter(
            f"{problem} is inside {store}, which holds no code: expected a file of your own."
        )


def confirm(problem: Path, store: str) -> None:
    """Run a file that a store names only if the user says so: the store may be a stranger's."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            f"{store} names a file to run, but may not be yours: give the file. If it is the one"
            f" that the store names: {_resume_command(store, problem)}"
        )
    print(f"Run {problem}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Exit(1)


def run(
    draw: "Callable[..., xr.DataTree]", problem: Path, store: str, quiet: bool, as_json: bool
) -> None:
    """Sample or resume, show how it goes, then what came of it."""
    from limpet.draws.where import as_home
    from limpet.draws.writer import note
    from limpet.run.signals import on_interruption

    recorded, interruptions = False, list[InterruptedWarning]()
    again = _resume_command(store, problem)

    def record_and_show(now: Progress) -> None:
        nonlocal recorded
        if not recorded and now.phase != "start":  # the store is there
            with contextlib.suppress(StoreError):  # a full disk is for the run to report
                note(as_home(store), "problem", str(problem.resolve()))
            recorded = True
        show(now)

    try:
        with (
            contextlib.redirect_stdout(sys.stderr),
            show_progress(not quiet) as show,
            on_interruption(interruptions.append),
        ):
            draws = draw(progress=record_and_show)
    except KeyboardInterrupt:
        if recorded:
            say(f"Stopped at once: {store} has the draws up to a few seconds ago. Go on: {again}")
        elif as_home(store).exists():  # since before this command, or since a moment ago
            say(f"Interrupted before {store} had further draws. Go on: {again}")
        else:
            say("Interrupted before the first draw: begin again with the same command.")
        raise
    except InputError as error:
        raise InputError(_with_place(str(error), problem)) from None

    if not quiet:
        say("")  # between progress and result
    print_run(draws, store, as_json, in_haste=bool(interruptions))
    if interruptions:
        _end_interrupted(draws, store, again, interruptions[0].signal or signal.SIGINT)
    if not quiet:
        picture = Path(Path(store).name if "://" in store else store).with_suffix(".png")
        say(f"\nThe draws are in {store}: limpet.open({store!r}) reads them in Python.")
        say(f"See them: {shlex.join(['limpet', 'plot', store, '-o', str(picture)])}")
        say(f"Draw more: {again} --draws {2 * draws.attrs['draws_asked']}")


def plan(draw: "Callable[..., xr.DataTree]", problem: Path, store: str, as_json: bool) -> None:
    """Make the store of a run, without a draw, and say how to go on."""
    from limpet.draws.reader import specification_of
    from limpet.draws.where import as_home
    from limpet.draws.writer import note
    from limpet.run.signals import on_interruption

    try:
        with contextlib.redirect_stdout(sys.stderr), on_interruption(lambda _: None):
            draw(progress=lambda now: False)
    except InputError as error:
        raise InputError(_with_place(str(error), problem)) from None
    note(as_home(store), "problem", str(problem.resolve()))
    run = specification_of(as_home(store))
    if as_json:
        print_json({"store": store, "chains": run.chains, "tiles": run.tiles})
        return
    typer.echo(f"{run.tiles} tiles of {run.width} chains, from 0 to {run.tiles - 1}")
    command = shlex.join(["limpet", "tile", store, str(problem), "--index", "0"])
    say(f"Draw the first: {command}")


def advance_tile(
    store: str, problem: Path, index: int, seconds: float | None, as_json: bool
) -> None:
    """Advance a tile, and say how far it is."""
    from limpet.jobs import advance_stored_tile

    target = read_problem(problem, "target")["target"]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            far = advance_stored_tile(store, target, index, seconds)
    except InputError as error:
        raise InputError(_with_place(str(error), problem)) from None
    chains = f"{far.chains[0]} to {far.chains[-1]}"
    if as_json:
        print_json({"index": index, "chains": chains, "draws": far.draws, "done": far.done})
    else:
        typer.echo(f"chains {chains}: {far.draws:,} of {far.asked:,} draws")
    if not far.done:
        say("Go on with the same command.")
    if far.signal is not None:
        raise typer.Exit(128 + far.signal)


def _end_interrupted(draws: "xr.DataTree", store: str, again: str, number: int) -> NoReturn:
    """Say what is in the store, and end as a process that this signal ended."""
    some = draws["posterior"].sizes["draw"]
    what = f"the draws so far are in {store}" if some else f"{store} has no draws yet"
    say(f"Interrupted: {what}. Go on: {again}")
    raise typer.Exit(128 + number) if some else KeyboardInterrupt(number)


def _resume_command(store: str, problem: Path) -> str:
    return shlex.join(["limpet", "resume", store, str(problem)])


def _with_place(message: str, problem: Path) -> str:
    """A message, with the line of the file that it is about."""
    about = re.match(r"(target|start|kernel|dims|coords)\b", message)
    if about is None:
        return message
    names = [node for node in ast.walk(ast.parse(problem.read_bytes())) if type(node) is ast.Name]
    set_at = [n.lineno for n in names if n.id == about[0] and type(n.ctx) is ast.Store]
    return f"{problem}, line {max(set_at)}: {message}" if set_at else f"{problem}: {message}"
