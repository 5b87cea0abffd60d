"""kill -9 at any moment: the store opens, at most five seconds are lost, and the run goes on.

One run is killed again and again, with the settings that users have: at random moments of its
warm-up and its sampling, and between the steps of writing a file. Each time the draws must be those
of before and more; in the end they must be those of a run that was never killed.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from killed import RUN, TARGET

import limpet
from limpet.draws import check
from limpet.run.tile_run import LOOK

LOST_LOOKS = round(5 / LOOK)  # looks at a run, which are at least LOOK seconds apart, in 5 seconds


@contextlib.contextmanager
def runs(path, cache):
    """What makes runs that are to be killed."""
    # compiled once: else this would test XLA, not limpet
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    script = [sys.executable, Path(__file__).with_name("killed.py"), path]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        script, stdin=pipe, stdout=pipe, text=True, env=os.environ | settings, bufsize=1
    ) as maker:
        yield maker
        maker.stdin.close()
        assert maker.wait() == 0


def killed(maker, seconds, file):
    """Kill a run this long after its first look, or let it kill itself at a file; what it said."""
    print("" if file is None else file, file=maker.stdin, flush=True)
    said, process = [], None
    for line in maker.stdout:
        word, *more = line.split()
        if word == "ended":
            assert int(*more) == -signal.SIGKILL
            return said
        if word == "begun":
            process = int(*more)
        else:
            said.append(int(word))
        if seconds is not None and process is not None and said:
            time.sleep(seconds)
            os.kill(process, signal.SIGKILL)
            seconds = None
    pytest.fail("runs are not made any more")


def kill_again_and_again(path, cache, moments):
    """Kill a run at these moments: after some seconds, or at a number of file; the draws left."""
    with runs(path, cache) as maker:
        return kill_runs_of(maker, path, moments)


def kill_runs_of(maker, path, moments):
    before = np.empty((128, 0, 2))
    for seconds, file in moments:
        said = killed(maker, seconds, file)
        if not path.exists():  # killed before there was a store: nothing was promised
            continue
        x = limpet.open(path).posterior["x"].load().values
        made = x.shape[1]
        assert made >= before.shape[1]
        assert made >= said[-LOST_LOOKS] if len(said) >= LOST_LOOKS else True
        np.testing.assert_array_equal(x[:, : before.shape[1]], before)
        assert check(path).readable
        before = x
    return before


def compare_with_a_run_that_was_not_killed(path, x):
    asked = x.shape[1] + 100
    whole = limpet.sample(TARGET, [1.0, 0.0], draws=asked, progress=False, **RUN)
    np.testing.assert_array_equal(x, whole.posterior["x"][:, : x.shape[1]])
    resumed = limpet.resume(path, TARGET, draws=asked, progress=False)
    np.testing.assert_array_equal(resumed.posterior["x"], whole.posterior["x"])
    np.testing.assert_array_equal(resumed.sample_stats["step"], whole.sample_stats["step"])
    assert resumed.attrs["counts"] == whole.attrs["counts"]
    assert check(path).intact


def moments(count, seed):
    """Random moments: half of them between the steps of writing files; some after a long life."""
    chance = random.Random(seed)
    times = [6.0 if k % 5 == 0 else chance.uniform(0, 1) for k in range((count + 1) // 2)]
    numbers = [chance.randint(1, 60) for _ in range(count // 2)]
    every = [(seconds, None) for seconds in times] + [(None, number) for number in numbers]
    chance.shuffle(every)
    return every


def test_a_run_that_is_killed_ten_times(tmp_path):
    path = tmp_path / "run.zarr"
    compare_with_a_run_that_was_not_killed(
        path, kill_again_and_again(path, tmp_path, moments(10, seed=1))
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_runs_that_are_killed_a_hundred_times(tmp_path, seed):
    path = tmp_path / "run.zarr"
    compare_with_a_run_that_was_not_killed(
        path, kill_again_and_again(path, tmp_path, moments(25, seed))
    )
