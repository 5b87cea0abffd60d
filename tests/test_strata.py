"""Constraints that come and go: identities, invariance, truths, stores, and what is refused."""

import bond_identities as identities
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sticky
from exact import mapped

import limpet
from limpet import sampling
from limpet.coordinates import Coordinates
from limpet.engine.xla import RUN_ONCE
from limpet.geometry.escape import check_proper
from limpet.kernels import Move, stratum
from limpet.kernels.noise import draw, generators
from limpet.kernels.states import Outcome
from limpet.layout import Layout, read_points
from limpet.run.clock import PHASES
from limpet.run.tile_run import TileRun

PAIRS = 30
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("case", "measure"),
    [
        ("two-sided", None),
        ("all", "soft"),
        ("allowed", "hausdorff"),
        ("three at once", None),
        ("three at once", "soft"),
        ("three at once", "hausdorff"),
    ],
)
def test_form_and_break_are_in_detailed_balance(monkeypatch, case, measure):
    if case == "three at once":
        monkeypatch.setattr(stratum, "PACKED_FROM", 0)
    kernel = limpet.StrataSampler(measure, **identities.KERNEL)
    found = identities.pairs(kernel, case, PAIRS, seed=1)
    possible = found.met == Outcome.ACCEPTED
    assert possible.mean() > 0.8
    assert min(np.sum(possible & found.forms), np.sum(possible & ~found.forms)) > 4
    known = possible & np.isfinite(found.log_ratio) & np.isfinite(found.longhand)
    assert known.sum() > 0.85 * possible.sum()
    assert not found.back_met[known].any()
    assert found.miss[known].max() < 1e-8
    assert np.abs(found.log_ratio + found.back_log_ratio)[known].max() < 1e-8
    assert np.abs(found.log_ratio - found.longhand)[known].max() < 1e-8


def steps_from(points, kernel, target, steps, seed):
    """Points with labels after some steps from these, and what the steps did."""
    layout = Layout.of({"bonds": np.zeros(1), "x": np.zeros(6)})
    flat = target.on_vectors(layout).freeze(jnp.asarray(points[0]))
    kernel = kernel.fitted(flat)

    def go(x, generator):
        def step(carry, _):
            state, generator = carry
            generator, noise = draw(generator, kernel.noise_size(state))
            state, info = kernel.move(flat, {}, noise, state)
            return (state, generator), info

        (state, _), info = jax.lax.scan(step, (kernel.start(flat, x), generator), None, steps)
        return state.x, info

    return mapped(go)(np.asarray(points), generators(seed, 0, len(points)))


@pytest.mark.parametrize(
    ("tries", "steps", "slides"),
    [(1, 6, 1), (3, 12, 1), (1, 6, 4)],  # three trajectories each; the last ones bounce
)
def test_exact_draws_stay_exact(tries, steps, slides):
    """Shares and squared distances are compared with their truths at 4.5 standard errors."""
    kappa, count = 2.0, 4_000
    exact = sticky.exact_rigid_trimers(kappa, count, seed=2)
    kernel = limpet.StrataSampler("soft", steps=slides, step_size=0.6, reach=0.5, tries=tries)
    ends, info = steps_from(exact, kernel, sticky.trimer_target(), steps, seed=3)
    travels = np.asarray(info.move) == Move.HARD
    assert (travels == (np.arange(steps) % (1 + tries) == 0)).all()
    assert np.mean(np.any(np.asarray(ends)[:, 1:] != exact[:, 1:], axis=1)) > 0.9
    changed = np.asarray(info.outcome)[np.isin(info.move, (Move.FORM, Move.BREAK))]
    assert np.mean(changed == Outcome.ACCEPTED) > 0.8
    held = np.asarray(ends)[:, :1]
    assert np.mean(held[:, 0] != exact[:, 0]) > 0.05
    assert sticky.agrees(held, sticky.rigid_trimer_probability(kappa))
    apart = np.asarray(jax.vmap(sticky.trimer)(ends[:, 1:]))[:, 2:]
    loose = apart[held[:, 0] == 0]
    # of an angle that is uniform on (pi/3, 5 pi/3): q = 1/2 - cos(angle)
    assert sticky.agrees(loose, 0.5 + 3 * np.sqrt(3) / (4 * np.pi))


