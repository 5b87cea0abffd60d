"""What people do with draws: files, pickles, tables, ArviZ, notebooks."""

import copy
import json
import pickle
import pydoc
import subprocess
import sys

import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from nbconvert import HTMLExporter
from nbconvert.preprocessors import ExecutePreprocessor

import limpet
from limpet.draws.attributes import NESTED, attributes_of, nest


def ring(x):
    return jnp.array([x["place"] @ x["place"] - 1])


@pytest.fixture(scope="module", params=["memory", "store"])
def made(request, tmp_path_factory):
    """Draws with groups, names and sizes of all kinds, or the store that they are in."""
    target = limpet.Target(ring, 0.01, log_density=lambda x: -jnp.sum(x["a b"] ** 2))
    start = {"place": jnp.array([1.0, 0.0]), "a b": jnp.zeros((2, 1))}
    store = str(tmp_path_factory.mktemp("draws") / "run.zarr") if request.param == "store" else None
    given = {"kernel": limpet.SAS(), "keep_surface": True, "store": store}
    draws = limpet.sample(target, start, draws=60, chains=5, seed=2, progress=False, **given)
    return store or draws


@pytest.fixture
def draws(made):
    """Draws in memory, or on a disk and not yet read."""
    return limpet.open(made) if isinstance(made, str) else made


def assert_same(found, draws):
    """Groups, numbers and names are the same; zarr does not keep their order."""
    assert set(found.children) == set(draws.children)
    for name, group in draws.children.items():
        xr.testing.assert_identical(found[name].to_dataset().load(), group.to_dataset().load())


# parts of a run


def test_the_summary_of_some_chains_and_draws_is_of_those(draws):
    some = draws.isel(chain=[0, 3])
    table = limpet.summary(some)
    counts = draws["moves"]["counts"].isel(chain=[0, 3]).sum(["chain", "outcome"])
    proposals = counts.sel(move=table.moves["move"].values).values
    assert table.moves["proposals"].values.tolist() == proposals.tolist()
    step = draws["sample_stats"]["step"].values
    assert table.steps_per_draw == pytest.approx(np.mean(step[[0, 3], -1] - step[[0, 3], 0]) / 59)
    half = limpet.summary(draws.isel(draw=slice(20, None))).steps_per_draw
    assert half == pytest.approx(np.mean(step[:, -1] - step[:, 20]) / 39)
    assert "2 chains of 60 draws" in limpet.plot(some).get_suptitle()


@pytest.mark.parametrize("axis", ["chain", "draw"])
@pytest.mark.parametrize("show", [limpet.summary, limpet.plot])
def test_one_chain_or_draw_must_keep_its_dimension(draws, axis, show):
    with pytest.raises(limpet.InputError, match=rf"no dimension '{axis}': .*isel\({axis}=\[0\]\)"):
        show(draws.isel({axis: 0}))


def test_a_run_made_a_little_longer_has_its_steps_per_draw(tmp_path):
    target = limpet.Target(ring, 0.1)
    start, store = {"place": jnp.array([1.0, 0.0])}, tmp_path / "run.zarr"
    limpet.sample(target, start, draws=50, chains=5, store=store, progress=False)
    longer = limpet.resume(store, target, draws=51, progress=False)
    assert limpet.summary(longer).steps_per_draw == 1


# attributes


def test_attributes_are_mappings_as_ever(draws):
    assert isinstance(draws.attrs["parameters"]["sigma_hrd"], float)
    assert all(isinstance(draws.attrs[name], dict) for name in NESTED)
    counts = draws.attrs["counts"]
    assert sum(sum(row.values()) for row in counts.values()) == draws.attrs["steps"]
    assert {**counts} == counts == json.loads(json.dumps(counts))


# files and copies


def test_netcdf(draws, tmp_path):
    draws.to_netcdf(tmp_path / "run.nc")
    with xr.open_datatree(tmp_path / "run.nc") as found:
        assert_same(found, draws)
        assert json.loads(found.attrs["counts"]) == draws.attrs["counts"]
        assert attributes_of(found) == draws.attrs
        assert str(limpet.summary(found)) == str(limpet.summary(draws))
        assert len(limpet.plot(found).axes) == len(limpet.plot(draws).axes)
        assert limpet.partition_ratio(found) == limpet.partition_ratio(draws)


