"""The command limpet: what it prints and where, how it ends, and that no draw is lost."""

import contextlib
import inspect
import io
import itertools
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from importlib.metadata import version

import pytest
import rich.console
import zarr
from typer.testing import CliRunner

import limpet
from limpet.cli import app, commands
from limpet.report.progress import panel

COMMANDS = ("sample", "resume", "plan", "tile", "summary", "plot", "info")
CIRCLE = """
import jax.numpy as jnp
import limpet

print("a file may print")

def circle(x):
    return jnp.array([x @ x - 1])

target = limpet.Target(circle, eps=0.05)
start = [1.0, 0.0]
"""
SMALL = ("--chains", "4", "--warmup", "100", "--seed", "3")
LONG = ("--chains", "4", "--warmup", "0", "--draws", "30000")


def run(*arguments):
    """The command, in this process, so that compiled programs are shared."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def checked(*arguments, code=0):
    result = run(*arguments)
    assert result.exit_code == code, result.output
    return result


def start_process(*arguments, stdin=None):
    command = [sys.executable, "-m", "limpet", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, text=True)


def drawn(store):
    with contextlib.suppress(limpet.StoreError):
        return limpet.open(store).posterior.sizes["draw"]
    return 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def problem(folder):
    path = folder / "circle.py"
    path.write_text(CIRCLE)
    return path


@pytest.fixture(scope="module")
def store(folder, problem):
    path = folder / "run.zarr"
    checked("sample", problem, "-o", path, "--draws", 200, *SMALL)
    return path


@pytest.fixture
def at_draws(monkeypatch):
    """Send signals to this process as soon as a run draws."""

    def send(*numbers):
        @contextlib.contextmanager
        def show_progress(_):
            def show(now):
                for number in numbers if now.phase == "draws" else ():
                    signal.raise_signal(number)

            yield show

        monkeypatch.setattr("limpet.cli.problems.show_progress", show_progress)

    return send


def test_help_teaches():
    text = checked("--help").stdout
    assert all(command in text for command in COMMANDS)
    example = text[text.index("      import jax.numpy") : text.index("  Then:")]
    defined = {}
    exec(textwrap.dedent(example), defined)
    assert isinstance(defined["target"], limpet.Target)
    assert {"start", "kernel"} <= defined.keys()
    assert "\b" not in text
    assert "Usage: " in run().output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(command):
    assert f"Example: limpet {command}" in checked(command, "--help").stdout


def test_help_shows_the_defaults_of_sample():
    text = checked("sample", "--help").stdout
    parameters = inspect.signature(limpet.sample).parameters
    own = inspect.signature(commands.sample).parameters
    same = own.keys() & parameters.keys() - {"store"}
    assert {name: own[name].default for name in same} == {
        name: parameters[name].default for name in same
    }
    chosen_later = {"draws": "(1000)", "warmup": "(as needed)"}
    for name in ("draws", "warmup", "seed", "jitter", "thin"):
        (line,) = [line for line in text.splitlines() if line.strip().startswith(f"--{name}")]
        assert f"[default: {chosen_later.get(name, parameters[name].default)}]" in line


def test_version_as_a_module():
    process = start_process("--version")
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert output == f"limpet {version('limpet')}\n"


JAX_WATCH = """
import sys

class Watch:
    def find_spec(self, name, *_):
        assert name != "jax", "JAX is imported"

sys.meta_path.insert(0, Watch())
sys.argv = ["limpet", *{arguments!r}]
from limpet.cli import app
app()
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        ([], 2),
        (["simple"], 2),
        (["sample", "--help"], 0),
        (["sample", "nowhere.py", "-o", "a.zarr"], 2),
        (["plot", "a.zarr", "-o", "run.doc"], 2),
        (["reproduce", "--quick", "--full"], 2),
    ],
)
def test_help_and_usage_do_not_wait_for_jax(arguments, code):
    program = JAX_WATCH.format(arguments=arguments)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == code, ended.stderr
    assert "JAX is imported" not in ended.stderr
    assert "Traceback" not in ended.stderr