@pytest.mark.parametrize(
    ("measure", "eps", "kappa", "truth"),
    [
        (None, 0.1, 2.0, 0.536167),
        (None, 0.05, 2.0, 0.527087),
        (None, 1e-6, 1.0, 0.355391),
        ("soft", 0.1, 16.0, 0.898180),
        pytest.param(None, 0.02, 2.0, 0.524830, marks=SLOW),
        pytest.param(None, 0.02, 4.0, sticky.at_other_kappa(0.524830, 2.0, 4.0), marks=SLOW),
        pytest.param("soft", 0.1, 2.0, 0.524411, marks=SLOW),
        pytest.param("soft", 0.1, 4.0, sticky.rigid_trimer_probability(4.0), marks=SLOW),
    ],
)
def test_sticky_trimer(measure, eps, kappa, truth):
    target = sticky.trimer_target(eps, kappa)
    kernel = limpet.StrataSampler(measure, steps=5)
    draws = limpet.sample(
        target, sticky.TRIMER_START, kernel=kernel, draws=400, seed=4, progress=False
    )
    assert draws.posterior["bonds"].dims == ("chain", "draw", "bonds_dim")
    assert sticky.agrees(draws.posterior["bonds"].values[..., 0], truth)
    assert min(draws.attrs["acceptance"][move] for move in ("form", "break")) > 0.8
    if measure is None:
        likely = target.bond_probabilities(draws)
        assert likely.shape == draws.posterior["bonds"].shape
        assert sticky.agrees(likely.values[..., 0], truth)
    summary = limpet.summary(draws)
    assert summary.bonds["probability"].sum() == pytest.approx(1)
    assert "how many hold" in str(summary)
    assert limpet.plot(draws).axes[-1].get_label() == "bonds"


def test_how_far_bonds_reach_is_found_by_any_seed():
    """Of 5,000 forms and breaks: 0.8 is some ten standard errors below what is found."""
    target, kernel = sticky.trimer_target(1e-6, 1.0), limpet.StrataSampler(steps=5)
    for seed in range(6):
        draws = limpet.sample(
            target, sticky.TRIMER_START, kernel=kernel, draws=100, seed=seed, progress=False
        )
        assert min(draws.attrs["acceptance"][move] for move in ("form", "break")) > 0.8


def test_slides_that_bounce_back_to_where_they_were_are_not_chosen():
    """In one dimension the longest ones do, and are accepted for it."""
    target = limpet.Strata(lambda x: x[:1], 0.1, kappa=1.0, log_density=lambda x: -x @ x)
    draws = limpet.sample(target, [0.5], draws=300, seed=1, progress=False)
    assert 0.1 < draws.attrs["parameters"]["step_size"] < 2
    away, bonded = np.sqrt(np.pi) / 2, 1.02**-0.5  # weights
    assert sticky.agrees(draws.posterior["bonds"].values[..., 0], bonded / (bonded + away))


def test_a_density_need_not_be_anything_behind_a_wall():
    def log_density(x):
        return sticky.near_the_origin(x) + 0 * jnp.sqrt(sticky.trimer(x)[2] + 0.01)

    target = limpet.Strata(sticky.trimer, 1e-3, 2.0, always=[0, 1], log_density=log_density)
    options = {"draws": 50, "chains": 130, "warmup": 100, "seed": 1, "progress": False}
    draws = limpet.sample(target, sticky.TRIMER_START, **options)
    assert draws.attrs["counts"]["hard"]["wall"]
    assert not draws.attrs["counts"]["hard"]["not_finite"]


def test_strata_of_every_dimension():
    """Shares of the published example: corners, edges and the region between them."""
    target = limpet.Strata(sticky.parabola_line, 0.1, kappa=1.0)
    kernel = limpet.StrataSampler("hausdorff", steps=1)
    draws = limpet.sample(target, [0.2, 1.0], kernel=kernel, draws=600, seed=5, progress=False)
    held = draws.posterior["bonds"].values.sum(axis=-1)
    for number, share in ((2, 0.145734), (1, 0.579469), (0, 0.274798)):
        assert sticky.agrees(held == number, share)


