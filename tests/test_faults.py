"""Faults in the middle of a run: counted, survived, or said out loud; never a lost draw."""

import contextlib
import json
import signal
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet.kernels import Outcome

EPS = 0.1
KERNELS = {
    "SAS": limpet.SAS(),
    "SurfaceSampler": limpet.SurfaceSampler(),
    "RandomWalk": limpet.RandomWalk(step_size=0.3),
}


def circle(x):
    return jnp.array([x @ x - 1])


def line(x):
    """The horizontal axis: flat, so that no projection fails and no way back leads elsewhere."""
    return x[1:]


def bell(x):
    return -(x[0] ** 2) / 2


def faulty_line(x):
    """NaN on the far right, infinite on the far left, and before NaN a gradient that is NaN."""
    trap = jnp.where(x[0] < 0.7, 0 * jnp.sqrt(0.7 - x[0]), 0.0)
    height = line(x) + trap
    return jnp.where(x[0] > 1, jnp.nan, jnp.where(x[0] < -1, jnp.inf, height))


def faulty_bell(x):
    return jnp.where(x[0] < -0.5, jnp.nan, bell(x))


def left_of_one(x):
    return 1 - x[:1]


def spike(x):
    """So likely a point, at 5, that no chain there leaves it."""
    return jnp.where(jnp.abs(x[0] - 5) < 1e-9, 1e4, bell(x))


CIRCLE = limpet.Target(circle, EPS)
FAULTY = limpet.Target(faulty_line, EPS, log_density=bell)
WALLED = limpet.Target(line, EPS, log_density=faulty_bell, inside=left_of_one)
SPIKED = limpet.Target(line, EPS, log_density=spike)


def sample(target=CIRCLE, start=(1.0, 0.0), **settings):
    return limpet.sample(target, start, **{"draws": 200, "chains": 3, "seed": 1, **settings})


def outcomes(draws):
    """How often each outcome was, over all moves."""
    total = dict.fromkeys((outcome.name.lower() for outcome in Outcome), 0)
    for counts in draws.attrs["counts"].values():
        for outcome, count in counts.items():
            total[outcome] += count
    return total


def check_books(draws):
    """Every step of every chain is counted once, and every draw is a number."""
    counts = draws["moves"]["counts"]
    assert sum(outcomes(draws).values()) == draws.attrs["steps"] == int(counts.sum())
    for move, by_outcome in draws.attrs["counts"].items():
        for outcome, count in by_outcome.items():
            assert count == int(counts.sel(move=move, outcome=outcome).sum())
    per_chain = counts.sum(("move", "outcome")).values
    last_step = draws["sample_stats"]["step"].values[:, -1]
    np.testing.assert_array_equal(per_chain, last_step + 1)
    for group in ("posterior", "sample_stats"):
        for variable in draws[group].data_vars.values():
            assert np.isfinite(variable.values).all()