def test_a_part_of_the_draws_goes_to_netcdf_too(draws, tmp_path):
    part = draws.isel(draw=slice(20, None))
    part.to_netcdf(tmp_path / "part.nc")
    with xr.open_datatree(tmp_path / "part.nc") as found:
        assert found["posterior"].sizes["draw"] == 40
        assert attributes_of(found) == draws.attrs


def test_attributes_that_someone_has_cut_are_named(draws):
    damaged = draws.copy()
    damaged.attrs["counts"] = '{"hard": {"acc'
    for look in (limpet.summary, limpet.plot):
        with pytest.raises(limpet.InputError, match=r"^draws.attrs\['counts'\]=.* expected a mapp"):
            look(damaged)


def test_attributes_of_the_users_own_stay(draws):
    noted = draws.copy()
    noted.attrs["note"] = "{x: the first run}"
    assert attributes_of(xr.open_datatree(noted.to_netcdf())) == noted.attrs
    assert str(limpet.summary(noted)) == str(limpet.summary(draws))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
numbers = st.integers() | st.floats(allow_nan=False) | st.none() | st.booleans()
mappings = st.recursive(texts | numbers, lambda inner: st.dictionaries(texts, inner, max_size=3))


@settings(max_examples=30)
@given(st.dictionaries(texts, mappings, max_size=3))
def test_any_nested_attribute_survives_netcdf(given):
    tree = xr.DataTree(xr.Dataset(attrs=nest({"given": given})))
    assert attributes_of(xr.open_datatree(tree.to_netcdf())) == {"given": given}


def test_zarr(draws, tmp_path):
    draws.to_zarr(tmp_path / "copy.zarr", consolidated=False)
    found = xr.open_datatree(tmp_path / "copy.zarr", engine="zarr", consolidated=False)
    assert_same(found, draws)
    assert found.attrs == draws.attrs
    assert set(str(limpet.summary(found)).split()) == set(str(limpet.summary(draws)).split())


@pytest.mark.parametrize(
    "repeat",
    [
        lambda draws: pickle.loads(pickle.dumps(draws)),
        copy.deepcopy,
        copy.copy,
        lambda draws: draws.load(),
        lambda draws: xr.open_datatree(draws.to_netcdf()),
    ],
    ids=["pickle", "deepcopy", "copy", "load", "netCDF in memory"],
)
def test_copies(draws, repeat):
    found = repeat(draws)
    assert_same(found, draws)
    assert attributes_of(found) == draws.attrs


def test_a_pickle_is_read_by_another_process(draws, tmp_path):
    (tmp_path / "draws.pickle").write_bytes(pickle.dumps(draws))
    program = (
        "import pickle, sys; draws = pickle.load(open(sys.argv[1], 'rb'));"
        "print(draws.attrs['counts']['hard']['accepted'], draws.posterior['place'].shape)"
    )
    command = [sys.executable, "-c", program, tmp_path / "draws.pickle"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.strip() == f"{draws.attrs['counts']['hard']['accepted']} (5, 60, 2)"


def test_a_store_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.01)
    draws = limpet.sample(circle, [1.0, 0.0], draws=20, chains=3, progress=False, store="run.zarr")
    monkeypatch.chdir("/")
    assert np.isfinite(pickle.loads(pickle.dumps(draws)).posterior["x"].values).all()


def test_pandas(draws):
    table = draws.posterior.to_dataset().to_dataframe()
    assert set(table) == {"place", "a b"}
    assert len(table) == 5 * 60 * 2 * 2
    assert draws.posterior["place"].to_dataframe().index.names == ["chain", "draw", "place_dim"]
    assert draws.moves.to_dataset().to_dataframe()["counts"].sum() > 0


# ArviZ


