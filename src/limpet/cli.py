"""The command `limpet`: sample, resume, summary, check, plot, reproduce, info.

Results go to standard output, everything else to standard error. limpet and JAX take seconds to
import: commands import them when they run, so that help is there at once.
"""

import ast
import contextlib
import functools
import importlib.metadata
import inspect
import io
import json
import os
import platform
import re
import runpy
import shlex
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any

import rich.console
import typer
from typer.core import TyperCommand

# a paragraph that begins with \b is left as it is
EXAMPLE = """
Write what to sample into a file, problem.py:

\b
    import jax.numpy as jnp
    import limpet

\b
    def circle(x):                      # one point in, m numbers out
        return jnp.array([x @ x - 1])

\b
    target = limpet.Target(circle, eps=0.01)
    start = [1.0, 0.0]
    kernel = limpet.SAS()               # need not be there

Then:

\b
    limpet sample problem.py -o run.zarr
    limpet plot run.zarr -o run.png
    limpet resume run.zarr problem.py --draws 5000

In Python, limpet.open("run.zarr") has the draws.
"""
VERSIONED = ("limpet", "jax", "jaxlib", "numpy", "xarray", "zarr", "arviz-stats")
BROKEN_PIPE = 128 + 13  # exit status of a program that SIGPIPE ended, as shells have it
PICTURES = (".png", ".pdf", ".svg")
PAGE = 110  # columns of tables that are not for a terminal