# a module that is interrupted while it is imported may turn that into anything else
INTERRUPTED_IMPORT = """
import importlib.abc, importlib.machinery, os, signal, sys

class Interrupter(importlib.abc.Loader):
    def find_spec(self, name, *_):
        if name == {module!r}:
            return importlib.machinery.ModuleSpec(name, self)

    def exec_module(self, module):
        try:
            os.kill(os.getpid(), signal.{signal})
        except KeyboardInterrupt:
            if module.__name__ == "jax":
                raise ImportError("half of it") from None
            raise

sys.meta_path.insert(0, Interrupter())
sys.argv = ["limpet", "info"]
from limpet.cli import app
app()
"""


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("rich.console", signal.SIGINT),
        ("typer", signal.SIGINT),
        ("jax", signal.SIGINT),
        ("jax", signal.SIGTERM),
        ("xarray", signal.SIGINT),
    ],
)
def test_a_signal_while_modules_are_imported_ends_quietly(module, number):
    program = INTERRUPTED_IMPORT.format(module=module, signal=number.name)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, "", "")


def test_info():
    facts = json.loads(checked("info", "--json").stdout)
    assert facts["precision"] == "64-bit"
    assert facts["cores"] >= 1
    assert facts["limpet"] == version("limpet")
    text = checked("info").stdout
    assert all(name in text for name in facts)


def test_sample_keeps_what_limpet_sample_draws(problem, folder):
    path = folder / "same.zarr"
    result = checked("sample", problem, "-o", path, "--draws", 50, *SMALL)
    assert "Lifted: 4 chains of 50 draws, in" in result.stdout
    assert "x[1]" in result.stdout
    assert "a file may print" in result.stderr
    assert "limpet: 200 of 200 draws (100%)" in result.stderr
    assert f"limpet plot {path} -o {path.with_suffix('.png')}" in result.stderr
    assert "\x1b" not in result.output
    assert "Warning: The effective sample size" in result.stderr
    assert "test_cli" not in result.stderr  # no source lines
    defined = {}
    exec(CIRCLE, defined)
    again = limpet.sample(
        defined["target"], defined["start"], draws=50, chains=4, warmup=100, seed=3
    )
    assert limpet.open(path).posterior.identical(again.posterior)


def test_what_is_given_is_passed_on_and_the_rest_is_as_in_limpet_sample(problem, monkeypatch):
    calls = []
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(limpet.sample).parameters.items()
        if name not in ("target", "start", "progress", "executor", "scale")
    }

    def sample(*arguments, progress, **options):
        calls.append((arguments, options))
        raise limpet.StartError("far from everything")

    monkeypatch.setattr(limpet, "sample", sample)
    result = checked("sample", problem, "-o", "a.zarr", code=1)
    assert result.stderr.endswith("Error: far from everything\n")
    numbers = {"draws": 5, "chains": 6, "warmup": 7, "seed": 8, "thin": 9, "workers": 10}
    numbers |= {"jitter": 0.0, "ess": 11}
    flags = [part for name, value in numbers.items() for part in (f"--{name}", value)]
    checked("sample", problem, "-o", "a.zarr", "--keep-surface", *flags, code=1)
    ((target, start), none), (_, options) = calls
    assert isinstance(target, limpet.Target)
    assert start == [1.0, 0.0]
    assert none == defaults | {"store": "a.zarr"}
    assert options == none | numbers | {"keep_surface": True}


def test_a_file_may_name_axes_and_the_places_along_them(folder):
    path = folder / "named.py"
    path.write_text(f'{CIRCLE}\ndims = {{"x": ["way"]}}\ncoords = {{"way": ["east", "north"]}}\n')
    options = ("--draws", 5, "--chains", 4, "--warmup", 0, "--json")
    checked("sample", path, "-o", folder / "named.zarr", *options)
    posterior = limpet.open(folder / "named.zarr").posterior
    assert posterior["x"].sel(way="north").shape == (4, 5)
    path.write_text(f"{CIRCLE}\ndims = 2\n")
    result = checked("sample", path, "-o", folder / "another.zarr", code=1)
    line = path.read_text().splitlines().index("dims = 2") + 1
    assert f"named.py, line {line}: dims=2: expected a dict" in result.stderr


