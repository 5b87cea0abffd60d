"""Warm-up learns the shape of the draws, and ends by itself."""

import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet import sampling
from limpet.coordinates import Coordinates
from limpet.frame import Frame
from limpet.layout import read_points
from limpet.run import shape as shapes
from limpet.run import warmup as warmups
from limpet.run.clock import PHASES
from limpet.run.shape import Shape, unit_determinant
from limpet.run.tile_run import TileRun
from limpet.run.warmup import LONGEST, LONGEST_OF_BONDS, LONGEST_ROUND, Warmup, round_steps

QUIET = {"progress": False, "seed": 5}


def tube(width=1_000.0, tails=False):
    """A circle with a coordinate beside it that is as much wider."""

    def log_density(x):
        u = (x[2] / width) ** 2
        return -2 * jnp.log1p(u / 3) if tails else -u / 2  # Student's t with three degrees, or none

    return limpet.Target(
        lambda x: jnp.array([x[0] ** 2 + x[1] ** 2 - 1]), 0.01, log_density=log_density
    )


def projections(draws):
    """Per effective draw of the slowest coordinate; one with its reverse check counts once."""
    x = draws.posterior["x"].values
    tau = max(limpet.autocorrelation_time(x[..., i]) for i in range(x.shape[-1]))
    return draws.attrs["parameters"]["steps"] * tau