@pytest.mark.parametrize(
    ("measure", "kappa"),
    [
        (None, 2.0),
        pytest.param(None, 1.0, marks=SLOW),
        pytest.param(None, 5.0, marks=SLOW),
        pytest.param("soft", 5.0, marks=SLOW),
    ],
)
def test_four_spheres(measure, kappa):
    """With eps = 0.01 they are as good as rigid."""
    target = limpet.Strata(sticky.four_spheres, 0.01, kappa, always=[0, 1, 2])
    kernel = limpet.StrataSampler(measure)
    options = {"kernel": kernel, "draws": 300, "seed": 6, "progress": False}
    draws = limpet.sample(target, sticky.FOUR_START, **options)
    held = draws.posterior["bonds"].values.sum(axis=-1)
    shares = sticky.four_sphere_shares(kappa)
    assert sticky.agrees(held, shares @ np.arange(4))
    for number, share in enumerate(shares):
        assert sticky.agrees(held == number, share)
    assert min(draws.attrs["acceptance"][move] for move in ("form", "break")) > 0.75
    graph = limpet.label_graph(draws)
    assert graph["moves"].values.sum() == held.size - len(held)
    assert graph["probability"].sum() == pytest.approx(1)


@SLOW
@pytest.mark.parametrize(
    ("kappa", "published"),
    [(2.0, 9.7764), (0.6065, 6.855), (2.2885, 10.047), (8.8309, 11.527)],
)
def test_six_spheres(kappa, published):
    """Published to four digits at kappa = 2; the others are of springs and wells, not of these."""
    target = limpet.sticky_spheres(sticky.zigzag(6), sticky.in_a_row(6), kappa, eps=1e-3)
    draws = limpet.sample(target, draws=3_000, seed=8, progress=False)
    held = 5 + draws.posterior["bonds"].values.sum(axis=-1)
    mean, error = sticky.mean_and_error(held)
    if kappa == 2.0:
        assert abs(mean - published) <= sticky.SIGMAS * error
        assert held.std() == pytest.approx(1.4713, abs=0.03)
    else:
        assert mean == pytest.approx(published, abs=0.15)


@pytest.mark.parametrize(
    ("beads", "kappa", "truth"),
    [(10, 0.2, 1.945537), (10, 1.0, 6.541324), (20, 1.0, 12.775672)],
)
@SLOW
def test_polymer_at_a_sticky_wall(beads, kappa, truth):
    """Contacts, with that of the first bead, are known exactly; chains begin with too many."""
    target, start = sticky.at_a_wall(beads, kappa)
    draws = limpet.sample(target, start, draws=250 * beads, seed=9, progress=False)
    held = 1 + draws.posterior["bonds"].values.sum(axis=-1)
    print(f"{beads} beads, kappa {kappa}: {sticky.mean_and_error(held)} for {truth}")
    assert sticky.agrees(held, truth)


def test_sticky_spheres_and_sets_that_are_allowed():
    """Of four disks in a row, which may bond with the next but one or not at all."""
    row = [[0.0, 0.0], [1.0, 0.0], [1.6, 0.8], [2.6, 0.8]]
    target = limpet.sticky_spheres(row, [(0, 1), (1, 2), (2, 3)], 1.5, pairs=[(0, 2), (1, 3)])
    assert target.pairs == ((0, 2), (1, 3))
    draws = limpet.sample(target, draws=50, chains=130, thin=3, warmup=200, progress=False)
    assert draws.posterior["position"].shape == (130, 50, 3, 2)
    places = draws.posterior["position"].values
    outer = np.linalg.norm(places[:, :, 2], axis=-1)
    assert outer.min() > 1
    assert set(np.unique(draws.posterior["bonds"])) == {0.0, 1.0}