@contextlib.contextmanager
def at_most(seconds):
    """Turn a hang into a failure."""

    def give_up(*_):
        raise TimeoutError(f"still running after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_where_q_is_not_finite_is_rejected_and_counted(kernel):
    draws = sample(FAULTY, (0.0, 0.0), kernel=kernel)
    check_books(draws)
    counts = outcomes(draws)
    assert counts["not_finite"] > 0
    assert counts["forward"] == counts["reverse"] == counts["wall"] == 0
    x = draws.posterior["x"].values[:, :, 0]
    assert x.min() >= -1
    # a random walk takes no gradients, and may go where they are NaN
    assert x.max() <= (1 if isinstance(kernel, limpet.RandomWalk) else 0.7)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_walls_and_an_undefined_density_are_rejected_and_counted(kernel):
    draws = sample(WALLED, (0.0, 0.0), kernel=kernel)
    check_books(draws)
    counts = outcomes(draws)
    assert counts["wall"] > 0
    assert counts["not_finite"] > 0
    assert counts["forward"] == counts["reverse"] == 0
    x = draws.posterior["x"].values[:, :, 0]
    assert -0.5 <= x.min() < x.max() <= 1


@pytest.mark.parametrize("target", [FAULTY, WALLED], ids=["faulty", "walled"])
def test_a_rejected_proposal_leaves_the_state_as_it_was(target):
    kernel = limpet.SAS(off_probability=0.5, on_probability=0.5)

    def step(state, key):
        new, info = kernel.step(target, key, state)
        return new, (state, new, info.outcome)

    keys = jax.random.split(jax.random.key(2), 2_000)
    start = kernel.init(target, jnp.zeros(2))
    _, (before, after, outcome) = jax.jit(lambda: jax.lax.scan(step, start, keys))()
    rejected = np.asarray(outcome) != Outcome.ACCEPTED
    assert (np.asarray(outcome) == Outcome.NOT_FINITE).sum() > 20
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(np.asarray(old)[rejected], np.asarray(new)[rejected])
    moved = np.any(np.asarray(before.x) != np.asarray(after.x), axis=1)
    np.testing.assert_array_equal(moved, ~rejected)


def test_chains_that_never_move_are_named_with_the_cause():
    cause = r"^Chains 0, 1, 2 never .*step_size.*100% of 600 .*too unlikely.*smaller"
    with pytest.warns(limpet.LimpetWarning, match=cause) as caught:
        draws = sample(kernel=limpet.RandomWalk(step_size=1e6), warmup=0)
    assert [warning.filename for warning in caught] == [__file__]
    check_books(draws)
    assert outcomes(draws)["accepted"] == 0


def test_only_the_chains_that_never_move_are_named():
    with pytest.warns(limpet.LimpetWarning, match="^Chains 1 never"):
        sample(
            SPIKED, [[0.0, 0.0], [5.0, 0.0], [1.0, 0.0]], kernel=limpet.RandomWalk(step_size=0.1)
        )


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_few_draws_are_not_taken_for_chains_that_never_move(draws):
    check_books(sample(kernel=limpet.RandomWalk(step_size=0.3), draws=draws))


def test_slides_that_never_succeed_are_warned_of():
    # the chains hop off and on, an eps at a time: they make draws, but go nowhere
    with pytest.warns(limpet.LimpetWarning, match=r"Hard moves \(sigma_hrd\): 100%"):
        sample(kernel=limpet.SAS(sigma_hrd=1e6), warmup=0)


def test_chains_that_cannot_leave_the_surface_end_the_run():
    kernel = limpet.SAS(sigma_tan=1e9)
    with at_most(120), pytest.raises(limpet.StuckError) as caught:
        sample(kernel=kernel)
    message = str(caught.value)
    assert message.startswith("Chains 0, 1, 2 made")
    assert "Off moves (sigma_tan, sigma_prp): 100%" in message
    assert "on_probability" not in message  # On moves need a chain that is off
    assert "the projection did not reach the surface; make the step smaller" in message
    assert caught.value.draws is None
    assert "`draws`" not in message


def test_a_run_with_stuck_chains_gives_back_the_others():
    with at_most(120), pytest.raises(limpet.StuckError, match=r"^Chains 1 made") as caught:
        sample(SPIKED, [[0.0, 0.0], [5.0, 0.0], [1.0, 0.0]], kernel=limpet.SAS(sigma_hrd=0.1))
    draws = caught.value.draws
    assert draws is not None
    assert draws.posterior["chain"].values.tolist() == [0, 2]
    assert dict(draws.posterior["x"].sizes) == {"chain": 2, "draw": 200, "x_dim": 2}
    check_books(draws)


def test_a_chain_that_never_tries_to_leave_is_told_to():
    with at_most(120), pytest.raises(limpet.StuckError, match="off_probability"):
        sample(kernel=limpet.SAS(off_probability=1e-12, on_probability=1e-12))


def test_chains_that_never_land_end_a_run_that_keeps_the_surface():
    with at_most(120), pytest.raises(limpet.StuckError, match="surface"):
        sample(kernel=limpet.SAS(on_probability=1e-12), keep_surface=True)


def test_thinning_keeps_every_third_visit():
    all_of_them = sample(draws=30, keep_surface=True)
    thinned = sample(draws=10, thin=3, keep_surface=True)
    check_books(thinned)
    for group in ("posterior", "surface"):
        assert dict(thinned[group]["x"].sizes) == {"chain": 3, "draw": 10, "x_dim": 2}
        np.testing.assert_array_equal(thinned[group]["x"], all_of_them[group]["x"][:, 2::3])
    on_surface = np.linalg.norm(thinned["surface"]["x"], axis=-1)
    np.testing.assert_allclose(on_surface, 1, atol=1e-11)
    assert "surface" not in sample(draws=10)


def test_many_chains_are_one_result():
    # more than one tile holds, and not a multiple of it
    draws = sample(kernel=limpet.RandomWalk(step_size=0.3), chains=130)
    check_books(draws)
    assert draws.posterior["chain"].values.tolist() == list(range(130))
    assert dict(draws.posterior["x"].sizes) == {"chain": 130, "draw": 200, "x_dim": 2}
    assert len(np.unique(draws.posterior["x"][:, -1, 0])) == 130


def test_the_advice_for_an_eps_too_small_can_be_followed():
    draws = sample(limpet.Target(circle, 1e-14), kernel=limpet.SurfaceSampler())
    np.testing.assert_allclose(np.linalg.norm(draws.posterior["x"], axis=-1), 1, atol=1e-11)


def test_a_far_guess_leads_to_a_start_on_the_surface():
    draws = sample(start=(1e6, 1e6))
    check_books(draws)


def test_a_constant_that_changed_is_seen():
    radius = [1.0]

    def ring(x):
        return jnp.array([jnp.sqrt(x @ x) - radius[0]])

    target = limpet.Target(ring, EPS)
    assert np.linalg.norm(limpet.find_start(target, [1.0, 1.0])) == pytest.approx(1)
    radius[0] = 2.0
    assert np.linalg.norm(limpet.find_start(target, [1.0, 1.0])) == pytest.approx(2)


@pytest.mark.parametrize(
    "kernel",
    [
        limpet.SAS(off_probability=np.float32(0.5), newton_cap=np.int64(5)),
        limpet.SAS(on_probability=1, sigma_hrd=np.array(2)),
        limpet.SurfaceSampler(newton_cap=np.int8(5)),
        limpet.RandomWalk(),
    ],
)
def test_parameters_are_plain_numbers(kernel):
    parameters = kernel.parameters(limpet.Target(circle, [0.1]))
    assert json.loads(json.dumps(parameters)) == parameters


def test_a_summary_of_one_draw_says_so():
    draws = sample(draws=1)
    with pytest.raises(limpet.InputError, match=r"^draws .*two or more|^draws .*1 draw"):
        limpet.summary(draws)


def test_a_summary_of_chains_that_never_moved():
    with pytest.warns(limpet.LimpetWarning, match="never"):
        draws = sample(kernel=limpet.RandomWalk(step_size=1e6), warmup=0)
    table = limpet.summary(draws)
    assert (table.variables["tau"] >= 40).all()
    assert table.steps_per_draw == 1


@pytest.mark.parametrize("level", [0.1, 1.0, 1 / 3])
def test_a_constant_has_no_independent_draws_but_one(level):
    with pytest.warns(limpet.LimpetWarning, match="never changes"):
        assert limpet.autocorrelation_time(np.full((3, 7), level)) == 7


def test_autocorrelation_time_is_positive():
    assert limpet.autocorrelation_time([1.0, -1.0] * 50) > 0


# points as trees of arrays


class Bent(NamedTuple):
    """A matrix and a number."""

    matrix: np.ndarray
    scale: float


POINT = np.array([0.5, 0.4, 0.3, 0.2, 0.1])
TREES = {
    "NamedTuple": (
        Bent(POINT[:4].reshape(2, 2), POINT[4]),
        {"matrix": slice(0, 4), "scale": 4},
    ),
    "nested dict": (
        {"a": {"x": POINT[0], "y": POINT[1:4].tolist()}, "b": POINT[4]},
        {"a_x": 0, "a_y": slice(1, 4), "b": 4},
    ),
    "tuple of arrays": ((POINT[:2], POINT[2:]), {"0": slice(0, 2), "1": slice(2, 5)}),
}
DIMS = {"matrix": ("matrix_dim_0", "matrix_dim_1")}  # others: one axis, or none
WEIGHTS = np.arange(1.0, 6.0)


def ellipsoid(x):
    return jnp.array([jnp.sum(WEIGHTS * x**2) - 1])


def ellipsoid_of_tree(tree):
    return ellipsoid(jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)]))


