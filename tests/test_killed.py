"""kill -9 at any moment: the store opens, what was committed is there, and the run goes on.

One run is killed again and again, at random moments of its warm-up, of its sampling and of its
commits, and each time gone on with; in the end it must be the run that was never killed.
"""

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

DRAWS = 40_000


@pytest.fixture(scope="module")
def whole():
    return limpet.sample(TARGET, [1.0, 0.0], draws=DRAWS, **RUN)


def begin(path, cache, *more):
    # compiled once: else this would test XLA, not limpet
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    script = [sys.executable, Path(__file__).with_name("killed.py"), path, str(DRAWS), *more]
    return subprocess.Popen(
        script, stdout=subprocess.PIPE, text=True, env=os.environ | settings, bufsize=1
    )


def killed(process, wait):
    """Kill a run some time after its first commit; what it said was safe, and whether it ended."""
    said = []
    with process:
        if wait is not None:
            said.append(process.stdout.readline())
            time.sleep(wait)
            process.kill()
        said += process.stdout.read().split()
    assert process.returncode in (0, -signal.SIGKILL)
    numbers = [int(word) for word in said if word.strip().isdigit()]
    return max(numbers, default=0), "done" in said


def kill_until_done(path, cache, moments, whole):
    """Kill a run at these moments: seconds after a first commit, or the number of a written file.

    Returns how many kills there were before it was done, and how many of them in warm-up.
    """
    kills = in_warm_up = 0
    for seconds, file in moments:
        safe, ended = killed(begin(path, cache, *([str(file)] if file else [])), seconds)
        kills += not ended
        if not path.exists():  # killed before there was a store: nothing was promised
            assert safe == 0
            continue
        draws = limpet.open(path)
        made = draws.posterior["x"].load().sizes["draw"]
        assert made >= min(safe, DRAWS)
        in_warm_up += made == 0
        np.testing.assert_array_equal(draws.posterior["x"], whole.posterior["x"][:, :made])
        if ended:
            break
    resumed = limpet.resume(path, TARGET, progress=False)
    np.testing.assert_array_equal(resumed.posterior["x"], whole.posterior["x"])
    np.testing.assert_array_equal(resumed.sample_stats["step"], whole.sample_stats["step"])
    assert resumed.attrs["counts"] == whole.attrs["counts"]
    return kills, in_warm_up


def moments(count, seed):
    """Random moments: half of them in the middle of writing a file."""
    chance = random.Random(seed)
    return [
        (None, chance.randint(1, 40)) if k % 2 else (chance.uniform(0, 0.2), None)
        for k in range(count)
    ]


def test_a_run_that_is_killed_ten_times(tmp_path, whole):
    kills, in_warm_up = kill_until_done(tmp_path / "run.zarr", tmp_path, moments(10, 1), whole)
    assert kills >= 8
    assert in_warm_up


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9))
def test_runs_that_are_killed_ninety_times_more(tmp_path, whole, seed):
    kills, _ = kill_until_done(tmp_path / "run.zarr", tmp_path, moments(10, 10 + seed), whole)
    assert kills >= 8
