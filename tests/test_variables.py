"""The variables of a run by name, and the words in which runs are told of."""

import handmade
import numpy as np
import pytest
import xarray as xr

import limpet
from limpet.kernels.states import Move, Outcome
from limpet.report.advice import MOST_NAMED, causes, first_few
from limpet.report.summary import digits
from limpet.report.variables import measure_variables


def test_every_number_of_a_variable_has_a_name_and_measures():
    rng = np.random.default_rng(1)
    x, energy = rng.normal(size=(4, 100, 2, 2)), rng.normal(5, 2, size=(4, 100))
    posterior = xr.Dataset(
        {
            "x": (("chain", "draw", "i", "j"), x),
            "none": (("chain", "draw", "k"), np.empty((4, 100, 0))),
            "energy": (("chain", "draw"), energy),
        }
    )
    names, measures = measure_variables(posterior)
    assert names == ["x[0, 0]", "x[0, 1]", "x[1, 0]", "x[1, 1]", "energy"]
    np.testing.assert_allclose(measures.mean, [*x.mean(axis=(0, 1)).ravel(), energy.mean()])
    np.testing.assert_allclose(measures.sd[-1], energy.std(ddof=1))


def test_labels_are_in_the_names_as_arviz_has_them():
    arviz = pytest.importorskip("arviz")
    labels = {"way": ["red", "/b", "[i]"], "at": [0.5, 2.0]}  # markup to rich, but not here
    x = np.random.default_rng(1).normal(size=(4, 100, 3, 2))
    draws = handmade.result(("hard",), {"accepted": 10}, x=x)
    posterior = draws["posterior"].to_dataset().rename(x_0="way", x_1="at").assign_coords(labels)
    draws["posterior"] = xr.DataTree(posterior)
    names = [f"x[{way}, {at}]" for way in labels["way"] for at in labels["at"]]
    assert measure_variables(posterior)[0] == names
    assert list(arviz.summary(limpet.to_inference_data(draws)).index) == names
    shown = str(limpet.summary(draws))
    assert [name for name in names if f" {name} " in shown] == names
    panels = {axes.get_label() for axes in limpet.plot(draws).axes}
    assert {f"trace of {name}" for name in names} <= panels


def test_a_summary_shows_names_that_are_there_twice():
    draws = handmade.result(("hard",), {"accepted": 10}, x=np.eye(100)[:, :, None] * [1.0, 2.0])
    posterior = draws["posterior"].to_dataset().assign_coords(x_0=["same", "same"])
    draws["posterior"] = xr.DataTree(posterior)
    rows = str(limpet.summary(draws)).splitlines()[-2:]
    assert [row.split()[:2] for row in rows] == [["x[same]", "0.01000"], ["x[same]", "0.0200"]]


def test_chains_are_named_up_to_a_number():
    assert first_few([3, 5]) == "3, 5"
    named = first_few(np.arange(MOST_NAMED + 2))
    assert named.endswith(f"{MOST_NAMED - 1} and 2 more")


def test_causes_name_the_move_the_share_and_the_number_to_change():
    counts = np.zeros((2, len(Move), len(Outcome)), int)
    counts[:, Move.HARD, Outcome.ACCEPTED] = 30
    counts[:, Move.HARD, Outcome.REVERSE] = 10
    text = causes(limpet.Lifted(), counts)
    assert text.startswith("Hard moves (step_size): 25% of 80 failed, mostly because the way back")
    assert causes(limpet.Lifted(), counts * 0) == ""


@pytest.mark.parametrize(
    ("error", "text"), [(0.012, "1.235"), (12.0, "1"), (np.nan, "1.235"), (0.0, "1.235")]
)
def test_digits_are_those_that_are_known(error, text):
    assert format(1.23456, digits(error)) == text
