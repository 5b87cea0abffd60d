"""What `limpet.plot` shows, for runs of every shape."""

import pickle
import re

import handmade
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import limpet
from limpet.report.plot import plot

KINDS = ("trace", "density", "autocorrelation")
MOVES = ("hard", "off", "on", "soft")


def result(moves=MOVES, **variables):
    """A result with these draws, and a thousand tries of each of these moves."""
    tried = {"accepted": 700, "metropolis": 280, "not_finite": 20}
    return handmade.result(moves, tried, **variables)


def noise(*shape):
    return np.random.default_rng(0).normal(size=shape)


def slow(rho, *shape):
    """An autoregressive chain along the second axis: the nearer rho is to 1, the slower."""
    x = noise(*shape)
    for t in range(1, shape[1]):
        x[:, t] += rho * x[:, t - 1]
    return x


def panels(figure):
    return {axes.get_label(): axes for axes in figure.axes}


def rows(*labels):
    return [f"{kind} of {label}" for label in labels for kind in KINDS]


def heading(axes):
    return axes.get_title(loc="left")


def texts(figure):
    figure.draw_without_rendering()  # ticks have their texts only then
    return " ".join(t.get_text() for t in figure.findobj(lambda a: hasattr(a, "get_text")))


@pytest.fixture(scope="module")
def draws():
    """A short run of the sampler that is compiled fastest."""
    target = limpet.Target(lambda p: jnp.array([p["a"] ** 2 + p["b"][0] ** 2 - 1]), eps=0.2)
    start, kernel = {"a": 1.0, "b": np.array([0.1])}, limpet.RandomWalk()
    return limpet.sample(target, start, draws=300, chains=4, warmup=100, kernel=kernel, seed=2)


def test_a_run(draws):
    figure = plot(draws)
    assert isinstance(figure, Figure)
    assert list(panels(figure)) == ["moves", "space", *rows("a", "b[0]")]
    assert figure.get_suptitle() == "RandomWalk: 4 chains of 300 draws, steps per draw: 1"
    share = draws.attrs["counts"]["soft"]["accepted"] / 1200
    assert f"{share:.1%}" in texts(figure)


def test_bars_are_the_shares():
    axes = panels(plot(result(x=noise(4, 100))))["moves"]
    assert [t.get_text() for t in axes.get_yticklabels()] == list(MOVES)
    widths = np.array([bar.get_width() for bar in axes.patches]).reshape(4, 3)
    np.testing.assert_allclose(widths, [[0.7, 0.28, 0.02]] * 4)
    written = [t.get_text() for t in axes.texts]
    assert written == ["70.0%", "28.0%", "1,000 proposals; not finite 2%"] * 4
    legend = [t.get_text() for t in axes.get_legend().get_texts()]
    assert legend == ["accepted", "metropolis", "not finite"]


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_tau_and_window_are_those_of_the_diagnostics(rho):
    x = slow(rho, 8, 1000)
    axes = panels(plot(result(x=x)))["autocorrelation of x"]
    tau, window = re.fullmatch(r"τ = ([\d.]+), window (\d+)", heading(axes)).groups()
    expected = limpet.autocorrelation_time(x)
    assert tau == f"{expected:.3g}"
    assert 1 <= int(window) < 20 * expected
    lag, correlation = axes.lines[-1].get_data()
    assert correlation[lag == 0] == 1
    assert correlation[lag == 1] == pytest.approx(rho, abs=0.05)


def test_too_few_draws_to_tell_tau():
    x = np.linspace(0, 1, 100)[None] + 0.01 * noise(1, 100)
    with pytest.warns(limpet.LimpetWarning):
        tau = limpet.autocorrelation_time(x)
    axes = panels(plot(result(x=x)))["autocorrelation of x"]
    assert heading(axes) == f"τ ≥ {tau:.3g}? too few draws"


@pytest.mark.parametrize("moves", [("hard",), ("soft",)])
def test_samplers_with_one_move(moves):
    axes = panels(plot(result(moves, x=noise(4, 50, 3))))["moves"]
    assert [t.get_text() for t in axes.get_yticklabels()] == list(moves)


def test_a_move_that_was_never_tried():
    draws = result(x=noise(4, 50))
    draws["moves"]["counts"].loc[{"move": "off"}] = 0
    assert " 0 proposals" in texts(plot(draws))