Problem = functools.partial(typer.Argument, metavar="PROBLEM.py", exists=True, dir_okay=False)
Store = Annotated[Path, typer.Argument(metavar="STORE", help="What `limpet sample -o` was given.")]
Workers = Annotated[int | None, typer.Option(help="Threads. Default: one per core.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no hints.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@contextlib.contextmanager
def _plainly():
    """Warnings and errors in a line each, without tracebacks; exit codes as shells expect them."""
    _open_streams()
    from limpet.errors import LimpetError, LimpetWarning
    from limpet.report.progress import Unfailing

    # like Ctrl-C, so that what is half done is tidied up; limpet.sample has a handler of its own
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        # nobody may read what is said there: that ends nothing
        with warnings.catch_warnings(), contextlib.redirect_stderr(Unfailing(sys.stderr)):
            warnings.simplefilter("always", LimpetWarning)
            warnings.showwarning = lambda message, *_: _say(f"Warning: {message}")
            yield
    except LimpetError as error:
        _say(f"Error: {error}")
        raise typer.Exit(1) from None
    except BrokenPipeError:  # nobody reads the results: `limpet summary run.zarr | head -1`
        with contextlib.suppress(OSError):  # so that what is left to be written fails no more
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None
    except KeyboardInterrupt as stop:
        # at once: threads of a run may go on for a while, and a compiler for a minute
        os._exit(128 + (stop.args[0] if stop.args else signal.SIGINT))
    finally:
        signal.signal(signal.SIGTERM, before)


def _open_streams():
    """Give what the shell closed (`2>&-`) an end, or a file opened next would be in its place."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - it stays open
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal has Greek letters


def _interrupt(number, _):
    raise KeyboardInterrupt(number)


def _say(message):
    # to sys.stderr as it is now: while progress is shown, that prints above it
    print(_printable(str(message)), file=sys.stderr, flush=True)


def _printable(text: str) -> str:
    """Text that may be from somebody's store, without what a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


class _LikeSample(TyperCommand):
    """A command whose help shows the defaults of `limpet.sample`."""

    def get_help(self, ctx):
        """The help: only there are defaults shown, and limpet imported to know them."""
        import limpet

        parameters = inspect.signature(limpet.sample).parameters
        for option in self.params:
            if option.name in parameters and not option.required:
                option.default = parameters[option.name].default
        return super().get_help(ctx)


def _show_version(asked: bool):
    if asked:
        typer.echo(f"limpet {importlib.metadata.version('limpet')}")
        raise typer.Exit


@app.callback(epilog=EXAMPLE)
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
):
    """Sample probability distributions that are concentrated near a surface."""


@app.command(cls=_LikeSample)
@_plainly()
def sample(
    problem: Annotated[Path, Problem(help="Defines target, start and perhaps kernel.")],
    store: Annotated[
        Path, typer.Option("--out", "-o", metavar="STORE", help="A folder to make for the draws.")
    ],
    draws: Annotated[int | None, typer.Option(help="Draws per chain.")] = None,
    chains: Annotated[int | None, typer.Option(help="Default: one per start, or many.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Steps per chain before draws.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same draws.")] = None,
    jitter: Annotated[float | None, typer.Option(help="How far apart to start.")] = None,
    thin: Annotated[int | None, typer.Option(help="Keep every thin-th visit.")] = None,
    keep_surface: Annotated[
        bool | None, typer.Option("--keep-surface", help="Also keep draws on the surface.")
    ] = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: Json = False,
):
    """Sample what a file defines.

    Example: limpet sample problem.py -o run.zarr --draws 2000 --chains 256

    `limpet --help` has an example of a file. Ctrl-C stops the run; `limpet resume` goes on.
    """
    import limpet

    defined = _read_problem(problem, "target", "start")
    options = dict(draws=draws, chains=chains, warmup=warmup, seed=seed, jitter=jitter, thin=thin)
    options |= dict(keep_surface=keep_surface, workers=workers, kernel=defined.get("kernel"))
    given = {name: value for name, value in options.items() if value is not None}
    draw = functools.partial(limpet.sample, defined["target"], defined["start"], store=store)
    _run(functools.partial(draw, **given), problem, store, quiet, as_json)


@app.command()
@_plainly()
def resume(
    store: Store,
    problem: Annotated[
        Path | None, Problem(help="The run's file. If not given, a terminal asks.")
    ] = None,
    draws: Annotated[int | None, typer.Option(help="Draws per chain, if more.")] = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: Json = False,
):
    """Go on with a run, or make it longer.

    Example: limpet resume run.zarr problem.py --draws 5000

    The draws are those of a run that was never interrupted, bit for bit.
    """
    import limpet

    given, problem = problem is not None, problem or _recorded_problem(store)
    if problem.resolve().is_relative_to(store.resolve()):
        raise typer.BadParameter(
            f"{problem} is inside {store}, which holds no code: expected a file of your own."
        )
    if not given:
        _confirm(problem, store)
    target = _read_problem(problem, "target")["target"]
    draw = functools.partial(limpet.resume, store, target, draws=draws, workers=workers)
    _run(draw, problem, store, quiet, as_json)


@app.command()
@_plainly()
def summary(store: Store, as_json: Json = False):
    """Show how a run went, or goes.

    Example: limpet summary run.zarr

    By move: why proposals failed. By variable: mean, Monte Carlo error, autocorrelation time tau,
    effective sample size, R-hat.
    """
    import limpet

    draws = limpet.open(store)
    if (count := draws["posterior"].sizes["draw"]) < 2:
        raise limpet.InputError(
            f"{store} has {count} of {draws.attrs['draws_asked']:,} draws per chain so far: for a"
            " summary, expected two or more."
        )
    _print_result(draws, store, as_json)


@app.command()
@_plainly()
def check(store: Store, as_json: Json = False):
    """Say what of a store is intact, file by file.

    Example: limpet check run.zarr

    Ends with status 1 if something is damaged. A run that is going on may look damaged.
    """
    from limpet.draws import check as check_store

    report = check_store(store)
    if as_json:
        _print_json(report.to_json())
    else:
        typer.echo(str(report))
    if not report.intact:
        raise typer.Exit(1)


@app.command()
@_plainly()
def plot(
    store: Store,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="A .png, .pdf or .svg to write.")
    ],
):
    """Draw a picture of a run.

    Example: limpet plot run.zarr -o run.png
    """
    import limpet

    if out.suffix.lower() not in PICTURES:
        raise typer.BadParameter(f"{out}: expected a name that ends in {', '.join(PICTURES)}.")
    figure = limpet.plot(limpet.open(store))
    try:
        figure.savefig(out, dpi=200)
    except OSError as error:
        raise limpet.LimpetError(f"Could not write {out}: {error.strerror or error}.") from None