FLAT, OF_TREE = (limpet.Target(q, EPS) for q in (ellipsoid, ellipsoid_of_tree))


@pytest.mark.parametrize(("start", "places"), TREES.values(), ids=TREES)
def test_a_tree_is_sampled_as_the_vector_of_its_numbers(start, places):
    walk = limpet.RandomWalk()
    flat = sample(FLAT, POINT, kernel=walk, draws=20).posterior["x"].values
    tree = sample(OF_TREE, start, kernel=walk, draws=20).posterior
    assert list(tree.data_vars) == list(places)
    for name, place in places.items():
        expected = flat[..., place]
        variable = tree[name]
        dims = () if isinstance(place, int) else DIMS.get(name, (f"{name}_dim",))
        assert variable.dims == ("chain", "draw", *dims)
        np.testing.assert_allclose(
            variable.values.reshape(expected.shape), expected, rtol=1e-9, atol=0
        )


def test_a_tree_steps_as_the_vector_of_its_numbers():
    kernel, key = limpet.RandomWalk(), jax.random.key(3)
    start, places = TREES["NamedTuple"]
    flat, _ = kernel.step(FLAT, key, kernel.init(FLAT, POINT))
    tree, _ = kernel.step(OF_TREE, key, kernel.init(OF_TREE, start))
    for leaf, place in zip(tree.x, places.values(), strict=True):
        np.testing.assert_allclose(np.ravel(leaf), np.ravel(flat.x[place]), rtol=1e-12)