def test_a_file_may_choose_the_kernel_and_import_its_neighbours(folder):
    (folder / "neighbour.py").write_text("SIGMA = 0.25\n")
    path = folder / "walk.py"
    path.write_text(f"{CIRCLE}\nimport neighbour\nkernel = limpet.RandomWalk(neighbour.SIGMA)\n")
    options = ("--draws", 5, "--chains", 4, "--warmup", 0, "--json")
    facts = json.loads(checked("sample", path, "-o", folder / "walk.zarr", *options).stdout)
    assert facts["kernel"] == "RandomWalk"
    assert facts["parameters"]["step_size"] == 0.25


def test_summary(store):
    text = checked("summary", store).stdout
    assert text.startswith("Lifted: 4 chains of 200 draws, in")
    for word in ("hard", "metropolis", "x[0]", "r_hat"):
        assert word in text


def test_summary_as_json(store):
    facts = json.loads(checked("summary", store, "--json").stdout)
    draws = limpet.open(store)
    assert facts["store"] == str(store)
    assert (facts["complete"], facts["draws"], facts["chains"]) == (True, 200, 4)
    for name in ("steps", "seconds", "acceptance", "counts", "parameters"):
        assert facts[name] == draws.attrs[name]
    variables = limpet.summary(draws).variables
    assert facts["variables"].keys() == {"x[0]", "x[1]"}
    for name, numbers in facts["variables"].items():
        assert numbers.keys() == {"mean", "sd", "mcse", "tau", "ess", "r_hat"}
        for column, value in numbers.items():
            assert value == float(variables[column].sel(variable=name))


def test_json_has_null_for_what_is_not_a_number(problem, folder):
    path = folder / "two.zarr"
    result = checked("sample", problem, "-o", path, "--draws", 2, "--json", *SMALL)

    def refuse(constant):
        raise AssertionError(constant)

    facts = json.loads(result.stdout, parse_constant=refuse)
    assert facts["variables"]["x[0]"]["r_hat"] is None


def test_quiet_shows_no_progress_and_one_draw_has_no_summary(problem, folder):
    path = folder / "one.zarr"
    result = checked("sample", problem, "-o", path, "--draws", 1, "--quiet", *SMALL)
    assert result.stdout.startswith("Lifted: 4 chains of 1 draws, in")
    assert "limpet" not in result.stderr
    result = checked("summary", path, code=1)
    assert "Error:" in result.stderr
    assert "has 1 of 1 draws per chain" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("suffix", ["png", "pdf", "SVG"])
def test_plot(store, folder, suffix):
    path = folder / f"run.{suffix}"
    checked("plot", store, "-o", path)
    start = {"png": b"\x89PNG", "pdf": b"%PDF", "SVG": b"<?xml"}[suffix]
    assert path.read_bytes().startswith(start)


def test_plot_refuses_what_it_cannot_write(store, folder):
    assert ".png, .pdf, .svg" in checked("plot", store, "-o", "run.doc", code=2).stderr
    result = checked("plot", store, "-o", folder / "nowhere" / "run.png", code=1)
    assert "Error: Could not write" in result.stderr


def test_resume_does_not_run_the_file_that_is_recorded(problem, folder):
    path = folder / "longer.zarr"
    checked("sample", problem, "-o", path, "--draws", 100, *SMALL)
    result = checked("resume", path, "--draws", 200, code=2)
    assert "a file may print" not in result.output
    assert f"limpet resume {path} {problem}" in " ".join(result.stderr.split())
    assert json.loads(checked("resume", path, problem, "--json").stdout)["draws"] == 100


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"\n", 1)], ids=["yes", "no"])
def test_resume_asks_at_a_terminal(problem, store, answer, code):
    record(store, problem)
    keyboard, terminal = pty.openpty()
    process = start_process("resume", store, stdin=terminal)
    os.write(keyboard, answer)
    _, errors = process.communicate()
    os.close(keyboard)
    os.close(terminal)
    assert process.returncode == code, errors
    assert f"Run {problem}? [y/N]" in errors
    assert ("a file may print" in errors) == (code == 0)


def record(store, problem):
    zarr.open_group(store, mode="r+").attrs["problem"] = str(problem)


