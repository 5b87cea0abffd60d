"""Time that is told, runs that are stopped, and streams that nobody reads: no draw is lost."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest
import rich.console

import limpet
from limpet import session
from limpet.engine.interrupts import interruptible
from limpet.paper import two_spheres
from limpet.partition import ladder
from limpet.report import progress
from limpet.run import clock, signals, tile

TARGET = limpet.Target(two_spheres, 0.05)
START = [1.0, 0.0, 0.0]
PROBLEM = """
import limpet
from limpet.paper import two_spheres

print("a file may print")
target = limpet.Target(two_spheres, eps=0.05)
start = [1.0, 0.0, 0.0]
"""
HIDDEN = "\x1b[?25l"  # the cursor, while a panel is drawn again and again
NOW = limpet.Progress("warmup", 0, 128_000, 128, None, 40.0, {}, None, None, 12.3, 512, 1_000)


def sample(**options):
    given = {"draws": 60, "chains": 5, "warmup": 200, "seed": 3, "progress": False}
    return limpet.sample(TARGET, START, **given | options)


@pytest.fixture(scope="module")
def whole():
    return sample()


# what is told


def test_a_progress_can_be_made_as_before():
    then = limpet.Progress("draws", 5, 20, 4, 1.0, 4.0, {"hard": 0.5}, 1.5, 3.0)
    assert (then.elapsed, then.steps, then.warmup) == (0, 0, 0)
    assert progress.line(then).startswith("limpet: 5 of 20 draws (25%), 1 draws/s, 0:04 left")


def test_warm_up_is_told_with_an_estimate(monkeypatch):
    monkeypatch.setattr(session, "LOOK", 0.001)
    told = []
    sample(warmup=20_000, progress=told.append)
    warming = [now for now in told if now.phase == "warmup"]
    steps = [now.steps for now in warming]
    assert steps == sorted(steps)
    assert steps[-1] <= warming[-1].warmup == 20_000
    assert any(now.seconds_left is not None and now.seconds_left > 0 for now in warming)
    elapsed = [now.elapsed for now in told]
    assert elapsed == sorted(elapsed)
    assert elapsed[0] == 0


def test_all_phases_in_words():
    words = {
        "start": "128 chains, starting, finding the surface, 0:12 elapsed",
        "compile": "128 chains, compiling, up to a minute, 0:12 elapsed",
        "warmup": "128 chains, warming up, 512 of 1,000 steps, 0:40 left, 0:12 elapsed",
        "draws": "0 of 128,000 draws (0%), 0:40 left, 0:12 elapsed",
        "done": "0 of 128,000 draws (0%), 0:12 elapsed",
    }
    for phase, text in words.items():
        left = 40.0 if phase in ("warmup", "draws") else None
        now = NOW._replace(phase=phase, seconds_left=left)
        assert progress.line(now) == f"limpet: {text}"


OPEN = NOW._replace(steps=160, ends_by_itself=True)


def test_a_warm_up_that_ends_by_itself_says_so():
    begins = "limpet: 128 chains, warming up, step 160 of at most 1,000, "
    found = "sizes found, until chains agree, at most 0:40 left, 0:12 elapsed"
    assert progress.line(OPEN) == begins + found
    learning = OPEN._replace(settled=1, seconds_left=None)
    assert progress.line(learning) == f"{begins}sizes settled in 1 of 2 rounds, 0:12 elapsed"
    drawing = OPEN._replace(phase="draws")
    assert progress.line(drawing) == progress.line(NOW._replace(phase="draws"))


def test_time_left_is_told_only_once_sizes_are_found(monkeypatch):
    monkeypatch.setattr(session, "LOOK", 0.001)
    told = []
    sample(warmup=None, progress=told.append)
    warming = [now for now in told if now.phase == "warmup"]
    assert all(now.ends_by_itself and now.warmup <= 1_064 for now in warming)
    learning = [now.settled is not None for now in warming]
    assert learning == sorted(learning, reverse=True)
    assert any(learning)
    assert all(now.seconds_left is None for now in warming if now.settled is not None)
    assert not any(now.settled for now in told if now.phase != "warmup")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("phase", [*progress.DOING, "open"])
def test_panels_fit(width, phase):
    console = rich.console.Console(file=io.StringIO(), width=width)
    console.print(progress.panel(OPEN if phase == "open" else NOW._replace(phase=phase), width))
    assert isinstance(console.file, io.StringIO)
    rows = console.file.getvalue().splitlines()
    assert max(map(len, rows)) <= width
    assert width < 80 or len(rows) == 4
    assert width < 80 or "0:12" in rows[0]


def test_a_run_without_warm_up_has_a_panel():
    console = rich.console.Console(file=io.StringIO(), width=80)
    console.print(progress.panel(NOW._replace(steps=0, warmup=0)))


class Stream(io.StringIO):
    """Standard error, perhaps of a terminal."""

    def __init__(self, terminal=False):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        """Whether it says that it is a terminal."""
        return self.terminal


def shown_on(monkeypatch, stream, **environment):
    """What a run of one silent phase writes."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm"} | environment).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.show_progress(True) as show:
        show(progress.at_the_start(4, 100))
        show(NOW)
    return stream.getvalue()