def test_spheres_in_a_box():
    """Nothing else holds them; and one that begins outside it is refused."""
    places = [[0.0, 0.0], [1.0, 0.0], [1.6, 0.9]]
    with pytest.raises(limpet.InputError, match="outside the walls"):
        limpet.sample(limpet.sticky_spheres(places, box=1.5), draws=2, chains=1, progress=False)
    target = limpet.sticky_spheres(places, box=2.0)
    draws = limpet.sample(target, draws=50, chains=130, warmup=100, progress=False)
    assert np.linalg.norm(draws.posterior["position"].values, axis=-1).max() < 2
    assert 0 < draws.posterior["bonds"].mean() < 1


def test_only_allowed_sets_are_drawn():
    target = limpet.Strata(sticky.parabola_line, 0.05, 1.0, allowed=[[], [0]])
    draws = limpet.sample(target, [0.2, 1.0], draws=50, chains=4, warmup=200, progress=False)
    labels = draws.posterior["bonds"].values
    assert not labels[..., 1].any()
    assert 0 < labels[..., 0].mean() < 1


@pytest.mark.parametrize(
    ("kappa", "said"), [(1e-9, "none of them ever held in 520"), (1e9, "all of them always held")]
)
def test_bonds_that_never_change_are_told_of(kappa, said):
    """The same program as in other tests here, with another number."""
    start = sticky.TRIMER_START if kappa < 1 else sticky.TRIANGLE_START
    with pytest.warns(limpet.LimpetWarning, match=said):
        limpet.sample(
            sticky.trimer_target(kappa=kappa),
            start,
            draws=4,
            chains=130,
            warmup=100,
            progress=False,
        )


@pytest.mark.parametrize("tries", [1, 3])
def test_stored_runs_go_on_bit_for_bit(tries, tmp_path):
    target, start = sticky.trimer_target(), sticky.TRIMER_START
    kernel = limpet.StrataSampler(tries=tries)
    options = {"kernel": kernel, "chains": 6, "warmup": 100, "seed": 7, "progress": False}
    whole = limpet.sample(target, start, draws=90, **options)
    store = tmp_path / "run.zarr"
    limpet.sample(target, start, draws=40, store=store, **options)
    longer = limpet.resume(store, target, draws=90, progress=False)
    for name in ("bonds", "x"):
        assert np.array_equal(longer.posterior[name].values, whole.posterior[name].values)
    with pytest.raises(limpet.StoreError, match="another target"):
        limpet.resume(store, sticky.trimer_target(kappa=3.0), draws=100, progress=False)


def test_warm_up_watches_how_many_hold_and_is_carried_on():
    """By a tile that goes through bytes before its first draw, and after it."""
    layout, starts = read_points("start", {"bonds": np.zeros(3), "x": np.array(sticky.FOUR_START)})
    target = limpet.Strata(sticky.four_spheres, 0.01, 2.0, always=[0, 1, 2]).on_vectors(layout)
    target = target.freeze(jnp.asarray(starts[0]))
    kernel = limpet.StrataSampler().fitted(target)
    asked = {"draws": 8, "chains": 40, "warmup": None, "thin": 1, "seed": 3, "scale": "learn"}
    words = layout, Coordinates()
    run = sampling._specify(kernel, target, *words, keep_surface=False, **asked)
    tile = TileRun(run, kernel, target, 0, np.tile(starts, (40, 1)))
    while not np.isfinite(tile.online.sums.centre).all():
        tile.advance()
    assert tile.warmup.steps < 0
    *labels, count = tile.online.coordinates
    assert count == layout.size
    values = tile.online.sums.values + tile.online.sums.centre[:, None, None]
    seen = slice(0, tile.step - tile.warmup.learned_at)
    held = values[np.isin(labels, range(3)).nonzero()[0]][..., seen].sum(axis=0)
    assert np.array_equal(values[-1][..., seen], held)
    for drawing in (False, True):
        while tile.drawing < drawing:
            tile.advance()
        other = TileRun.from_bytes(tile.to_bytes())
        tile.advance(), other.advance()
        mine, its = tile.snapshot(), other.snapshot()
        for name in mine.keys() - set(PHASES):
            assert np.array_equal(mine[name], its[name], equal_nan=True), name
    assert len(tile.online.coordinates) == layout.size


