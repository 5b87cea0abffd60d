"""What `limpet` can be told to do, a function each; help and usage need neither JAX nor limpet."""

import functools
import importlib.metadata
import os
import platform
import signal
from pathlib import Path
from typing import Annotated

import typer

from limpet.cli import problems
from limpet.cli.terminal import (
    Page,
    experiment_progress,
    import_limpet,
    print_json,
    print_run,
    say,
    shell_conventions,
)
from limpet.errors import InputError, InterruptedWarning, LimpetError

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
PICTURES = (".png", ".pdf", ".svg")

Problem = functools.partial(typer.Argument, metavar="PROBLEM.py", exists=True, dir_okay=False)
Store = Annotated[str, typer.Argument(metavar="STORE", help="What `limpet sample -o` was given.")]
NewProblem = Annotated[Path, Problem(help="Defines target, start, perhaps kernel, dims, coords.")]
NewStore = Annotated[
    str, typer.Option("--out", "-o", metavar="STORE", help="A folder to make, or a URL.")
]
Draws = Annotated[int, typer.Option(help="Draws per chain.")]
DrawsOrMost = Annotated[
    int | None,
    typer.Option(help="Draws per chain; with --ess, a limit.", show_default="1000"),
]
Ess = Annotated[int | None, typer.Option(help="Draw until there is this effective sample size.")]
Chains = Annotated[int | None, typer.Option(help="Default: one per start, or many.")]
Warmup = Annotated[
    int | None,
    typer.Option(help="Steps per chain before draws.", show_default="as needed"),
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same draws.")]
Jitter = Annotated[float, typer.Option(help="How far apart to start.")]
Thin = Annotated[int, typer.Option(help="Keep every thin-th visit.")]
KeepSurface = Annotated[
    bool, typer.Option("--keep-surface", help="Also keep draws on the surface.")
]
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


@app.command()
@shell_conventions()
def sample(
    problem: NewProblem,
    store: NewStore,
    # defaults are those of limpet.sample, which would take seconds to ask
    draws: DrawsOrMost = None,
    ess: Ess = None,
    chains: Chains = None,
    warmup: Warmup = None,
    seed: Seed = 0,
    jitter: Jitter = 1.0,
    thin: Thin = 1,
    keep_surface: KeepSurface = False,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: Json = False,
):
    """Sample what a file defines.

    Example: limpet sample problem.py -o run.zarr --draws 2000 --chains 256

    `limpet --help` has an example of a file. Ctrl-C stops the run; `limpet resume` goes on.
    """
    import_limpet()
    options = {"draws": draws, "chains": chains, "warmup": warmup, "seed": seed, "jitter": jitter}
    options |= {"thin": thin, "keep_surface": keep_surface, "store": store, "workers": workers}
    options |= {"ess": ess}
    problems.run(problems.sampler(problem, options), problem, store, quiet, as_json)


@app.command()
@shell_conventions()
def plan(
    problem: NewProblem,
    store: NewStore,
    draws: Draws = 1_000,
    chains: Chains = None,
    warmup: Warmup = None,
    seed: Seed = 0,
    jitter: Jitter = 1.0,
    thin: Thin = 1,
    keep_surface: KeepSurface = False,
    as_json: Json = False,
):
    """Begin a run that `limpet tile` is to make, in jobs of an array.

    Example: limpet plan problem.py -o run.zarr --chains 4096

    Says how many tiles there are: chains that are drawn together, by one job at a time.
    """
    import_limpet()
    options = {"draws": draws, "chains": chains, "warmup": warmup, "seed": seed, "jitter": jitter}
    options |= {"thin": thin, "keep_surface": keep_surface, "store": store}
    problems.plan(problems.sampler(problem, options), problem, store, as_json)


@app.command()
@shell_conventions()
def tile(
    store: Store,
    problem: Annotated[Path, Problem(help="The run's file.")],
    index: Annotated[int, typer.Option(help="Which tile, from 0 on.")],
    seconds: Annotated[float | None, typer.Option(help="When to stop. Default: never.")] = None,
    as_json: Json = False,
):
    """Go on with one tile of a run, beside others who go on with others.

    Example: limpet tile run.zarr problem.py --index $SLURM_ARRAY_TASK_ID --seconds 3500

    Ends when the tile has all its draws, or after so many seconds: the same command goes on then.
    """
    problems.check_outside(problem, store)
    import_limpet()
    problems.advance_tile(store, problem, index, seconds, as_json)


@app.command()
@shell_conventions()
def resume(
    store: Store,
    problem: Annotated[
        Path | None, Problem(help="The run's file. If not given, a terminal asks.")
    ] = None,
    draws: Annotated[int | None, typer.Option(help="Draws per chain, if more.")] = None,
    ess: Ess = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: Json = False,
):
    """Go on with a run, or make it longer.

    Example: limpet resume run.zarr problem.py --draws 5000

    The draws are those of a run that was never interrupted, bit for bit.
    """
    if problem is not None:
        problems.check_outside(problem, store)
    import_limpet()
    import limpet

    if problem is None:
        problem = problems.recorded_problem(store)
        problems.check_outside(problem, store)
        problems.confirm(problem, store)
    target = problems.read_problem(problem, "target")["target"]
    draw = functools.partial(limpet.resume, store, target, draws=draws, ess=ess, workers=workers)
    problems.run(draw, problem, store, quiet, as_json)


@app.command()
@shell_conventions()
def summary(store: Store, as_json: Json = False):
    """Show how a run went, or goes.

    Example: limpet summary run.zarr

    By move: why proposals failed. By variable: mean, Monte Carlo error, autocorrelation time tau,
    effective sample size, R-hat.
    """
    import_limpet()
    import limpet

    draws = limpet.open(store)
    if (count := draws["posterior"].sizes["draw"]) < 2:
        raise InputError(
            f"{store} has {count} of {draws.attrs['draws_asked']:,} draws per chain so far: for a"
            " summary, expected two or more."
        )
    print_run(draws, store, as_json)


@app.command()
@shell_conventions()
def check(store: Store, as_json: Json = False):
    """Say what of a store is intact, file by file.

    Example: limpet check run.zarr

    Ends with status 1 if something is damaged. A run that is going on may look damaged.
    """
    import_limpet()
    from limpet.draws import check as check_store

    report = check_store(store)
    if as_json:
        print_json(report.to_json())
    else:
        typer.echo(str(report))
    if not report.intact:
        raise typer.Exit(1)


@app.command()
@shell_conventions()
def plot(
    store: Store,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="A .png, .pdf or .svg to write.")
    ],
):
    """Draw a picture of a run.

    Example: limpet plot run.zarr -o run.png
    """
    if out.suffix.lower() not in PICTURES:
        raise typer.BadParameter(f"{out}: expected a name that ends in {', '.join(PICTURES)}.")
    import_limpet()
    import limpet

    figure = limpet.plot(limpet.open(store))
    try:
        figure.savefig(out, dpi=200)
    except OSError as error:
        raise LimpetError(f"Could not write {out}: {error.strerror or error}.") from None