def test_a_terminal_has_a_panel(monkeypatch):
    text = shown_on(monkeypatch, Stream(terminal=True))
    assert HIDDEN in text
    assert "\x1b[36m" in text  # cyan
    assert "512 of 1,000 steps" in text


def test_no_color(monkeypatch):
    text = shown_on(monkeypatch, Stream(terminal=True), NO_COLOR="1")
    assert HIDDEN in text
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", text)


@pytest.mark.parametrize(
    ("terminal", "environment"),
    [(False, {}), (False, {"FORCE_COLOR": "1"}), (True, {"TERM": "dumb"})],
)
def test_plain_lines_where_nothing_can_be_written_over(monkeypatch, terminal, environment):
    text = shown_on(monkeypatch, Stream(terminal), **environment)
    assert text.splitlines() == [progress.line(progress.at_the_start(4, 100)), progress.line(NOW)]


def wait_until(condition):
    while not condition():
        time.sleep(0.01)


def test_silent_phases_tick(monkeypatch):
    """Nothing is told while a compiler is at work, but time goes on."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.05)
    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.show_progress(True) as show:
        show(NOW._replace(phase="compile", elapsed=59.5))
        wait_until(lambda: "1:01 elapsed" in stream.getvalue())


def test_the_panel_ticks(monkeypatch):
    stream = Stream(terminal=True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.show_progress(True) as show:
        show(NOW._replace(phase="compile", elapsed=59.5))
        wait_until(lambda: "1:01" in stream.getvalue())


# streams that nobody reads


class Broken(io.StringIO):
    """A stream whose reader is gone."""

    def __init__(self, error, terminal):
        super().__init__()
        self.error, self.terminal = error, terminal

    def write(self, text):
        """Fail."""
        raise self.error

    def flush(self):
        """Fail."""
        raise self.error

    def isatty(self):
        """Whether it says that it is a terminal."""
        return self.terminal


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


STREAMS = {
    "none": lambda: None,
    "closed": closed,
    "broken": lambda: Broken(BrokenPipeError(32, "Broken pipe"), terminal=False),
    "full": lambda: Broken(OSError(28, "No space left on device"), terminal=False),
    "terminal gone": lambda: Broken(OSError(5, "Input/output error"), terminal=True),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_run_outlives_its_stream(monkeypatch, whole, name):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", STREAMS[name]())
    draws = sample(progress=True)
    np.testing.assert_array_equal(draws.posterior["x"], whole.posterior["x"])


def test_a_warning_that_cannot_be_shown_ends_nothing():
    code = (
        "import sys; from limpet.errors import LimpetWarning, warn; sys.stderr.close();"
        "warn('nobody hears this', LimpetWarning); print('alive')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "alive\n")


def test_letters_that_a_stream_does_not_have():
    raw = io.BytesIO()
    stream = progress.Unfailing(io.TextIOWrapper(raw, "ascii", write_through=True))
    stream.write("R\u0302 \u2501\n")
    assert raw.getvalue() == b"R? ?\n"


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    path = tmp_path_factory.mktemp("problem") / "spheres.py"
    path.write_text(PROBLEM)
    return path


def shell(line, problem, store, **environment):
    """A line of shell, in which `limpet` makes a store; what it writes, and limpet's status."""
    command = f"'{sys.executable}' -m limpet sample '{problem}' -o '{store}' --chains 5 --draws 60"
    line = line.replace("LIMPET", f"{command} --warmup 200 --seed 3")
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    return ended.stdout, ended.stderr, ended.returncode