def test_one_chain_by_hand():
    target, kernel = sticky.trimer_target(), limpet.StrataSampler(steps=1)
    point = {"x": jnp.array(sticky.TRIMER_START), "bonds": jnp.zeros(1)}
    state = kernel.init(target, point)
    step = jax.jit(lambda key, x: kernel.step(target, key, x), compiler_options=RUN_ONCE)
    for key in jax.random.split(jax.random.key(0)):
        state, info = step(key, state)
    assert int(info.move) in (Move.FORM, Move.BREAK, Move.FLIP)
    assert state.x["x"].shape == (6,)


def sample_trimer(eps, kappa, **numbers):
    """Two draws of three disks."""
    target = limpet.Strata(sticky.trimer, eps, kappa, **numbers)
    return limpet.sample(target, sticky.TRIMER_START, draws=2, chains=1, progress=False)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"kappa": 0.0}, "kappa=0.0: expected finite numbers above zero. One that never holds"),
        ({"kappa": -1.0}, "kappa=-1.0"),
        ({"kappa": np.nan}, "kappa=nan"),
        ({"kappa": [1.0, 2.0]}, "kappa has length 2, but 1 of 3 constraints may break"),
        ({"reach": 0.0}, "reach=0.0"),
        ({"always": [0, 0]}, "a constraint twice"),
        ({"always": [0, 5]}, "always has constraint 5, but q returned m = 3"),
        ({"always": [0, 1, 2]}, "none may break"),
        ({"always": "01"}, "expected a list of constraints"),
        ({"two_sided": 3}, "two_sided=3"),
        ({"allowed": [[0]]}, "which always holds"),
        ({"allowed": []}, "at least one set"),
        ({"allowed": 3}, "expected a list of sets"),
        ({"eps": lambda x: 0.1}, "eps is a function"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(numbers, said):
    given = {"eps": 0.1, "kappa": 1.0, "always": [0, 1]} | numbers
    with pytest.raises(limpet.InputError, match=said):
        sample_trimer(**given)


@pytest.mark.parametrize(
    ("start", "options", "said"),
    [
        ([-0.4, 0.9, 0.0, 0.0, 0.4, 0.9], {}, "The start overlaps: constraint 2"),
        ({"x": [-1.0, 0.1, 0.0, 0.0, 1.0, 0.1]}, {}, "expected that array itself"),
        (sticky.TRIMER_START, {"allowed": [[2]]}, "which is none of the sets in allowed"),
        (sticky.TRIANGLE_START, {"inside": lambda x: x[0]}, r"the walls: inside = \[-0.5\]"),
        (sticky.TRIANGLE_START, {"log_density": lambda x: jnp.log(x[0])}, "log_density is nan"),
    ],
)
def test_starts_that_cannot_be_are_refused(start, options, said):
    target = limpet.Strata(sticky.trimer, 0.01, 1.0, always=[0, 1], **options)
    with pytest.raises(limpet.InputError, match=said):
        limpet.sample(target, start, draws=2, chains=1, progress=False)


@pytest.mark.parametrize(
    ("start", "kernel", "said"),
    [
        ([0.5, 1.0, 0.0], limpet.StrataSampler(), "The surface may be empty"),
        ([0.5, 1.0], limpet.StrataSampler("soft"), "do not hold together anywhere near the start"),
    ],
)
def test_constraints_that_contradict_are_refused(start, kernel, said):
    """Two parallel walls, at both of which a point always is."""
    target = limpet.Strata(sticky.two_walls, 0.1, 1.0, always=[0, 1])
    with pytest.raises((limpet.InputError, limpet.StartError), match=said):
        limpet.sample(target, start, kernel=kernel, draws=2, chains=1, progress=False)


@pytest.mark.parametrize(
    ("q", "start", "options", "way"),
    [
        (sticky.trimer, sticky.TRIMER_START, {"always": [0, 1]}, r"-0.41"),
        (lambda x: (x @ x - 1)[None] / 2, [1.0, 0.5], {}, r"1. 0."),
        (lambda x: (x @ x - 1)[None] / 2, [1.0, 0.5], {"inside": lambda x: 9 - x[0]}, r"0. 1."),
        (lambda x: x[:1], [0.5, 0.0], {"two_sided": True}, r"1. 0."),
        (lambda x: x[:2], [0.0, 0.5, 1.0], {"allowed": [[0], [0, 1]]}, r"0. 1. 0."),
    ],
)
def test_laws_without_an_end_are_refused(q, start, options, way):
    """Particles that drift apart, or together; some are held in one direction."""
    target = limpet.Strata(q, 0.01, 1.0, **options)
    with pytest.raises(limpet.InputError, match=r"The law has no end.*along \[ ?" + way):
        limpet.sample(target, start, draws=2, chains=1, progress=False)


@pytest.mark.parametrize(
    ("q", "start", "options"),
    [
        (sticky.parabola_line, [0.2, 1.0], {}),
        (sticky.four_spheres, sticky.FOUR_START, {"always": [0, 1, 2]}),
        (lambda x: (x @ x - 1)[None] / 2, [1.0, 0.5], {"inside": lambda x: 9 - x @ x}),
        (lambda x: (x @ x - 1)[None] / 2, [1.0, 0.5], {"log_density": lambda x: -x @ x / 1e8}),
        # an angle may go round and round
        (lambda x: 0.5 + jnp.sin(x), [0.5], {}),
        (lambda x: x, [0.0, 0.5], {"allowed": [[0, 1]]}),
    ],
)
def test_laws_with_an_end_are_not(q, start, options):
    target = limpet.Strata(q, 0.01, 1.0, **options)
    m = len(q(np.array(start))) - len(target.always)
    layout, starts = read_points("start", {"bonds": np.zeros(m), "x": np.array(start)})
    check_proper(target.on_vectors(layout).freeze(jnp.asarray(starts[0])), starts[0])


def test_sets_that_cannot_be_reached_are_refused():
    target = limpet.Strata(sticky.four_spheres, 0.1, 1.0, always=[0, 1, 2], allowed=[[], [3, 4]])
    with pytest.raises(limpet.InputError, match="cannot be reached from the start"):
        limpet.sample(target, sticky.FOUR_START, draws=2, chains=1, progress=False)


def test_samplers_and_targets_that_do_not_fit_are_refused():
    circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.1)
    with pytest.raises(limpet.InputError, match="go together"):
        limpet.sample(circle, [1.0, 0.0], kernel=limpet.StrataSampler())
    with pytest.raises(limpet.InputError, match="go together"):
        limpet.sample(sticky.trimer_target(), sticky.TRIMER_START, kernel=limpet.Lifted())
    with pytest.raises(limpet.InputError, match="measure='hard'"):
        limpet.StrataSampler("hard")
    with pytest.raises(limpet.InputError, match="has labels, and the point has none"):
        limpet.find_start(sticky.trimer_target(), sticky.TRIMER_START)
    with pytest.raises(limpet.InputError, match="no labels"):
        limpet.label_graph(circle)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"positions": [[0.0, 0.0]]}, "two spheres or more"),
        ({"bonds": [(0, 1)]}, "do not connect sphere 2"),
        ({"bonds": [(0, 3)]}, "expected pairs of two different spheres, from 0 to 2"),
        ({"bonds": [(0, 1), (1, 0)]}, "twice"),
        ({"bonds": 3}, "bonds=3: expected a list of pairs"),
        ({"pairs": []}, "leave no pair that may stick"),
        ({"kappa": [1.0, 2.0]}, "but 1 pairs may stick"),
        ({"diameter": 0.0}, "diameter"),
        ({"positions": [[0.0, np.inf], [1.0, 0.0]]}, "not finite"),
        ({"positions": np.zeros((120, 3)), "box": 9.0}, "7140 pairs of spheres may stick"),
    ],
)
def test_spheres_that_cannot_be_are_refused(options, said):
    given = {"positions": [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], "bonds": [(0, 1), (1, 2)]}
    given |= {"bonds": []} if "box" in options else {}
    with pytest.raises(limpet.InputError, match=said):
        limpet.sticky_spheres(**given | options)