@pytest.mark.parametrize("chains", [128, 130, 9])
def test_a_coordinate_a_thousand_times_wider_costs_nothing(chains):
    draws = limpet.sample(tube(), [1.0, 0.0, 0.0], draws=300, chains=chains, **QUIET)
    assert projections(draws) < 20  # 36,000 without a scale
    # 4.5 standard errors of some 2,000 effective draws
    assert draws.posterior["x"][..., 2].std() == pytest.approx(1_000, rel=0.15)
    # few chains tell little in a round: of 8 seeds one needs all the steps that there are
    assert draws.attrs["warmup"] < (LONGEST if chains > 9 else LONGEST + LONGEST_ROUND)
    scale = draws.scale["x"].values
    assert scale.shape == (-(-chains // 128), 3)
    assert (scale[:, 2] > 100 * scale[:, :2].max(axis=1)).all()
    assert np.prod(scale, axis=1) == pytest.approx(1)


def correlated(n=20, condition=1e6):
    """A sphere with a density on it, stretched and turned; and the same left as it was."""
    rng = np.random.default_rng(0)
    A = np.linalg.qr(rng.normal(size=(n, n)))[0] * np.geomspace(1, condition**0.5, n)
    inverse = np.linalg.inv(A)

    def q(y):
        return jnp.array([jnp.sum(y**2) - n]) / (2 * np.sqrt(n))

    def log_density(y):
        return -jnp.sum(((y - 0.5) * jnp.linspace(0.5, 1.0, n)) ** 2) / 2

    plain = limpet.Target(q, 0.01, log_density=log_density)
    turned = limpet.Target(
        lambda x: q(inverse @ x), 0.01, log_density=lambda x: log_density(inverse @ x)
    )
    return (plain, np.ones(n)), (turned, A @ np.ones(n))


def test_unknowns_that_go_together_are_sampled_as_if_they_did_not():
    (plain, start), (turned, turned_start) = correlated()
    easy = limpet.sample(plain, start, draws=300, **QUIET)
    hard = limpet.sample(turned, turned_start, draws=300, **QUIET)
    assert projections(hard) < 3 * projections(easy)


def wide(n, directions, ratio):
    """A sphere with a density on it, some directions of it stretched; and the same left round."""
    U = np.linalg.qr(np.random.default_rng(0).normal(size=(n, directions)))[0]

    def q(y):
        return jnp.array([jnp.sum(y**2) - n]) / (2 * np.sqrt(n))

    def log_density(y):
        return -jnp.sum(((y - 0.5) * jnp.linspace(0.5, 1.0, n)) ** 2) / 2

    def back(x):
        return x + (1 / ratio - 1) * (U @ (U.T @ x))

    plain = limpet.Target(q, 0.01, log_density=log_density)
    turned = limpet.Target(lambda x: q(back(x)), 0.01, log_density=lambda x: log_density(back(x)))
    start = np.ones(n)
    return (plain, start), (turned, start + (ratio - 1) * (U @ (U.T @ start)))


@pytest.mark.slow  # a minute
def test_a_few_directions_that_are_wider_cost_little():
    (plain, start), (turned, turned_start) = wide(200, 3, 100.0)
    easy = limpet.sample(plain, start, draws=300, **QUIET)
    hard = limpet.sample(turned, turned_start, draws=300, **QUIET)
    assert projections(hard) < 3 * projections(easy)


def test_directions_are_found_in_warm_up_and_carried_on(monkeypatch):
    """By a tile that goes through bytes while directions are on trial."""
    monkeypatch.setattr(shapes, "MOST_FULL", 40)  # a model that compiles soon has more
    _, (target, start) = wide(50, 1, 10.0)
    target = target.freeze(jnp.asarray(start))
    layout, starts = read_points("start", np.tile(start, (40, 1)))
    asked = {"draws": 8, "chains": 40, "warmup": None, "thin": 1, "seed": 3, "scale": "learn"}
    run = sampling._specify(
        limpet.Lifted(), target, layout, Coordinates(), keep_surface=False, **asked
    )
    tile = TileRun(run, limpet.Lifted(), target, 0, starts)
    while tile.warmup.trial == 0 and tile.warmup.learning:
        tile.advance()
    frame = tile.warmup.shape.frame
    assert frame.along is not None
    assert frame.along.extra.max() == pytest.approx(9, rel=0.5)  # chains are still travelling
    tile.advance()
    other = TileRun.from_bytes(tile.to_bytes())
    for each in (tile, other):
        each.advance()
    ours, theirs = tile.snapshot(), other.snapshot()
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - PHASES.keys():
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    np.testing.assert_array_equal(ours["scale"], tile.warmup.shape.frame.widths)


def rows_of(n, directions, ratio, rows=(128, 16), seed=0):
    """Draws of a Gaussian with as many directions that are wider, and the square of its matrix."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.normal(size=(n, directions)))[0]
    z = rng.normal(size=(*rows, n))
    return z + (ratio - 1) * (z @ U) @ U.T, np.eye(n) + (ratio**2 - 1) * U @ U.T


@pytest.mark.parametrize(("n", "directions"), [(150, 1), (200, 3), (300, 8)])
def test_draws_are_round_in_a_frame_with_directions(n, directions):
    z, covariance = rows_of(n, directions, 100.0)
    frame = Shape(n, learns=True, may_be_full=True).full(z, 1.0)
    U, s = frame.along
    B = frame.scale[:, None] * (np.eye(n) + U * s @ U.T)
    assert np.linalg.slogdet(B) == pytest.approx((1.0, 0.0), abs=1e-9)
    inverse = np.linalg.inv(B)
    widths = np.sqrt(np.linalg.eigvalsh(inverse @ covariance @ inverse.T))
    assert widths[-1] < 3 * widths[0]  # what chance makes of 1,024 draws: 1.7 to 2.3; 100 before


@pytest.mark.parametrize("rows", [(1, 64), (40, 16), (128, 16)])
@pytest.mark.parametrize("n", [129, 600])
def test_chance_alone_finds_no_directions(n, rows):
    shape, rng = Shape(n, learns=True, may_be_full=True), np.random.default_rng(1)
    z = np.cumsum(rng.normal(size=(*rows, n)), axis=1)
    assert shape.full(z, 0.0) is None
    assert shape.full(np.zeros((*rows, n)), 0.0) is None


def test_units_that_are_nearly_right_are_left_alone():
    draws = limpet.sample(tube(2.0), [1.0, 0.0, 0.0], draws=20, **QUIET)
    np.testing.assert_array_equal(draws.scale["x"], 1.0)
    assert draws.scale.attrs["of"] == "unknowns"


def test_heavy_tails_have_a_width():
    draws = limpet.sample(tube(1_000.0, tails=True), [1.0, 0.0, 0.0], draws=100, **QUIET)
    scale = draws.scale["x"].values[0]
    assert 300 < scale[2] / scale[0] < 10_000


def test_a_coordinate_that_never_moves_has_a_width():
    shape = Shape(3, learns=True, may_be_full=False)
    z = np.random.default_rng(0).normal(size=(64, 16, 3)) * [1.0, 100.0, 0.0]
    frame = shape.learn(z, 0.0)
    assert np.isfinite(frame.scale).all()
    assert (frame.scale > 0).all()


@pytest.mark.parametrize("rows", [(1, 16), (4, 64), (128, 16)])
def test_chance_alone_changes_no_units(rows):
    shape, rng = Shape(5, learns=True, may_be_full=True), np.random.default_rng(1)
    walks = np.cumsum(rng.normal(size=(*rows, 5)), axis=1) if rows[0] == 4 else None
    z = rng.normal(size=(*rows, 5)) if walks is None else walks
    assert shape.learn(z, 0.0) is None
    assert shape.full(z, 0.0) is None


def test_rounds_of_few_chains_tell_together_what_none_tells_alone():
    """Also if the run is cut between them; and nothing of another frame counts."""
    rng = np.random.default_rng(4)
    turn = np.linalg.qr(rng.normal(size=(60, 60)))[0]
    z = rng.normal(size=(3, 33, 64, 60)) * np.geomspace(1, 9, 60) @ turn
    worth = 0.1  # 211 independent draws a round, which are fewer than four times 60
    shape, alone, other = (Shape(60, learns=True, may_be_full=True) for _ in range(3))
    assert shape.full(z[0], worth) is None
    other.restore(shape.snapshot())
    shape.full(z[1], worth)
    other.full(z[1], worth)
    found, same = shape.full(z[2], worth), other.full(z[2], worth)
    np.testing.assert_array_equal(found.scale, same.scale)
    widths = np.linalg.svd(np.linalg.solve(found.scale, turn.T * np.geomspace(1, 9, 60)))[1]
    assert widths[0] < 2 * widths[-1]  # 9 before
    for part in z:
        assert alone.full(part, worth) is None
        alone.move_to(alone.frame)


def test_the_user_may_know_better():
    scale = np.diag([1.0, 1.0, 1_000.0])
    for given in (scale, [1, 1, 1_000.0], np.array([1, 1, 1e3])):
        draws = limpet.sample(
            tube(), [1.0, 0.0, 0.0], scale=given, draws=100, chains=32, warmup=200, **QUIET
        )
        np.testing.assert_allclose(draws.scale["x"][0], [0.1, 0.1, 100.0])
        assert draws.attrs["parameters"]["steps"] < 20
    points = {"a": np.array([1.0, 0.0]), "b": 0.0}
    target = limpet.Target(
        lambda x: jnp.array([x["a"] @ x["a"] - 1]),
        0.01,
        log_density=lambda x: -((x["b"] / 1e3) ** 2) / 2,
    )
    given = {"a": 1.0, "b": 1e3}
    draws = limpet.sample(target, points, scale=given, draws=20, chains=4, warmup=100, **QUIET)
    assert float(draws.scale["b"][0]) == pytest.approx(100)


def test_a_rotation_of_given_units_changes_nothing():
    rng = np.random.default_rng(2)
    B = rng.normal(size=(3, 3)) + 3 * np.eye(3)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    ours, theirs = (
        limpet.sample(tube(2.0), [1.0, 0.0, 0.0], scale=s, draws=9, chains=3, warmup=64, **QUIET)
        for s in (B, B @ turn)
    )
    np.testing.assert_allclose(ours.scale["x"], theirs.scale["x"])


BAD_SCALES = {
    "a word": ("wide", "expected 'learn', None, 3 numbers"),
    "zero": ([1.0, 0.0, 1.0], "has 0"),
    "negative": ([1.0, -2.0, 1.0], "has -2"),
    "nan": ([1.0, np.nan, 1.0], "expected"),
    "too few": ([1.0, 2.0], r"shape \(2,\)"),
    "singular": (np.ones((3, 3)), "singular values"),
    "unknown name": ({"y": 1.0}, "'y'"),
    "an object": (object(), "expected"),
    "a cube": (np.ones((3, 3, 3)), "shape"),
}


@pytest.mark.parametrize("name", BAD_SCALES)
def test_units_that_are_none_are_refused(name):
    given, message = BAD_SCALES[name]
    with pytest.raises(limpet.InputError, match=message) as error:
        limpet.sample(tube(), [1.0, 0.0, 0.0], scale=given)
    assert "scale" in str(error.value)


def test_the_area_of_a_surface_is_measured_in_the_users_units():
    kernel = limpet.SurfaceSampler(measure="hausdorff", steps=None)
    draws = limpet.sample(tube(50.0), [1.0, 0.0, 0.0], kernel=kernel, draws=9, chains=32, **QUIET)
    np.testing.assert_array_equal(draws.scale["x"], 1.0)
    for other in (kernel, limpet.RandomWalk()):
        with pytest.raises(limpet.InputError, match="takes the unknowns"):
            limpet.sample(tube(), [1.0, 0.0, 0.0], kernel=other, scale=[1, 1, 9])


def test_without_a_scale_chains_move_in_the_unknowns_as_they_are():
    draws = limpet.sample(tube(50.0), [1.0, 0.0, 0.0], scale=None, draws=20, chains=32, **QUIET)
    np.testing.assert_array_equal(draws.scale["x"], 1.0)


def test_a_number_of_steps_means_what_it_says():
    for warmup in (0, 1, 37, 300):
        draws = limpet.sample(tube(2.0), [1.0, 0.0, 0.0], warmup=warmup, draws=5, chains=3, **QUIET)
        assert draws.attrs["warmup"] == warmup


@pytest.mark.parametrize("width", [1, 3, 16, 33, 64, 128])
@pytest.mark.parametrize("moves", [1, 4])
def test_rounds_are_whole_blocks(width, moves):
    assert round_steps(width, moves) % 16 == 0
    assert 16 <= round_steps(width, moves) <= 64


def test_warm_up_that_never_settles_ends():
    given = {"step_size": 1.0, "steps": 8}
    shape = Shape(2, learns=True, may_be_full=True)
    warmup = Warmup(limpet.Lifted(), given, np.zeros((8, 2)), None, False, shape)
    warmup.learned_at = 100
    for step in range(164, 2_000, 64):
        if warmup.steps < 0:
            warmup.settle(step, np.nan)  # chains that nothing is known of
    assert LONGEST <= warmup.steps <= LONGEST + 64


@pytest.mark.parametrize(("agreed", "ended"), [(5_000, 5_000), (10**9, LONGEST_OF_BONDS)])
def test_warm_up_goes_on_while_chains_disagree_on_how_many_hold(agreed, ended):
    """Not for anything else: 2.0 is R-hat of other numbers."""
    kernel = limpet.StrataSampler()
    given = {"step_size": 1.0, "steps": kernel.steps, "reach": kernel.reach}
    shape = Shape(2, learns=False, may_be_full=False)
    warmup = Warmup(kernel, given, np.zeros((128, 2)), None, False, shape)
    warmup.learned_at = step = 100
    while warmup.steps < 0:
        assert step + warmup.left(step) in (LONGEST, LONGEST_OF_BONDS)
        step += 64
        warmup.settle(step, 2.0, 1.5 if step < agreed else 1.0)
    assert ended <= warmup.steps <= ended + 64


def test_a_triangular_frame_that_is_no_better_is_given_up():
    given = {"step_size": 1.0, "steps": 8}
    shape = Shape(2, learns=True, may_be_full=True)
    warmup = Warmup(limpet.Lifted(), given, np.zeros((128, 2)), None, False, shape)
    tuner = warmup.tuner
    tuner.centres[1], tuner.worth, tuner.narrowed = np.log10(20 / 8), 0.1, 2.0
    z = np.random.default_rng(0).normal(size=(128, 16, 2)) @ np.array([[1.0, 0.99], [0.0, 0.1]])
    full = warmup._full_frame(z, 1.0)
    assert full.scale.shape == (2, 2)
    shape.frame = full
    tuner.worth = 0.11
    assert warmup._was_better()
    assert not warmup._was_better()  # once is enough
    np.testing.assert_array_equal(warmup.diagonal, np.stack(Frame.plain(2)[:2]))


def test_directions_that_are_no_better_are_given_up():
    given = {"step_size": 1.0, "steps": 8}
    shape = Shape(200, learns=True, may_be_full=True)
    warmup = Warmup(limpet.Lifted(), given, np.zeros((128, 200)), None, False, shape)
    tuner = warmup.tuner
    tuner.centres[1], tuner.worth, tuner.narrowed = np.log10(20 / 8), 0.1, 2.0
    shape.frame = warmup._full_frame(rows_of(200, 2, 10.0)[0], 1.0)
    assert shape.is_directed
    restored = Shape(200, learns=True, may_be_full=True)
    restored.restore(shape.snapshot())
    np.testing.assert_array_equal(restored.frame.along.vectors, shape.frame.along.vectors)
    tuner.worth = 0.29
    assert warmup._was_better()
    shape.frame = Frame(*warmup.diagonal)
    assert {n: a.shape for n, a in restored.snapshot().items()} == {
        n: a.shape for n, a in shape.snapshot().items()
    }
    restored.restore(shape.snapshot())
    assert restored.frame.is_plain


@pytest.mark.filterwarnings("ignore::limpet.MixingWarning")
@pytest.mark.parametrize("chains", [9, 130])
def test_widths_that_never_settle_are_told(chains, monkeypatch, tmp_path):
    monkeypatch.setattr(warmups, "MOST_CHANGES", 1)
    message = r"the widths of x\[2\] had not settled .*, in (1 of 1|2 of 2) tiles .*scale=\{'x'"
    options = {"draws": 20, "chains": chains, "store": tmp_path / "run", **QUIET}
    with pytest.warns(limpet.LimpetWarning, match=message) as said:
        draws = limpet.sample(tube(), [1.0, 0.0, 0.0], **options)
    assert sum("settled" in str(warning.message) for warning in said) == 1
    np.testing.assert_array_equal(draws.scale["x"], 1.0)
    with pytest.warns(limpet.LimpetWarning, match=message):
        limpet.resume(options["store"], tube(), draws=30, progress=False)


def test_determinants_are_one():
    rng = np.random.default_rng(0)
    assert np.prod(unit_determinant(rng.uniform(1, 9, size=7))) == pytest.approx(1)
    L = np.tril(rng.normal(size=(7, 7)))
    assert abs(np.linalg.det(unit_determinant(L))) == pytest.approx(1)