@pytest.mark.parametrize("given", [True, False], ids=["given", "recorded"])
@pytest.mark.parametrize("how", ["inside", "linked"])
def test_resume_never_runs_a_file_inside_the_store(store, tmp_path, given, how):
    inside = store / "c" / "evil.py"
    inside.parent.mkdir(exist_ok=True)
    inside.write_text(CIRCLE)
    path = inside
    if how == "linked":
        path = tmp_path / "innocent.py"
        path.symlink_to(inside)
    record(store, path)
    result = checked("resume", store, *([path] if given else []), code=2)
    inside.unlink()
    assert "which holds no code" in " ".join(result.stderr.split())
    assert "a file may print" not in result.output


@pytest.mark.parametrize("name", ["/tmp/\x1b]0;a.py", "a\0.py", "x" * 5_000, "\u202ea.py"])
def test_names_that_no_file_should_have_are_not_shown_as_they_are(store, name):
    record(store, name)
    result = checked("resume", store, code=2)
    assert "is not there" in " ".join(result.stderr.split())
    assert result.stderr.replace("\n", "").isprintable()


def test_what_a_store_says_of_itself_does_not_reach_the_terminal_raw(store, folder):
    path = folder / "rude.zarr"
    shutil.copytree(store, path)
    text = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(text.replace('"Lifted"', '"Lifted\\u001b]0;"'))
    result = run("summary", path)
    assert "\x1b" not in result.output


def test_resume_with_another_file(problem, store, folder):
    moved = folder / "moved.py"
    moved.write_text(CIRCLE)
    checked("resume", store, moved)
    assert f"{moved}" in "".join(checked("resume", store, code=2).stderr.split())
    moved.unlink()
    assert "is not there" in " ".join(checked("resume", store, code=2).stderr.split())
    checked("resume", store, problem)


def test_resume_without_a_recorded_file(problem, folder):
    path = folder / "python.zarr"
    defined = {}
    exec(CIRCLE, defined)
    limpet.sample(defined["target"], [1.0, 0.0], draws=10, chains=4, warmup=100, store=path)
    result = checked("resume", path, code=2)
    assert "No problem file is recorded" in result.stderr
    assert f"limpet resume {path} PROBLEM.py" in " ".join(result.stderr.split())
    checked("resume", path, problem)


def test_resume_refuses_another_target(store, folder):
    path = folder / "other.py"
    path.write_text(CIRCLE.replace("0.05", "0.06"))
    assert "is of another target" in checked("resume", store, path, code=1).stderr
    assert zarr.open_group(store, mode="r").attrs["problem"] != str(path)


def test_stores_that_exist_or_do_not(problem, store, folder):
    result = checked("sample", problem, "-o", store, code=1)
    assert f"Error: store='{store}' exists" in result.stderr
    for command in (["summary"], ["resume"], ["plot", "-o", "run.png"]):
        result = checked(*command, folder / "nowhere.zarr", code=1)
        assert result.stderr.startswith("Error: There is no store")


@pytest.mark.parametrize(
    "arguments",
    [
        ["sample"],
        ["sample", "{folder}/nowhere.py", "-o", "a.zarr"],
        ["sample", "{folder}", "-o", "a.zarr"],
        ["sample", "{problem}"],
        ["sample", "{problem}", "-o", "a.zarr", "--draws", "many"],
        ["resume", "{folder}/run.zarr", "{folder}/nowhere.py"],
        ["simple"],
    ],
)
def test_wrong_usage(arguments, problem, folder):
    words = [argument.format(problem=problem, folder=folder) for argument in arguments]
    assert "Usage: " in checked(*words, code=2).stderr