@app.command()
@_plainly()
def reproduce(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="A folder for the report.")
    ] = Path("reproduction"),
    only: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Some only, such as table1,figure2a,flat.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the draws: a minute.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Twice the draws.")] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same draws.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
):
    """Run every experiment of the paper, and compare.

    Example: limpet reproduce -o reproduction

    Shows what arXiv 2206.05644 published, what is exactly true where that is known, and what limpet
    measures, and writes a report: DIR/report.html, with its figures and tables beside it. Draws at
    least as much as the paper did. Ends with status 1 if a verdict fails.
    """
    from limpet.errors import InterruptedWarning
    from limpet.paper import Effort, write_report
    from limpet.paper import reproduce as findings_of
    from limpet.paper.report import headline
    from limpet.paper.reproduce import EFFORTS, table

    if quick and full:
        raise typer.BadParameter("--quick and --full: expected one of them, or neither.")
    if out.exists() and not out.is_dir():
        raise typer.BadParameter(f"{out}: expected a folder, or a new name.")
    size = EFFORTS["quick" if quick else "full" if full else "default"]
    names = only.split(",") if only is not None else None
    findings, stopped_by = [], None
    with _showing(quiet) as (show, say):
        try:
            for finding in findings_of(Effort(size, seed, show), names):
                findings.append(finding)
                verdict = "ok" if finding.passed() else "FAILED"
                say(f"{finding.name:12} {verdict:6} {finding.seconds:4.0f} s")
        except InterruptedWarning as interruption:
            stopped_by = interruption.signal
        except KeyboardInterrupt as interruption:  # between two runs
            stopped_by = interruption.args[0] if interruption.args else signal.SIGINT
    if findings:
        page = write_report(findings, out)
        if as_json:
            rows = [{"experiment": f.name} | v._asdict() for f in findings for v in f.verdicts]
            _print_json(rows)
        else:
            _Page().print(table(findings))
            typer.echo(headline(findings))
        _say(f"The report: {page}")
    if stopped_by is not None:
        in_report = ": the experiments that were finished are in the report" if findings else ""
        _say(f"Interrupted{in_report}.")
        raise typer.Exit(128 + stopped_by)
    if not all(finding.passed() for finding in findings):
        raise typer.Exit(1)


@contextlib.contextmanager
def _showing(quiet: bool):
    """Two functions: one shows what is being sampled, the other says what was found."""
    import rich.progress

    from limpet.report.progress import is_live

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


@app.command()
@_plainly()
def info(as_json: Json = False):
    """Show versions, devices and precision.

    Example: limpet info --json
    """
    import jax

    facts = {
        **{name: importlib.metadata.version(name) for name in VERSIONED},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "devices": [str(device) for device in jax.devices()],
        "precision": "64-bit" if jax.config.read("jax_enable_x64") else "32-bit",
    }
    if as_json:
        _print_json(facts)
        return
    for name, value in facts.items():
        typer.echo(f"{name:12} {', '.join(value) if isinstance(value, list) else value}")


def _read_problem(path: Path, *names: str) -> dict[str, Any]:
    """What a file defines, which these names must be among."""
    from limpet.errors import InputError

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


def _recorded_problem(store: Path) -> Path:
    """The file that a run was begun or last resumed with."""
    from limpet.draws.reader import read_root, specification_of

    specification_of(store)  # refuses what is not a store
    recorded = str(read_root(store).get("problem", ""))
    path, there = Path(recorded), False
    with contextlib.suppress(OSError):  # a name that no file can have
        there = recorded.isprintable() and path.is_file()
    if not there:
        why = f"{_printable(recorded)} is not there" if recorded else "No problem file is recorded"
        command = shlex.join(["limpet", "resume", str(store)])
        raise typer.BadParameter(f"{why}: give it, {command} PROBLEM.py")
    return path


