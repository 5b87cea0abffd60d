"""Runs that go on until they have so many effective draws: as many draws, however they are made."""

import functools
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xarray as xr
from elsewhere import START, make_target
from typer.testing import CliRunner

import limpet
from limpet.cli import app
from limpet.draws import check
from limpet.report.progress import Progress, line, panel
from limpet.run.goal import Goal
from limpet.run.mixing import Worst
from limpet.run.signals import on_interruption

# a last tile of two chains; stages of 200 draws and more
OPTIONS = {"chains": 130, "warmup": 200, "seed": 5, "progress": False}
KERNELS = {"every step a draw": (limpet.Lifted(), 8_000), "gaps": (limpet.SAS(), 6_000)}


def assert_close(draws, others):
    """The same, but for the last digit of acceptance: where a sum was cut in two may differ."""
    for group in ("posterior", "sample_stats"):
        assert draws[group].to_dataset().identical(others[group].to_dataset().load())
    assert draws["moves"]["counts"].identical(others["moves"]["counts"])
    xr.testing.assert_allclose(draws["moves"].to_dataset(), others["moves"].to_dataset(), 1e-13)


def least(draws):
    return float(limpet.summary(draws).variables["ess"].min())


@pytest.fixture(scope="module", params=KERNELS)
def case(request):
    """A kernel, a goal, and the run that reaches it in memory and in one go."""
    kernel, ess = KERNELS[request.param]
    options = OPTIONS | {"kernel": kernel, "ess": ess}
    return options, limpet.sample(make_target(), START, **options)


def test_it_is_reached_and_little_more(case):
    options, draws = case
    assert options["ess"] <= least(draws) <= 2 * options["ess"]
    assert draws.posterior.sizes["draw"] > 200
    assert draws.attrs["ess_asked"] == options["ess"]
    asked = {name: value for name, value in options.items() if name != "ess"}
    asked["draws"] = draws.posterior.sizes["draw"]
    assert_close(limpet.sample(make_target(), START, **asked), draws)


def test_interruptions_and_workers_change_nothing(case, tmp_path):
    options, whole = case
    path, target, stops, last = tmp_path / "run.zarr", make_target(), [], [0]

    def stop_again(now):
        """Stop whenever some thousand draws were made."""
        stop = now.phase == "draws" and now.draws > last[0] + 5_000
        last[0] = now.draws if stop else last[0]
        return not stop

    begin = functools.partial(limpet.sample, target, START, store=path)
    with ThreadPoolExecutor(2) as pool, on_interruption(stops.append):
        engines = [{"workers": 1}, {"executor": pool}, {}]
        draws, before = begin(**options | {"progress": stop_again}), -1
        while len(stops) > before + 1:
            before += 1
            draws = limpet.resume(path, target, progress=stop_again, **engines[before % 3])
    assert stops
    assert "draws per chain were made, before ess=" in str(stops[0])
    assert_close(draws, whole)
    assert_close(limpet.open(path), whole)
    assert check(path).intact
    assert_close(limpet.resume(path, target, progress=False), whole)  # there is nothing to do


def test_a_run_is_given_a_goal_later_or_another(tmp_path):
    path, target = tmp_path / "run.zarr", make_target()
    limpet.sample(target, START, draws=30, store=path, **OPTIONS)
    far = limpet.resume(path, target, ess=5_000, progress=False)
    assert least(far) >= 5_000
    further = limpet.resume(path, target, ess=7_000, progress=False)
    assert least(further) >= 7_000
    made = further.posterior.sizes["draw"]
    longer = limpet.resume(path, target, draws=made + 7, progress=False)
    assert longer.posterior.sizes["draw"] == made + 7
    assert "ess_asked" not in longer.attrs


def test_the_limit_ends_it_with_a_warning():
    with pytest.warns(limpet.MixingWarning, match=r"ess=90,000 was not reached with draws=210 per"):
        draws = limpet.sample(make_target(), START, ess=90_000, draws=210, **OPTIONS)
    assert draws.posterior.sizes["draw"] == 210


def test_stages():
    goal, good = Goal(10_000, 5_000), Worst(1.0, 4_000.0, 0, 0)
    assert goal.first(4) == 2_500
    assert goal.first(128) == 200
    assert Goal(10, 50).first(128) == 50
    assert goal.further(200, good, gaps=False) == 550  # a tenth more than it seems to take
    assert goal.further(200, good._replace(ess=9_900.0), gaps=False) == 250
    assert goal.further(200, good._replace(ess=9_900.0), gaps=True) == 400
    assert goal.further(200, good._replace(ess=10.0), gaps=False) == 800
    assert goal.further(2_000, good._replace(ess=10.0), gaps=False) == 5_000
    for lost in (Worst(1.2, 20_000.0, 0, 0), Worst(np.nan, np.nan, 0, 0)):
        assert not goal.reached(lost)
        assert goal.further(200, lost, gaps=False) == 400
        assert goal.further(5_000, lost, gaps=False) is None
    assert goal.further(200, good._replace(ess=10_000.0), gaps=False) is None


def test_progress_shows_how_far_it_is():
    now = Progress("draws", 1_234, 9_999, 130, 10.0, 60.0, {}, 1.01, 2_500.0, ess_asked=10_000)
    assert "1,234 draws (25%)" in line(now)
    assert "least ESS about 2,500 of 10,000" in line(now)
    assert panel(now) is not None
    told = []
    limpet.sample(make_target(), START, ess=6_000, **OPTIONS | {"progress": told.append})
    assert {now.ess_asked for now in told} == {6_000}
    assert told[-1].ess > 4_000
    assert all(now.seconds_left is None or now.seconds_left >= 0 for now in told)


@pytest.mark.parametrize("ess", [0, -5, 1.5, "many", True])
def test_what_is_refused(ess):
    with pytest.raises(limpet.InputError, match=r"ess=.*: expected a whole number"):
        limpet.sample(make_target(), START, ess=ess)


def test_the_command(tmp_path):
    problem = tmp_path / "problem.py"
    problem.write_text("from elsewhere import START as start, make_target\ntarget = make_target()")
    path = str(tmp_path / "run.zarr")
    options = ["--chains", "20", "--warmup", "200", "--ess", "3000", "--json", "-q"]
    told = CliRunner().invoke(app, ["sample", str(problem), "-o", path, *options])
    assert json.loads(told.stdout)["ess_asked"] == 3_000, told.output
    assert least(limpet.open(path)) >= 3_000
    again = CliRunner().invoke(app, ["resume", path, str(problem), "--ess", "5000", "--json", "-q"])
    assert json.loads(again.stdout)["ess_asked"] == 5_000, again.output