@app.command()
@shell_conventions()
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
    if quick and full:
        raise typer.BadParameter("--quick and --full: expected one of them, or neither.")
    if out.exists() and not out.is_dir():
        raise typer.BadParameter(f"{out}: expected a folder, or a new name.")
    import_limpet()
    from limpet.paper import write_report
    from limpet.paper.report import headline
    from limpet.paper.reproduce import EFFORTS, table

    size = EFFORTS["quick" if quick else "full" if full else "default"]
    findings, stopped_by = _find(size, seed, only.split(",") if only is not None else None, quiet)
    if findings:
        page = write_report(findings, out)
        if as_json:
            rows = [{"experiment": f.name} | v._asdict() for f in findings for v in f.verdicts]
            print_json(rows)
        else:
            Page().print(table(findings))
            typer.echo(headline(findings))
        say(f"The report: {page}")
    if stopped_by is not None:
        in_report = ": the experiments that were finished are in the report" if findings else ""
        say(f"Interrupted{in_report}.")
        raise typer.Exit(128 + stopped_by)
    if not all(finding.passed() for finding in findings):
        raise typer.Exit(1)


def _find(size: float, seed: int, names: list[str] | None, quiet: bool):
    """What experiments found, until a signal came, and its number."""
    from limpet.paper import Effort
    from limpet.paper import reproduce as findings_of

    findings = []
    with experiment_progress(quiet) as (show, tell):
        try:
            for finding in findings_of(Effort(size, seed, show), names):
                findings.append(finding)
                verdict = "ok" if finding.passed() else "FAILED"
                tell(f"{finding.name:12} {verdict:6} {finding.seconds:4.0f} s")
        except InterruptedWarning as interruption:
            return findings, interruption.signal
        except KeyboardInterrupt as interruption:  # between two runs
            return findings, interruption.args[0] if interruption.args else signal.SIGINT
    return findings, None


@app.command()
@shell_conventions()
def info(as_json: Json = False):
    """Show versions, devices and precision.

    Example: limpet info --json
    """
    import_limpet()
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
        print_json(facts)
        return
    for name, value in facts.items():
        typer.echo(f"{name:12} {', '.join(value) if isinstance(value, list) else value}")
