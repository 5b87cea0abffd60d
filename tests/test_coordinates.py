"""Axes and the places along them in the users' own words, in memory and in stores."""

import json
import warnings

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import limpet
from limpet.coordinates import Coordinates, dataset
from limpet.layout import Layout
from limpet.run.specification import RunSpecification


def bonds(point):
    first, second = point["bead"]
    return jnp.array([jnp.linalg.norm(first), jnp.linalg.norm(second - first)]) - 1


TARGET = limpet.Target(bonds, 0.05)
START = {"bead": np.array([[1.0, 0.2, 0.0], [1.5, 1.0, 0.3]]), "free": np.zeros(3), "alone": 0.1}
WORDS = {
    "dims": {"bead": ["which", "axis"], "free": ("axis",)},
    "coords": {"axis": ["x", "y", "z"]},
}
ASKED = {"draws": 50, "chains": 3, "warmup": 50, "progress": False}


def q(point):
    more = jnp.array([*point["free"], point["alone"]])
    return jnp.concatenate([bonds(point), more])


def sample(**options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", limpet.LimpetWarning)
        return limpet.sample(limpet.Target(q, 0.05), START, **ASKED | options)


def test_draws_are_in_the_users_words():
    draws, plain = sample(**WORDS, keep_surface=True), sample(keep_surface=True)
    for group in ("posterior", "surface"):
        found = draws[group].to_dataset()
        assert found["bead"].dims == ("chain", "draw", "which", "axis")
        assert found["free"].dims == ("chain", "draw", "axis")
        assert found["axis"].values.tolist() == ["x", "y", "z"]
        assert found["which"].values.tolist() == [0, 1]
        for name in START:  # names change no bits
            np.testing.assert_array_equal(found[name], plain[group][name])
    np.testing.assert_array_equal(
        draws.posterior["bead"].sel(which=1, axis="z"), plain.posterior["bead"][:, :, 1, 2]
    )
    assert "bead[1, z]" in str(limpet.summary(draws))


def test_a_plain_vector_is_x():
    circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.05)
    words = {"dims": {"x": "way"}, "coords": {"way": np.array(["east", "north"])}}
    with pytest.warns(limpet.LimpetWarning, match=r"^(R-hat|The effective sample size) of x\[\w+t"):
        draws = limpet.sample(circle, [1.0, 0.0], **ASKED, **words)
    assert draws.posterior["x"].sel(way="east").dims == ("chain", "draw")
    with pytest.warns(limpet.LimpetWarning):
        draws = limpet.sample(circle, [1.0, 0.0], **ASKED, coords={"x_dim": [10, 20]})
    assert draws.posterior["x_dim"].values.tolist() == [10, 20]


def test_words_survive_a_store(tmp_path):
    path = tmp_path / "run.zarr"
    whole = sample(**WORDS, draws=80)
    stored = sample(**WORDS, store=path)
    assert stored.posterior.identical(limpet.open(path).posterior)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", limpet.LimpetWarning)
        longer = limpet.resume(path, limpet.Target(q, 0.05), draws=80, progress=False)
    for draws in (longer, limpet.open(path)):
        xr.testing.assert_identical(draws.posterior.to_dataset(), whole.posterior.to_dataset())
    theirs = xr.open_zarr(path, group="posterior", consolidated=False)
    assert theirs["bead"].dims == ("chain", "draw", "which", "axis")


def test_words_survive_netcdf_and_zarr(tmp_path):
    draws = sample(**WORDS)
    draws.to_netcdf(tmp_path / "draws.nc")
    draws.to_zarr(tmp_path / "draws.zarr", consolidated=False)
    with xr.open_datatree(tmp_path / "draws.nc") as back:
        assert back.posterior["axis"].values.tolist() == ["x", "y", "z"]
    with xr.open_datatree(tmp_path / "draws.zarr", consolidated=False) as back:
        assert back.posterior["axis"].values.tolist() == ["x", "y", "z"]


def test_a_store_without_words_is_as_it_was_before_there_were_any(tmp_path):
    path = tmp_path / "run.zarr"
    sample(store=path, coords={"free_dim": range(3)})  # which is how limpet counts
    entries = json.loads((path / "zarr.json").read_text())["attributes"]["limpet"]
    assert "coordinates" not in entries
    assert not RunSpecification.from_json(entries).coordinates


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        (("a", "b", "c"), ["a", "b", "c"]),
        (np.array(["a", "b", "c"]), ["a", "b", "c"]),
        (np.array(["a", "b", "c"], object), ["a", "b", "c"]),
        (pd.Index(["a", "b", "c"]), ["a", "b", "c"]),
        (pd.Series(["a", "b", "c"], dtype="category"), ["a", "b", "c"]),
        (xr.DataArray([3, 1, 2], dims="k"), [3, 1, 2]),
        (jnp.array([3, 1, 2]), [3, 1, 2]),
        (range(5, 8), [5, 6, 7]),
        (np.array([1, 2, 3], np.uint8), [1, 2, 3]),
        ([np.float32(0.5), 1, np.int8(2)], [0.5, 1.0, 2.0]),
        (np.array([0.0, 1.0, 2.0]), [0.0, 1.0, 2.0]),
        (pd.date_range("2026-01-01", periods=3).astype(str), [f"2026-01-0{k}" for k in (1, 2, 3)]),
    ],
    ids=str,
)
def test_labels_may_be_any_sequence_of_strings_or_numbers(given, labels):
    found = Coordinates.of(Layout.of(np.zeros(3)), None, {"x_dim": given}).coords["x_dim"]
    assert [(type(a), a) for a in found] == [(type(a), a) for a in labels]


SIZES = st.lists(st.integers(0, 3), max_size=3)
TEXTS = st.text("a0é☃𝄞[],.:$ 'b\"\\\\", max_size=5)
KINDS = (
    TEXTS,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)


@st.composite
def words(draw):
    """A point, and names and labels for some of it."""
    point = {name: np.zeros(draw(SIZES)) for name in draw(st.sampled_from(["a", "ab", "abc"]))}
    layout, dims, sizes = Layout.of(point), {}, {}
    for name, shape, axes in zip(layout.names, layout.shapes, layout.axes, strict=True):
        if draw(st.booleans()):
            axes = [f"{name}{k}_{draw(TEXTS)}" for k in range(len(shape))]
            dims[name] = axes
        sizes |= dict(zip(axes, shape, strict=True))
    coords = {}
    for axis, size in sizes.items():
        if draw(st.booleans()):
            kind = draw(st.sampled_from(KINDS))
            coords[axis] = draw(st.lists(kind, min_size=size, max_size=size, unique=True))
    return point, dims, coords


@given(words())
def test_any_words_come_back_from_json_and_are_in_the_result(given_words):
    point, dims, coords = given_words
    layout = Layout.of(point)
    made = Coordinates.of(layout, dims, coords)
    if made:
        assert Coordinates.from_json(layout, json.loads(json.dumps(made.to_json()))) == made
    arrays = {name: np.zeros((2, 5, *array.shape)) for name, array in point.items()}
    result = dataset(arrays, ("chain", "draw"), made.dims, made.coords)
    for name, axes in zip(layout.names, made.axes(layout), strict=True):
        assert result[name].dims == ("chain", "draw", *axes)
        assert list(axes) == dims.get(name, list(axes))
    for axis, labels in coords.items():
        assert result[axis].values.tolist() == labels
