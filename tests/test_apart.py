"""Large programs are compiled by a process of their own, which can be left, and leaves nothing."""

import inspect
import json
import signal
import subprocess
import sys
import threading

import pytest

from limpet import lanes
from limpet.engine import apart
from limpet.engine.interrupts import AbandonedError, leaving_if
from limpet.lanes import machine
from limpet.run.scheduler import Scheduler

# twice its argument, in LLVM's language
TEXT = "define double @twice(double %x) {\n%y = fadd double %x, %x\nret double %y\n}\n"
FOR_EVER = "import time; time.sleep(600)"


@pytest.fixture
def children(monkeypatch):
    """All programs are large; the processes that compile them."""
    monkeypatch.setattr(apart, "MOST_LINES_HERE", 0)
    begun, begin = [], subprocess.Popen

    def popen(*arguments, **named):
        begun.append(begin(*arguments, **named))
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    return begun


def instead(monkeypatch, source):
    """The other process does this instead."""
    monkeypatch.setattr(apart.inspect, "getsource", lambda _: source)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("unroll", [False, True])
def test_another_process_compiles_the_same(children, quick, unroll):
    found = apart.compiled(TEXT, quick=quick, unroll=unroll)
    (child,) = children
    assert child.returncode == 0
    assert found == machine.compiled(TEXT, quick=quick, unroll=unroll)


def test_small_programs_are_compiled_here(children, monkeypatch):
    monkeypatch.setattr(apart, "MOST_LINES_HERE", TEXT.count("\n"))
    assert apart.compiled(TEXT, quick=True) == machine.compiled(TEXT, quick=True)
    assert not children


def test_ctrl_c_ends_the_other_process(children, monkeypatch):
    instead(monkeypatch, FOR_EVER)
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        apart.compiled(TEXT, quick=True)
    (child,) = children
    assert child.returncode is not None


def test_what_is_not_wanted_any_more_is_left_in_any_thread(children, monkeypatch):
    instead(monkeypatch, FOR_EVER)
    stop, told = threading.Event(), []

    class Tile:
        step, done = 0, False

        def advance(self):
            stop.set()
            apart.compiled(TEXT, quick=True)

    scheduler = Scheduler([Tile()], lambda *_: told.append(1), stop, 1)
    while scheduler.wait(0.1):
        pass
    assert scheduler.error is None
    assert not told
    (child,) = children
    assert child.returncode is not None


def test_what_is_wanted_is_waited_for(children):
    with leaving_if(lambda: False):
        assert apart.compiled(TEXT, quick=True)
    with pytest.raises(AbandonedError), leaving_if(lambda: True):
        apart.until_done(apart.ThreadPoolExecutor(1).submit(threading.Event().wait, 1))


def test_a_process_without_memory_is_told_in_words(children, monkeypatch):
    instead(monkeypatch, "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(MemoryError, match=r"^Compiling the steps of this model, 0 MB of program"):
        apart.compiled(TEXT, quick=True)


def test_a_fault_of_llvm_is_a_refusal(children, monkeypatch):
    instead(monkeypatch, "import os; os.abort()")
    with pytest.raises(lanes.UnsupportedError, match="LLVM ends with status"):
        apart.compiled(TEXT, quick=True)


@pytest.mark.parametrize("source", ["import llvmlite_of_another_time", "import sys; sys.exit(0)"])
def test_where_no_other_process_can_compile_this_one_does(children, monkeypatch, source):
    instead(monkeypatch, source)
    assert apart.compiled(TEXT, quick=True) == machine.compiled(TEXT, quick=True)


@pytest.mark.parametrize("program", ["/nowhere/python 3", "/usr/bin/true", "", None])
def test_without_an_interpreter_this_process_compiles(children, monkeypatch, program):
    monkeypatch.setattr(sys, "executable", program)
    assert apart.compiled(TEXT, quick=True) == machine.compiled(TEXT, quick=True)
    assert not children


def test_a_wrong_program_is_an_error_as_ever(children):
    with pytest.raises(RuntimeError, match="LLVM"):
        apart.compiled("define nonsense", quick=True)


def test_the_other_process_ends_with_the_one_that_asked():
    source = inspect.getsource(machine).replace("compiled(text, **options)", "time.sleep(600)")
    command = [sys.executable, "-P", "-c", f"import time\n{source}"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdin.write(json.dumps({"bytes": len(TEXT)}).encode() + b"\n" + TEXT.encode())
    child.stdin.close()  # as the system does when a process is killed
    assert child.wait(60) == 1
    child.stdout.close()
