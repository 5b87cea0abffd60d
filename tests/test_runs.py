"""A run as its user sees it: workers, progress, advice, and other people's loops."""

import io
import itertools
import re

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.console
import xarray as xr
from arviz_stats import ess, rhat

import limpet
from limpet import session
from limpet.kernels.states import Move, Outcome
from limpet.paper import two_spheres
from limpet.report import advice, progress
from limpet.run import tile_run

TARGET = limpet.Target(two_spheres, 0.05)
START = [1.0, 0.0, 0.0]


def sample(**options):
    given = {"draws": 60, "chains": 300, "warmup": 200, "seed": 3, "progress": False}
    return limpet.sample(TARGET, START, **given | options)


@pytest.fixture(scope="module")
def alone():
    return sample(workers=1)


# workers


@pytest.mark.parametrize("workers", [2, 5, None])
def test_the_number_of_workers_changes_nothing(workers, alone):
    draws = sample(workers=workers)
    np.testing.assert_array_equal(draws.posterior["x"], alone.posterior["x"])
    assert draws.attrs["counts"] == alone.attrs["counts"]
    assert draws.attrs["parameters"] == alone.attrs["parameters"]


@pytest.mark.parametrize("workers", [0, -1, 1.5, "all", True])
def test_a_number_of_workers_that_cannot_be(workers):
    with pytest.raises(limpet.InputError, match=r"^workers="):
        sample(workers=workers)


def test_an_error_in_a_worker_ends_the_run(monkeypatch):
    def fail(tile):
        raise RuntimeError("the machine is on fire")

    monkeypatch.setattr(tile_run.TileRun, "advance", fail)
    with pytest.raises(RuntimeError, match="on fire"):
        sample()


# progress


def test_a_callback_is_told_how_far_the_run_is(monkeypatch, alone):
    monkeypatch.setattr(session, "LOOK", 0.001)
    told = []
    draws = sample(progress=told.append)
    np.testing.assert_array_equal(draws.posterior["x"], alone.posterior["x"])
    phases = [phase for phase, _ in itertools.groupby(now.phase for now in told)]
    assert phases == ["start", "compile", "warmup", "draws", "done"]
    done = [now.draws for now in told]
    assert done == sorted(done)
    last = told[-1]
    assert (last.draws, last.asked, last.chains) == (300 * 60, 300 * 60, 300)
    assert last.acceptance == pytest.approx(draws.attrs["acceptance"])


def test_what_progress_tells_of_mixing_agrees_with_arviz():
    told = []
    draws = sample(draws=640, chains=64, progress=told.append)
    assert told[-1].r_hat == pytest.approx(float(rhat(draws)["x"].max()), abs=0.004)
    assert told[-1].ess == pytest.approx(float(ess(draws)["x"].min()), rel=0.35)
    table = limpet.summary(draws).variables
    assert told[-1].r_hat == pytest.approx(float(table["r_hat"].max()), rel=1e-9)
    assert told[-1].ess == pytest.approx(float(table["ess"].min()), rel=0.2)


@pytest.mark.parametrize("given", [None, 1, "yes"])
def test_progress_that_cannot_be_shown(given):
    with pytest.raises(limpet.InputError, match=r"^progress="):
        sample(progress=given)


def test_plain_lines_when_there_is_no_terminal(capsys):
    sample(progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "limpet: 300 chains, starting, finding the surface"
    assert lines[1].startswith("limpet: 300 chains, compiling, up to a minute")
    assert re.search(r"18,000 of 18,000 draws \(100%\).*hard .*worst R-hat .*least ESS", lines[-1])


def test_silence(capsys):
    sample(progress=False)
    assert capsys.readouterr() == ("", "")


NOW = limpet.Progress(
    "draws", 5_000, 20_000, 4, 1_000.0, 4_000.0, {"hard": 0.5, "off": None}, 1.5, 321.0
)


def test_the_panel_of_a_terminal():
    console = rich.console.Console(file=io.StringIO(), width=100, force_terminal=True)
    console.print(progress.panel(NOW))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    for words in ("5,000", "20,000", "1,000", "1:06:40 left", "hard", "50.0%", "1.500", "321"):
        assert words in shown
    assert max(map(len, shown.splitlines())) <= 100


# advice


def apart(x):
    """Two circles that no slide leads between."""
    return jnp.array([(x[0] ** 2 - 9) ** 2 / 36 + x[1] ** 2 - 0.01])


def test_chains_that_disagree_are_told():
    target = limpet.Target(apart, 0.01)
    with pytest.warns(limpet.MixingWarning, match=r"R-hat of x\[0\] is \d.*above 1.01"):
        limpet.sample(target, [[3.0, 0.1], [-3.0, 0.1]], draws=200, progress=False)


def test_slides_that_are_too_long_are_told_a_better_length():
    kernel = limpet.SAS(sigma_hrd=30.0)
    message = r"Most projections failed.*Lower sigma_hrd=30 to about (0\.\d+|1(\.\d)?),"
    with pytest.warns(limpet.LimpetWarning, match=message):
        limpet.sample(TARGET, START, draws=100, chains=8, warmup=0, kernel=kernel, progress=False)


def test_a_length_that_warm_up_chose_is_not_left_to_warm_up_again():
    kernel, chosen = limpet.SAS(), 3.0
    assert chosen != kernel.sigma_hrd
    tree = xr.DataTree(xr.Dataset(attrs={"parameters": {"sigma_hrd": chosen}}))
    counts = np.zeros((8, len(Move), len(Outcome)), int)
    counts[:, Move.HARD, Outcome.FORWARD], counts[:, Move.HARD, Outcome.ACCEPTED] = 180, 20
    message = (
        r"Most projections failed.*Warm-up chose sigma_hrd=3, .* such as 0\.\d+,.* and warmup=0"
    )
    with pytest.warns(limpet.LimpetWarning, match=message):
        advice._warn_of_failing_moves(tree, kernel, 1, counts)


def test_a_move_that_is_hardly_accepted_is_told():
    kernel = limpet.SAS(sigma_sft=5.0)
    with pytest.warns(limpet.LimpetWarning, match=r"accepted in .*% of tries only|never accepted"):
        limpet.sample(TARGET, START, draws=400, chains=8, warmup=0, kernel=kernel, progress=False)


# other people's loops


def test_blackjax_runs_limpet():
    algorithm = limpet.as_blackjax(limpet.SAS(), TARGET)
    start = jnp.asarray(limpet.find_start(TARGET, START)[0])
    _, (states, info) = blackjax.util.run_inference_algorithm(
        rng_key=jax.random.key(0),
        inference_algorithm=algorithm,
        num_steps=20_000,
        initial_position=start,
    )
    off = states.x[~np.asarray(states.on)]
    assert len(off) / 20_000 == pytest.approx(0.2, abs=0.04)
    # E[x_1^2] = 3/4 - eps^2 / 8; some 600 effective draws, so that this is five standard errors
    assert float(jnp.mean(off[:, 0] ** 2)) == pytest.approx(0.75, abs=0.12)
    assert set(np.unique(info.move)) == {0, 1, 2, 3}


def test_limpet_runs_in_a_scan():
    kernel = limpet.SAS()
    start = jnp.asarray(limpet.find_start(TARGET, START)[0])

    def step(state, key):
        state, info = kernel.step(TARGET, key, state)
        return state, (state.x, info.outcome)

    keys = jax.random.split(jax.random.key(1), 500)
    _, (x, outcome) = jax.lax.scan(step, kernel.init(TARGET, start), keys)
    assert np.isfinite(x).all()
    assert (outcome == 0).mean() > 0.5