STREAMS_OF_A_COMMAND = [
    ("LIMPET 2>&1 | true", 141),  # as of a program that SIGPIPE ended
    ("LIMPET | true", 141),
    ("LIMPET 2>&-", 0),
    ("LIMPET >&- 2>&-", 0),
    ("LIMPET 2>/dev/full", 0),
    ("LIMPET >/dev/full", 1),
]


@pytest.mark.parametrize(
    ("line", "status", "unbuffered"),
    # if it is buffered, Python writes what is left as it ends
    [(*each, unbuffered) for each in STREAMS_OF_A_COMMAND for unbuffered in ("1", "")]
    # of buffered lines, `head` may have read all before it closes the pipe
    + [("LIMPET 2>&1 | head -1", 141, "1")],
)
def test_the_command_outlives_its_streams(problem, tmp_path, whole, line, status, unbuffered):
    store = tmp_path / "run.zarr"
    output, errors, code = shell(line, problem, store, PYTHONUNBUFFERED=unbuffered)
    assert code == status, (output, errors)
    assert "Traceback" not in output + errors
    draws = limpet.open(store)
    np.testing.assert_array_equal(draws.posterior["x"], whole.posterior["x"])


def test_the_command_without_colours_or_letters(problem, tmp_path):
    plain = {"NO_COLOR": "1", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    output, errors, code = shell("LIMPET", problem, tmp_path / "run.zarr", **plain)
    assert code == 0
    assert "\x1b" not in output + errors
    assert (output + errors).isascii()
    times = (
        r"5 chains of 60 draws, in [\d.]+ s: search [\d.]+, compile [\d.]+, warm-up [\d.]+, draws"
    )
    assert re.search(times, output)


# where the time went


NAMES = {*clock.PHASES, "wall_seconds"}


@pytest.mark.parametrize("chains", [1, 5, 300])
def test_times_add_up_to_the_wall(chains, tmp_path):
    began = time.perf_counter()
    draws = sample(chains=chains, draws=1_000, thin=7, workers=2)
    wall = time.perf_counter() - began
    times = {name: draws.attrs[name] for name in NAMES}
    assert all(value > 0 for value in times.values())
    assert sum(times.values()) == pytest.approx(2 * times["wall_seconds"])
    # the rest, making the tree and looking for what to warn of, is short; a busy machine is not
    assert 0.85 * wall - 2 < times["wall_seconds"] < wall


def test_times_of_sessions_add_up(tmp_path):
    store = tmp_path / "run.zarr"
    first = sample(store=store).attrs
    began = time.perf_counter()
    both = limpet.resume(store, TARGET, draws=5_000, progress=False).attrs
    wall = time.perf_counter() - began
    for name in NAMES - {"warmup_seconds"}:
        assert both[name] > first[name]
    assert both["warmup_seconds"] == first["warmup_seconds"]
    assert both["wall_seconds"] < first["wall_seconds"] + wall
    assert {name: limpet.open(store).attrs[name] for name in NAMES} == {n: both[n] for n in NAMES}


def test_times_are_those_of_the_slowest_tile():
    tiles = [dict.fromkeys(clock.PHASES, 1.0), dict.fromkeys(clock.PHASES, 2.0)]
    times = clock.times_of(tiles)
    assert times == dict.fromkeys(clock.PHASES, 2.0) | {"wall_seconds": 8.0}
    assert clock.account(times) == "8.0 s: search 2.0, compile 2.0, warm-up 2.0, draws 2.0"


# callbacks


def test_a_callback_that_fails_is_told_once_and_the_run_goes_on(whole):
    def fail(now):
        raise RuntimeError("no screen")

    with pytest.warns(limpet.LimpetWarning, match="RuntimeError: no screen.*goes on") as said:
        draws = sample(progress=fail)
    assert len([each for each in said if "no screen" in str(each.message)]) == 1
    np.testing.assert_array_equal(draws.posterior["x"], whole.posterior["x"])


def test_where_warnings_are_errors_a_failing_callback_loses_no_draws(tmp_path):
    def fail(now):
        if now.draws:
            raise RuntimeError("no screen")

    store = tmp_path / "run.zarr"
    with pytest.raises(limpet.LimpetWarning, match="no screen"):
        sample(store=store, draws=200_000, progress=fail)
    made = limpet.open(store).posterior.sizes["draw"]
    assert 0 < made < 200_000


@pytest.mark.parametrize("stored", [False, True])
def test_a_callback_stops_a_run_in_any_thread(tmp_path, stored):
    store = tmp_path / "run.zarr" if stored else None
    results, said = [], []

    def work():
        with signals.on_interruption(said.append):
            options = {"store": store, "draws": 200_000}
            results.append(sample(**options, progress=lambda now: not now.draws))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    (draws,), (interruption,) = results, said
    made = draws.posterior.sizes["draw"]
    assert 0 < made < 200_000
    assert interruption.signal is None
    assert str(interruption).startswith(f"Interrupted: {made:,} of 200,000 draws per chain")
    assert ("limpet.resume(store, target) goes on" in str(interruption)) == stored


def test_a_false_of_numpy_stops_a_run():
    with pytest.warns(limpet.InterruptedWarning):
        draws = sample(draws=200_000, progress=lambda now: np.equal(now.draws, 0))
    assert 0 < draws.posterior.sizes["draw"] < 200_000


@pytest.mark.parametrize("stored", [False, True])
def test_a_run_that_is_stopped_at_its_start_makes_no_draw(tmp_path, whole, stored):
    store = tmp_path / "run.zarr" if stored else None
    told = []

    def refuse(now):
        told.append(now.phase)
        return now.phase != "start"

    with pytest.warns(limpet.InterruptedWarning, match="for the run was still starting") as said:
        draws = sample(store=store, progress=refuse)
    assert draws.posterior.sizes["draw"] == 0
    assert told == ["start", "done"]
    assert said.pop(limpet.InterruptedWarning).message.signal is None
    if stored:
        draws = limpet.resume(store, TARGET, progress=False)
        np.testing.assert_array_equal(draws.posterior["x"], whole.posterior["x"])


def test_what_is_falsy_stops_nothing(whole):
    draws = sample(progress=lambda now: 0)
    np.testing.assert_array_equal(draws.posterior["x"], whole.posterior["x"])


# signals


def interrupt_at(phase, *numbers):
    sent = []

    def show(now):
        if now.phase == phase and not sent:
            for number in numbers:
                sent.append(number)
                signal.raise_signal(number)

    return show


DOING = {"compile": "compiling", "warmup": "warming up"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("phase", DOING)
@pytest.mark.parametrize("stored", [False, True])
def test_interrupts_before_the_first_draw_say_so(tmp_path, phase, number, stored):
    store = tmp_path / "run.zarr" if stored else None
    message = (
        f"^Interrupted: 0 of 60 draws per chain were made, for the run was still {DOING[phase]}"
    )
    after = "; limpet.resume(store, target) goes on." if stored else "."
    with pytest.warns(limpet.InterruptedWarning, match=f"{message}{re.escape(after)}$") as said:
        draws = sample(store=store, warmup=100_000, progress=interrupt_at(phase, number))
    assert said.pop(limpet.InterruptedWarning).message.signal == number
    assert draws.posterior.sizes["draw"] == 0
    assert draws.attrs["wall_seconds"] > 0


def test_a_stopped_store_goes_on_after_compiling(tmp_path, whole):
    store = tmp_path / "run.zarr"
    with pytest.warns(limpet.InterruptedWarning):
        sample(store=store, progress=interrupt_at("compile", signal.SIGINT))
    draws = limpet.resume(store, TARGET, progress=False)
    np.testing.assert_array_equal(draws.posterior["x"], whole.posterior["x"])


def test_ctrl_c_while_looking_for_the_surface_makes_no_store(tmp_path):
    store = tmp_path / "run.zarr"
    with pytest.raises(KeyboardInterrupt):
        sample(store=store, progress=interrupt_at("start", signal.SIGINT))
    assert not store.exists()


def test_ctrl_c_is_heard_while_a_library_is_at_work():
    """LLVM and XLA return to Python when they are done, perhaps in half a minute."""
    begun, end = threading.Event(), threading.Event()

    def long_call():
        begun.set()
        end.wait()  # no signal handler runs in here, as it is not the main thread

    def interrupt():
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        with signals.Signals() as asked, asked.nothing_to_lose():
            interruptible(long_call)()
        assert asked.came == signal.SIGINT
    finally:
        end.set()


class Grave:
    """A place where exceptions are ignored, as in callbacks of the garbage collector."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)


def made_into_another():
    """As JAX does where it compares, and as a user's own function may."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise ValueError("not equal") from None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("interrupt", [Grave, made_into_another])
def test_an_interruption_that_gets_lost_is_heard(interrupt, tmp_path):
    def q(x):
        interrupt()
        return two_spheres(x)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        limpet.sample(limpet.Target(q, 0.1), START, store=tmp_path / "run.zarr", progress=False)
    assert signal.getsignal(signal.SIGINT) is handler
    assert not (tmp_path / "run.zarr").exists()


def test_a_handler_that_goes_on_goes_on():
    """That of a program which counts signals, or has work to end first."""
    heard = []

    def q(x):
        os.kill(os.getpid(), signal.SIGINT)
        return two_spheres(x)

    before = signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    try:
        with signals.every_one_heard():
            q(jnp.array(START))
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard


def test_errors_come_out_of_interruptible_calls():
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda a, b: a / b)(1, 0)
    assert interruptible(lambda a, b: a / b)(1, 2) == 0.5


def test_interruptions_are_heard_without_filters_of_warnings():
    """Two threads may each have their own; filters of warnings are the process's."""
    came = []
    with signals.on_interruption(came.append):
        sample(draws=200_000, progress=lambda now: not now.draws)
        curve = ladder(
            limpet.Target(two_spheres, 1.0),
            START,
            eps=[0.1, 0.2],
            draws=20,
            chains=4,
            progress=lambda now: now.phase != "warmup",
        )
    assert [str(each).split(" draws")[0].split(":")[0] for each in came] == ["Interrupted"] * 2
    assert str(came[1]) == "Interrupted: 0 of 2 rungs were finished."
    assert curve["ratio"].shape == (0,)


def interrupted_command(problem, store, phase):
    """The command, interrupted in a phase: what it writes, and its status."""
    command = [sys.executable, "-m", "limpet", "sample", str(problem), "-o", str(store)]
    options = ["--chains", "5", "--warmup", "3000000", "--seed", "3"]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if phase in line:
            process.send_signal(signal.SIGINT)
            break
    output, errors = process.communicate()
    return output, "".join([*said, errors]), process.returncode


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        ("starting", "Interrupted before the first draw: begin again with the same command.\n"),
        (
            "warming up",
            "Interrupted: {store} has no draws yet. Go on: limpet resume {store} {problem}",
        ),
    ],
)
def test_the_command_says_what_to_type_next(problem, tmp_path, phase, message):
    store = tmp_path / "run.zarr"
    output, errors, code = interrupted_command(problem, store, phase)
    assert code == 128 + signal.SIGINT
    assert message.format(store=store, problem=problem) in errors
    assert "Traceback" not in errors
    assert store.exists() == ("of 1,000 asked for" in output) == (phase != "starting")


# models that leave the fast path


def test_a_slow_model_says_so_once(monkeypatch):
    monkeypatch.setattr(tile, "_WARNED", set())

    def flat(x):
        return jnp.fft.fft(x)[:1].real

    target = limpet.Target(lambda x: flat(x), 0.1)
    with pytest.warns(limpet.SlowPathWarning, match="2 to 7 times .*m = 1.* cannot do: ") as said:
        limpet.sample(target, [1.0, 0.0], draws=5, chains=3, warmup=0, progress=False)
    assert said[0].filename == __file__
    # another batch of the same model is compiled again, but its user knows
    again = limpet.Target(lambda x: flat(x), 0.2)
    limpet.sample(again, [1.0, 0.0], draws=5, chains=4, warmup=0, progress=False)