@pytest.mark.parametrize(
    ("shape", "spatial"), [((), False), ((1,), False), ((2,), True), ((3,), True), ((2, 2), False)]
)
def test_two_draws_of_one_chain(shape, spatial):
    figure = plot(result(x=noise(1, 2, *shape)))
    assert ("space" in panels(figure)) == spatial
    assert len(figure.axes) == 1 + spatial + 3 * np.prod(shape, dtype=int)
    assert "nan" not in texts(figure).lower()


@pytest.mark.parametrize("value", [0.0, -1e200])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_variable_that_never_changes(value, shape):
    figure = plot(result(c=np.full((3, 50, *shape), value)))
    label = "c[0]" if shape else "c"
    assert heading(panels(figure)[f"autocorrelation of {label}"]) == "τ undefined: never changes"
    assert "nan" not in texts(figure).lower()


def test_numbers_of_any_size():
    figure = plot(result(x=1e200 * noise(2, 600), y=1e-200 * noise(2, 600)))
    assert "nan" not in texts(figure).lower()


def test_a_variable_that_hardly_changes():
    x = 1 + np.finfo(float).eps * np.random.default_rng(0).integers(0, 2, size=(2, 600))
    assert "nan" not in texts(plot(result(x=x))).lower()


def test_names_and_matrices():
    figure = plot(result(m=noise(3, 40, 2, 2), s=noise(3, 40)))
    labels = ["m[0, 0]", "m[0, 1]", "m[1, 0]", "m[1, 1]", "s"]
    assert list(panels(figure)) == ["moves", *rows(*labels)]
    assert [heading(panels(figure)[f"trace of {label}"]) for label in labels] == labels


def test_names_are_not_read_as_formulas():
    figure = plot(result(**{"$x": noise(2, 40), "y$^": noise(2, 40)}))
    assert "$x" in texts(figure)


def test_the_slowest_of_many_variables_are_shown():
    variables = {f"v{i}": noise(4, 500) for i in range(300)}
    for i in (7, 250):
        variables[f"v{i}"] = slow(0.9, 4, 500)
    variables["w"] = slow(np.array([0.95, 0.0, 0.95, 0.95, 0.95]), 4, 500, 5)
    figure = plot(result(**variables))
    assert list(panels(figure)) == ["moves", *rows("v7", "v250", "w[0]", "w[2]", "w[3]", "w[4]")]
    assert figure.get_suptitle().endswith("smaller: 299")


def test_long_runs_are_thinned():
    draws = result(x=noise(4, 600_000, 2))
    shown = panels(plot(draws))
    for line in shown["trace of x[0]"].lines:
        assert len(line.get_xdata()) <= 250
        assert line.get_xdata()[-1] > 590_000
    assert len(shown["space"].collections[0].get_offsets()) <= 5_000
    assert shown["density of x[1]"].get_xlabel() == "value (200,000 draws)"
    assert shown["autocorrelation of x[1]"].get_xlabel() == "lag (500,000 draws)"


def test_draws_on_disk_stay_there(tmp_path):
    result(x=noise(4, 100, 2)).to_zarr(tmp_path / "run", consolidated=False)
    draws = xr.open_datatree(tmp_path / "run", engine="zarr", consolidated=False)
    plot(draws)
    assert not draws["posterior"].to_dataset()["x"].variable._in_memory


def test_jupyter_can_show_it():
    figure = plot(result(x=noise(2, 40, 2)))
    again = pickle.loads(pickle.dumps(figure))
    for shown in (figure, again):
        assert shown._repr_png_().startswith(b"\x89PNG")


def test_nothing_is_left_in_pyplot():
    import matplotlib.pyplot as plt

    plot(result(x=noise(2, 40)))
    assert not plt.get_fignums()


@pytest.mark.parametrize("given", [None, np.zeros((4, 100)), xr.Dataset(), xr.DataTree()])
def test_something_else_is_refused(given):
    with pytest.raises(limpet.InputError, match=rf"^draws={type(given).__name__}: expected what"):
        plot(given)


def test_one_draw_is_refused():
    with pytest.raises(limpet.InputError, match=r"^draws has 1 per chain: expected two or more"):
        plot(result(x=noise(4, 1)))