def _confirm(problem: Path, store: Path):
    """Run a file that a store names only if the user says so: the store may be a stranger's."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            f"{store} names a file to run, but may not be yours: give the file. If it is the one"
            f" that the store names: {_resume_command(store, problem)}"
        )
    print(f"Run {problem}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Exit(1)


def _resume_command(store: Path, problem: Path) -> str:
    return shlex.join(["limpet", "resume", str(store), str(problem)])


def _run(draw, problem: Path, store: Path, quiet: bool, as_json: bool):
    """Sample or resume, show how it goes, then what came of it."""
    import limpet
    from limpet.draws.writer import note
    from limpet.report.progress import shown
    from limpet.run.signals import on_interruption

    recorded, interruptions = False, []
    again = _resume_command(store, problem)

    def record_and_show(now):
        nonlocal recorded
        if not recorded and now.phase != "start":  # the store is there
            with contextlib.suppress(limpet.StoreError):  # a full disk is for the run to report
                note(store, "problem", str(problem.resolve()))
            recorded = True
        show(now)

    try:
        with (
            contextlib.redirect_stdout(sys.stderr),
            shown(not quiet) as show,
            on_interruption(interruptions.append),
        ):
            draws = draw(progress=record_and_show)
    except KeyboardInterrupt:
        if recorded:
            _say(f"Stopped at once: {store} has the draws up to a few seconds ago. Go on: {again}")
        elif store.exists():  # since before this command, or since a moment ago
            _say(f"Interrupted before {store} had further draws. Go on: {again}")
        else:
            _say("Interrupted before the first draw: begin again with the same command.")
        raise
    except limpet.InputError as error:
        raise limpet.InputError(_located(str(error), problem)) from None

    if not quiet:
        _say("")  # between progress and result
    _print_result(draws, store, as_json, at_once=bool(interruptions))
    if interruptions:
        some = draws["posterior"].sizes["draw"]
        what = f"the draws so far are in {store}" if some else f"{store} has no draws yet"
        _say(f"Interrupted: {what}. Go on: {again}")
        number = interruptions[0].signal
        raise typer.Exit(128 + number) if some else KeyboardInterrupt(number)
    if not quiet:
        picture = shlex.quote(str(store.with_suffix(".png")))
        _say(f"\nThe draws are in {store}: limpet.open({str(store)!r}) reads them in Python.")
        _say(f"See them: limpet plot {shlex.quote(str(store))} -o {picture}")
        _say(f"Draw more: {again} --draws {2 * draws.attrs['draws_asked']}")


def _located(message: str, problem: Path) -> str:
    """A message, with the line of the file that it is about."""
    about = re.match(r"(target|start|kernel)\b", message)
    if about is None:
        return message
    names = [node for node in ast.walk(ast.parse(problem.read_bytes())) if type(node) is ast.Name]
    set_at = [n.lineno for n in names if n.id == about[0] and type(n.ctx) is ast.Store]
    return f"{problem}, line {max(set_at)}: {message}" if set_at else f"{problem}: {message}"


def _print_result(draws, store: Path, as_json: bool, at_once: bool = False):
    """What is in a store, as tables or as JSON; without tables if it is large, and time short."""
    import limpet
    from limpet.report.advice import LOOKED_AT
    from limpet.run.clock import account

    chains, count = (draws["posterior"].sizes[name] for name in ("chain", "draw"))
    asked, table = draws.attrs["draws_asked"], None
    large = sum(variable.size for variable in draws["posterior"].data_vars.values()) > LOOKED_AT
    if count >= 2 and not (at_once and large):
        with _busy("computing the summary"):
            table = limpet.summary(draws)
    if as_json:
        facts = {"store": str(store), "complete": count == asked, "chains": chains, "draws": count}
        facts |= draws.attrs
        facts["variables"] = table.variables.to_dataframe().to_dict("index") if table else {}
        _print_json(facts)
        return
    so_far = "" if count == asked else f" so far, of {asked:,} asked for"
    kernel = _printable(draws.attrs["kernel"])
    typer.echo(f"{kernel}: {chains:,} chains of {count:,} draws{so_far}, in {account(draws.attrs)}")
    if table:
        typer.echo()
        _Page().print(table)


def _busy(doing: str):
    """A sign of life, where it can be wiped out again."""
    from limpet.report.progress import is_live

    console = rich.console.Console(stderr=True)
    return console.status(doing) if is_live(console) else contextlib.nullcontext()


def _print_json(facts):
    # what could not be computed is NaN, which JSON does not have
    facts = json.loads(json.dumps(facts), parse_constant=lambda _: None)
    typer.echo(json.dumps(facts, indent=2))


class _Page(rich.console.Console):
    """Where tables go: as wide as the terminal, or wide enough where there is none."""

    def __init__(self):
        super().__init__(width=None if sys.stdout.isatty() else PAGE)

    def on_broken_pipe(self):
        """Leave it to `_plainly`; rich would end with status 1."""
        raise
