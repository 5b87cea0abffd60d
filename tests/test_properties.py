"""Any run, interrupted anyhow, is the run that was not: random sizes, samplers, stores, signals.

The plain model is a run in memory with one worker that nothing interrupts. What is compared with it
is chosen by hypothesis: friendly numbers hide mistakes.
"""

import contextlib
import os
import signal
import tempfile
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import CASES

import limpet
from limpet import session
from limpet.draws import commits
from limpet.run import specification, tile

CHAINS = (1, 3, 4, 5, 127, 128, 129, 130, 300, 500)


def bent(point):
    """A surface of points that are trees."""
    return jnp.array([point["a"] @ point["a"] + point["b"][0] ** 2 - 1])


CIRCLE = limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.05)
TREE = limpet.Target(bent, 0.05)
# few of them, so that programs are compiled once: n of 2 to 5, m of 1 or 2, walls, densities, trees
MODELS = {
    "circle, Lifted": (CIRCLE, [1.0, 0.0], limpet.Lifted(), False),
    "circle, SurfaceSampler": (CIRCLE, [1.0, 0.0], limpet.SurfaceSampler(), False),
    "circle, SAS with surface": (CIRCLE, [1.0, 0.0], limpet.SAS(), True),
    "tree, Lifted": (TREE, {"a": [1.0, 0.1], "b": (0.2,)}, limpet.Lifted(), False),
    "tilted, SAS": (CASES["tilted"].target, CASES["tilted"].start, limpet.SAS(), False),
    "torus, RandomWalk": (CASES["torus"].target, CASES["torus"].start, limpet.RandomWalk(), False),
}


class StopError(RuntimeError):
    """What a user's callback may raise."""


@st.composite
def interruptions(draw):
    """At which look, in which way, and what number of draws is then asked for: a change or none."""
    look = draw(st.integers(0, 12))
    way = draw(st.sampled_from([signal.SIGINT, signal.SIGTERM, StopError]))
    change = draw(st.sampled_from([0, 0, 0, 40, -40]))
    return look, way, change


def interrupting(look, way):
    """A callback that interrupts a run at one of its looks."""
    looks = iter(range(10**9))

    def show(now):
        if now.phase in ("warmup", "draws") and next(looks) == look:  # before and after, no handler
            if way is StopError:
                raise StopError
            os.kill(os.getpid(), way)

    return show


@contextlib.contextmanager
def many_looks(blocks):
    """Small chunks, frequent commits, short advances: more happens in a short run."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", limpet.LimpetWarning)
        patch.setattr(session, "LOOK", 0.001)
        patch.setattr(tile, "blocks_at_once", lambda width, block: blocks)
        patch.setattr(specification, "LONGEST_CHUNK", 32)
        patch.setattr(commits, "SOONEST", 0.0)
        patch.setattr(commits, "SHARE", np.inf)
        patch.setattr(os, "fsync", lambda _: None)
        yield


def check_same(draws, whole, *, counted):
    """Bit for bit the first draws of the whole run."""
    made = draws["posterior"].sizes["draw"]
    for group in set(whole.children) - {"moves", "scale"}:
        assert set(draws[group].data_vars) == set(whole[group].data_vars)
        for name, array in draws[group].data_vars.items():
            np.testing.assert_array_equal(array, whole[group][name][:, :made])
    if counted:
        assert made == whole["posterior"].sizes["draw"]
        assert draws.attrs["counts"] == whole.attrs["counts"]
        assert draws.attrs["steps"] == whole.attrs["steps"]
        assert draws.attrs["parameters"] == whole.attrs["parameters"]
        np.testing.assert_array_equal(draws["moves"]["counts"], whole["moves"]["counts"])


def interrupted_and_resumed(path, begin, target, asked, stops, whole):
    """Begin a run in a store, stop it again and again, and let it end; the draws in the end."""
    changed = False
    for number, (look, way, change) in enumerate([*stops, (None, None, 0)]):
        show = interrupting(look, way)
        with contextlib.suppress(StopError):
            if number == 0:
                draws = begin(asked, store=path, progress=show)
            else:
                draws = limpet.resume(path, target, draws=asked, progress=show)
        if not path.exists():  # stopped before there was a store
            return interrupted_and_resumed(path, begin, target, asked, stops[1:], whole)
        left = limpet.open(path)
        check_same(left, whole(asked), counted=False)
        if change and asked + change >= max(left["posterior"].sizes["draw"], 1):
            asked, changed = asked + change, True
    check_same(draws, whole(asked), counted=not changed)
    check_same(limpet.open(path), whole(asked), counted=not changed)


EXAMPLES = given(
    model=st.sampled_from(sorted(MODELS)),
    chains=st.sampled_from(CHAINS),
    asked=st.integers(1, 150),
    thin=st.integers(1, 3),
    warmup=st.sampled_from([0, 70, 300]),
    seed=st.integers(0, 3),
    workers=st.integers(1, 3),
    blocks=st.integers(1, 4),
    stored=st.sampled_from([True, True, False]),
    stops=st.lists(interruptions(), max_size=3),
)


def check_run(model, chains, asked, thin, warmup, seed, workers, blocks, stored, stops):
    """A run of these sizes, interrupted so, against one that is not."""
    target, start, kernel, keep_surface = MODELS[model]
    options = {"chains": chains, "thin": thin, "warmup": warmup, "seed": seed}
    options |= {"kernel": kernel, "keep_surface": keep_surface}
    known = {}

    def whole(draws):
        if draws not in known:
            with many_looks(8):
                known[draws] = limpet.sample(
                    target, start, draws=draws, workers=1, progress=False, **options
                )
        return known[draws]

    def begin(draws, **more):
        return limpet.sample(target, start, draws=draws, workers=workers, **options | more)

    with many_looks(blocks), tempfile.TemporaryDirectory() as folder:
        if stored:
            path = Path(folder) / "run.zarr"
            interrupted_and_resumed(path, begin, target, asked, stops, whole)
            return
        look, way, _ = stops[0] if stops else (None, None, 0)
        with contextlib.suppress(StopError):
            draws = begin(asked, progress=interrupting(look, way))
            complete = draws["posterior"].sizes["draw"] == asked
            check_same(draws, whole(asked), counted=complete)


QUIET = {"suppress_health_check": list(HealthCheck)}


@settings(max_examples=15, **QUIET)
@EXAMPLES
def test_any_run_interrupted_anyhow_is_the_run_that_was_not(**example):
    check_run(**example)


@pytest.mark.slow
@settings(max_examples=600, **QUIET)
@EXAMPLES
def test_many_more_runs(**example):
    check_run(**example)