def test_a_chain_starts_from_lists_as_a_run_does():
    state = limpet.RandomWalk().init(FLAT, POINT.tolist())
    np.testing.assert_array_equal(state.x, POINT)


@pytest.mark.parametrize("as_dicts", [False, True], ids=["vectors", "dicts"])
def test_every_start_has_a_chain(as_dicts):
    corners = np.diag(WEIGHTS**-0.5)
    starts = [{"b": x[:3], "c": x[3:]} for x in corners] if as_dicts else corners
    target = OF_TREE if as_dicts else FLAT
    walk = limpet.RandomWalk(step_size=1e-6)
    posterior = limpet.sample(target, starts, draws=10, warmup=0, kernel=walk).posterior
    parts = [posterior[name].values for name in (("b", "c") if as_dicts else ("x",))]
    first = np.concatenate(parts, axis=-1)[:, 0]
    np.testing.assert_allclose(first, corners, atol=1e-4)


def test_points_found_are_starts_of_the_same_kind():
    start, _ = TREES["NamedTuple"]
    points = limpet.find_start(OF_TREE, start, 3)
    assert [type(point) for point in points] == [Bent] * 3
    assert points[0].matrix.shape == (2, 2)
    again = limpet.find_start(OF_TREE, points, 3)
    for old, new in zip(points, again, strict=True):
        np.testing.assert_allclose(new.matrix, old.matrix, atol=1e-12)