@pytest.mark.filterwarnings("ignore")  # ArviZ 0.23 warns of its successor, and matplotlib of it
def test_arviz(draws, tmp_path):
    mpl.use("Agg")
    import arviz

    handed = limpet.to_inference_data(draws)
    table = arviz.summary(handed)
    assert table.index.tolist() == ["a b[0, 0]", "a b[1, 0]", "place[0]", "place[1]"]
    arviz.plot_trace(handed)
    plt.close("all")  # which ArviZ leaves open
    groups = handed.children if isinstance(handed, xr.DataTree) else handed.groups()
    expected = {"posterior", "surface", "sample_stats", "moves", "scale"}
    assert set(groups) == set(draws.children) == expected
    np.testing.assert_array_equal(handed["posterior"]["place"], draws["posterior"]["place"])
    if sys.version_info < (3, 12):
        assert isinstance(handed, arviz.InferenceData)
        handed.to_netcdf(str(tmp_path / "handed.nc"))
        read = arviz.from_netcdf(str(tmp_path / "handed.nc"))
        assert json.loads(read.attrs["counts"]) == draws.attrs["counts"]
    else:
        assert handed is draws


def test_without_arviz(draws, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(limpet.LimpetError, match=r"^ArviZ cannot be imported .* pip install arviz"):
        limpet.to_inference_data(draws)


def test_only_draws_are_handed_over():
    with pytest.raises(limpet.InputError, match=r"^draws=dict: expected what limpet.sample ret"):
        limpet.to_inference_data({})  # pyright: ignore


# summaries


def test_a_summary_is_kept_and_read_by_others(draws):
    table = limpet.summary(draws)
    assert str(pickle.loads(pickle.dumps(table))) == str(copy.deepcopy(table)) == str(table)
    frame = table.variables.to_dataframe()
    assert frame.index.tolist() == ["a b[0, 0]", "a b[1, 0]", "place[0]", "place[1]"]
    assert float(frame.loc["place[0]", "mean"]) == float(table.variables["mean"][2])
    assert table.moves.to_dataframe()["share"].groupby("move").sum().between(0.999, 1.001).all()


def test_html_of_a_summary_has_the_cells_of_its_text():
    target = limpet.Target(lambda x: jnp.array([x["<b>"] @ x["<b>"] - 1]), 0.01)
    start = {"<b>": jnp.array([1.0, 0.0])}
    table = limpet.summary(limpet.sample(target, start, draws=50, chains=3, progress=False))
    page = table._repr_html_()
    assert "&lt;b&gt;[0]" in page
    assert "<b>[" not in page
    words = [word for line in str(table).splitlines()[3:4] for word in line.split()]
    assert all(f">{word}<" in page for word in words)
    assert "color:" not in page  # a notebook may be dark or light


# notebooks

CELLS = [
    "import jax.numpy as jnp, limpet, sys",
    "sys.modules['ipywidgets'] = None",  # as if not installed
    "circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.01)\n"
    "draws = limpet.sample(circle, [1.0, 0.0], draws=200, chains=3, seed=1)",
    "limpet.summary(draws)",
    "print(limpet.summary(draws))",
]


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own
def test_a_notebook(tmp_path, monkeypatch):
    kernel = tmp_path / "kernels" / "this"
    kernel.mkdir(parents=True)
    start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    about = {"argv": start, "display_name": "this", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(about))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    page = nbformat.v4.new_notebook(cells=cells)
    ExecutePreprocessor(timeout=None, kernel_name="this").preprocess(page, {})
    *_, run, shown, printed = ([o for o in cell.outputs if _is_news(o)] for cell in page.cells)

    (progress,) = run
    assert progress.output_type == "display_data"
    assert "600 of 600" in progress.data["text/plain"]
    assert "600 of 600" in progress.data["text/html"]
    (table,) = shown
    assert table.output_type == "execute_result"
    assert table.data["text/html"].count("<table") == 2
    assert table.data["text/plain"].count("r_hat") == 1
    (text,) = printed
    assert text.name == "stdout"
    assert text.text.rstrip() == table.data["text/plain"]
    assert HTMLExporter().from_notebook_node(page)[0].count("<th style") == 15


def _is_news(output):
    """Whether an output is of limpet's making, and not a warning that chains are few."""
    return "MixingWarning" not in output.get("text", "")


# names


def test_limpet_lists_its_public_names():
    assert dir(limpet) == sorted(limpet.__all__)
    assert all(hasattr(limpet, name) for name in limpet.__all__)
    page = pydoc.plain(pydoc.render_doc(limpet))
    assert "limpet.sample(circle" in page
    assert "\n    partition_ratio(draws" in page