BAD_FILES = {
    "no target": ("start = [1.0]", "bad.py does not define target"),
    "no start": (CIRCLE.replace("start", "begin"), "bad.py does not define start"),
    "target": ("\ntarget, start = 3, [1.0]", "bad.py, line 2: target=3: expected a limpet.Target"),
    "start": (CIRCLE.replace("[1.0, 0.0]", "'here'"), "bad.py, line 11: start='here': expected"),
    "kernel": (CIRCLE + "kernel = 'SAS'", "bad.py, line 12: kernel='SAS': expected limpet.Lifted"),
    "syntax": ("x = 1\ntarget = (", 'bad.py", line 2'),
    "name": ("x = 1\ny = z\n", "bad.py, line 2: NameError: name 'z' is not defined\n    y = z\n"),
    "limpet": (CIRCLE.replace("0.05", "-1"), "bad.py, line 10: InputError: eps=-1 is negative"),
    "inside": (CIRCLE.replace("x @ x", "x @ y"), "bad.py:8 (return jnp.array([x @ y - 1]))"),
    "exit": ("import sys\nsys.exit(0)", "bad.py, line 2: SystemExit: 0"),
    "encoding": (b"\xff\xfe = 1", "bad.py"),
    "null": (b"x = 1\0", "bad.py"),
    "nested": ("def f():\n    return 1 / 0\n\nf()", "bad.py, line 2: ZeroDivisionError: division"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(tmp_path, name):
    source, message = BAD_FILES[name]
    path = tmp_path / "bad.py"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    result = checked("sample", path, "-o", tmp_path / "bad.zarr", code=1)
    assert message in result.stderr
    assert "Error: " in result.stderr
    assert all(word not in result.stderr for word in ("Traceback", "runpy", "problems.py"))
    assert result.stdout == ""
    assert not (tmp_path / "bad.zarr").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_keep_the_draws(problem, tmp_path, at_draws, number):
    path, before = tmp_path / "run.zarr", signal.getsignal(signal.SIGTERM)
    at_draws(number)
    result = checked("sample", problem, "-o", path, *LONG, "--json", code=128 + number)
    facts = json.loads(result.stdout)
    assert not facts["complete"]
    assert 0 < facts["draws"] < facts["draws_asked"]
    assert f"Go on: limpet resume {path} {problem}" in result.stderr
    text = checked("summary", path).stdout
    assert f"of {facts['draws']:,} draws so far, of 30,000 asked for" in text
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_stops_at_once(problem, tmp_path, at_draws, number, monkeypatch):
    path = tmp_path / "run.zarr"
    at_draws(number, number)
    monkeypatch.setattr("os._exit", sys.exit)
    result = checked("sample", problem, "-o", path, *LONG, code=128 + number)
    assert result.stdout == ""
    assert f"Go on: limpet resume {path} {problem}" in result.stderr
    limpet.open(path)


def test_a_signal_when_the_store_was_just_made(problem, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt(signal.SIGINT)

    path = tmp_path / "run.zarr"
    monkeypatch.setattr("os._exit", sys.exit)
    with monkeypatch.context() as early:
        early.setattr("limpet.stored.TileRun", interrupt)
        for command in (["sample", problem, "-o", path], ["resume", path, problem]):
            result = checked(*command, code=128 + signal.SIGINT)
            assert f"Interrupted before {path} had further draws." in result.stderr
            assert f"Go on: limpet resume {path} {problem}" in result.stderr
    checked("resume", path, problem, "--draws", 10)


def test_interrupted_processes_are_resumed(problem, tmp_path):
    path, before = tmp_path / "run.zarr", 0
    command = ["sample", problem, "-o", path, *LONG, "--thin", "200"]  # ten seconds
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start_process(*command)
        while drawn(path) <= before:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(number)
        output, errors = process.communicate()
        assert process.returncode == 128 + number, errors
        assert "so far, of 30,000 asked for" in output
        assert f"Go on: limpet resume {path} {problem}" in errors
        command, before = ["resume", path, problem], drawn(path)
    facts = json.loads(checked("resume", path, problem, "--json").stdout)
    assert facts["complete"]
    assert facts["draws"] == 30_000


def test_the_panel_keeps_its_size_and_place():
    moves = dict.fromkeys(("hard", "off", "on", "soft"), 1.0)
    early = {"draws_per_second": None, "seconds_left": None, "r_hat": None, "ess": None}
    late = {"draws_per_second": 1e6, "seconds_left": 4e4, "r_hat": 1.234, "ess": 1e7}
    places = []
    for phase, figures in itertools.product(("compile", "warmup", "draws", "done"), (early, late)):
        now = limpet.Progress(phase, 123, 98_765_432, 1_024, acceptance=moves, **figures)
        console = rich.console.Console(file=io.StringIO(), width=80)
        console.print(panel(now))
        assert isinstance(console.file, io.StringIO)
        rows = console.file.getvalue().splitlines()
        places.append((len(rows), rows[0].index("1,024 chains"), rows[1].index("123 of")))
    assert places[0][0] == 4
    assert len(set(places)) == 1


def test_a_broken_pipe_ends_quietly(store):
    process = start_process("summary", store)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait() == 141
    process.stderr.close()
