"""Symmetries in whole runs: counted, kept in stores, refused in words; nothing changes without."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet.kernels.noise import draw, generator_from
from limpet.kernels.symmetry import follow_symmetries
from limpet.run.tile import step
from limpet.symmetries import NORMALS

KERNELS = {
    "lifted": limpet.Lifted(),
    "sas": limpet.SAS(),
    "surface": limpet.SurfaceSampler(),
    "area": limpet.SurfaceSampler(measure="hausdorff", steps=3),
    "walk": limpet.RandomWalk(),
}
START = [0.6, 0.8, 0.3]


def circle(x):
    return jnp.array([x[0] ** 2 + x[1] ** 2 - 1])


def density(x):
    return 2 * x[0] - x[2] ** 2 / 2


def turn(x, z):
    c, s = jnp.cos(z[0]), jnp.sin(z[0])
    return jnp.array([c * x[0] - s * x[1], s * x[0] + c * x[1], x[2]])


def lift(x, z):
    return x.at[2].add(z[1])


def target_with(*symmetries, **others):
    return limpet.Target(circle, 0.05, **({"log_density": density} | others), symmetries=symmetries)


def run(target, **settings):
    given = {"draws": 60, "chains": 5, "warmup": 100, "seed": 3, "progress": False}
    return limpet.sample(target, START, **(given | settings))


@pytest.mark.filterwarnings("ignore::limpet.MixingWarning")
@pytest.mark.parametrize("kernel", KERNELS)
def test_moves_are_counted_and_steps_are_not(kernel):
    draws = run(target_with(turn, (lift, 2)), kernel=KERNELS[kernel], thin=3)
    counts = draws.attrs["counts"]
    assert list(counts)[-1] == "symmetry"
    steps = sum(sum(row.values()) for move, row in counts.items() if move != "symmetry")
    assert draws.attrs["steps"] == steps
    slides = draws.attrs["parameters"].get("steps", 1)
    made = sum(counts["symmetry"].values())
    assert made == 4 * steps * slides
    assert counts["symmetry"]["accepted"] + counts["symmetry"]["metropolis"] == made
    assert draws.attrs["acceptance"]["symmetry"] == pytest.approx(
        counts["symmetry"]["accepted"] / made, abs=5 / np.sqrt(made)
    )
    assert limpet.summary(draws).moves["move"].values[-1] == "symmetry"


def test_means_are_exact():
    draws = run(target_with(turn, lift), draws=400, chains=130)
    x = draws.posterior["x"].values
    means = x.mean(axis=1)
    error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    # the Bessel functions' ratio I_1(2 r) / I_0(2 r), at r = 1 but for terms of eps^2
    assert abs(means[:, 0].mean() - 0.6978) < 5 * error[0] + 0.001
    assert abs(means[:, 1].mean()) < 5 * error[1]
    assert abs(np.mean(x[..., 2] ** 2) - 1) < 0.05


def test_a_step_is_the_samplers_own_and_then_symmetries():
    kernel, target = limpet.Lifted(steps=2, step_size=0.2), target_with(turn, lift)
    key, state = jax.random.key(1), limpet.Lifted().init(target, START)
    found, info = jax.jit(kernel.step)(target, key, state)

    @jax.jit
    def in_parts():
        generator, noise = draw(generator_from(key), kernel.noise_size(state))
        between, own = kernel.move(target, {}, noise, state)
        return between, own, follow_symmetries(kernel, target, generator, between, 8)[1]

    between, own, expected = in_parts()
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-12)
    assert info.outcome == own.outcome
    assert not np.allclose(found.x, between.x)


def test_without_symmetries_the_program_is_the_same():
    kernel, target = limpet.Lifted(steps=2), target_with()
    state, key = kernel.init(target, START), jax.random.key(0)

    def alone(constants, carry, scales):
        (kernel, target), (state, generator) = constants, carry
        generator, noise = draw(generator, kernel.noise_size(state))
        return kernel.move(target, scales, noise, state)[0].x

    def whole(*given):
        return step(*given)[1].x

    given = (kernel, target), (state, generator_from(key)), {}
    np.testing.assert_array_equal(jax.jit(alone)(*given), jax.jit(whole)(*given))
    assert jax.eval_shape(step, *given)[1].tally is None


def test_a_store_knows_its_symmetries(tmp_path):
    target, store = target_with(turn, lift), tmp_path / "run.zarr"
    whole = run(target, draws=400)
    run(target, store=store)
    resumed = limpet.resume(store, target, draws=400, progress=False)
    np.testing.assert_array_equal(resumed.posterior["x"], whole.posterior["x"])
    assert resumed.attrs["counts"] == whole.attrs["counts"]
    # sums of two parts, but for rounding
    assert resumed.attrs["acceptance"] == pytest.approx(whole.attrs["acceptance"], rel=1e-12)
    assert limpet.open(store).attrs["counts"]["symmetry"] == whole.attrs["counts"]["symmetry"]
    for other in (target_with(), target_with(turn), target_with(lift, turn)):
        with pytest.raises(limpet.StoreError, match=r"another target: .*symmetry 1"):
            limpet.resume(store, other, draws=500, progress=False)


def test_points_with_names_and_data():
    def q(x, data):
        return jnp.sum(x["at here"] ** 2)[None] - data

    def flip(x, z, data):
        return x | {"at here": x["at here"] * jnp.where(jnp.abs(z[1]) > 1, -data, data)}

    def density(x, data):
        return -(x["free"] ** 2)

    data = np.array([1.0])
    target = limpet.Target(q, 0.1, data=data, log_density=density, symmetries=[(flip, 2)])
    start = {"at here": np.array([[0.6], [0.8]]), "free": 0.2}
    draws = limpet.sample(target, start, draws=50, chains=3, warmup=100, progress=False)
    assert draws.attrs["acceptance"]["symmetry"] == pytest.approx(1.0)
    assert "symmetries=[flip]" in repr(target)
    wrong = limpet.Target(q, 0.1, data=data, symmetries=[lambda x, z, data: x["free"]])
    with pytest.raises(limpet.InputError, match=r"\(<lambda>\): returned x: \(\): expected .*here"):
        limpet.sample(wrong, start, progress=False)


@pytest.mark.parametrize("held", [None, (0.5, 0, 0)])
@pytest.mark.parametrize("make", [limpet.pivot, limpet.crankshaft])
@pytest.mark.parametrize("shape", [(5, 3), (15,)])
def test_ready_made_moves_keep_bonds_and_lead_back(make, held, shape):
    rng = np.random.default_rng(0)
    move, changed, ends = jax.jit(make(held=held, angle=2.0)), set(), []
    for _ in range(60):
        x, z = rng.normal(size=shape), rng.normal(size=NORMALS)
        y = np.asarray(move(x, z))
        np.testing.assert_allclose(move(y, -z), x, atol=1e-12)
        first = np.zeros((0, 3)) if held is None else np.array([held])
        before, after = (np.concatenate([first, a.reshape(-1, 3)]) for a in (x, y))
        lengths = [np.linalg.norm(np.diff(a, axis=0), axis=1) for a in (before, after)]
        np.testing.assert_allclose(*lengths, atol=1e-12)
        moved = ~np.isclose(before, after).all(axis=1)
        changed |= {tuple(moved)}
        ends.append(moved[-1])
        J = np.asarray(jax.jacfwd(move)(x, z)).reshape(15, 15)
        assert abs(np.linalg.slogdet(J)[1]) < 1e-10
    beads = 5 if held is None else 6
    # every bead but the last may be the pivot; two beads with others between them
    most = beads - 1 if make is limpet.pivot else (beads - 1) * (beads - 2) // 2
    assert len(changed) == most
    assert all(ends) if make is limpet.pivot else not any(ends)


def test_angles_are_uniform_up_to_the_largest():
    move = jax.jit(jax.vmap(limpet.pivot(held=[0, 0, 0], angle=0.5), in_axes=(None, 0)))
    z = np.random.default_rng(1).normal(size=(4_000, NORMALS))
    y = np.asarray(move(jnp.array([1.0, 0.0, 0.0]), z))
    # about a random axis, the mean of the cosine is (1 + 2 <cos angle>) / 3
    exact = (1 + 2 * np.sin(0.5) / 0.5) / 3
    assert abs(y[:, 0].mean() - exact) < 5 * y[:, 0].std() / np.sqrt(len(y))
    np.testing.assert_allclose(y[:, 1:].mean(axis=0), 0, atol=5 * 0.25 / np.sqrt(len(y)))


def fails(x, z):
    raise RuntimeError("no such move")


def nowhere(x, z):
    return x * jnp.nan


def grow(x, z):
    return x * jnp.exp(0.1 * z[0])


def one_way(x, z):
    return x.at[2].add(1 + z[0])


def choose_by_sign(x, z):
    return jnp.where(z[0] > 0, turn(x, z[1:]), lift(x, z))


def squeeze(x, z):
    return x.at[2].multiply(jnp.exp(z[0]))


BAD = {
    "not a list": (turn, r"^symmetries=<function turn.*expected a list of functions"),
    "a generator": ((move for move in [turn]), "^symmetries=<generator.*expected a list"),
    "not callable": ([3], r"^symmetries\[0\]=3: expected a list of functions"),
    "a pair of nothing": ([(turn, 0)], r"^symmetries\[0\]\[1\]=0"),
    "a pair of words": ([(turn, "two")], r"^symmetries\[0\]\[1\]='two'"),
    "too many numbers": ([(turn, 10**7)], "expected at most 100000 normal numbers"),
    "raises": ([turn, fails], r"^symmetries\[1\] \(fails\) could not .* RuntimeError: no such"),
    "too few numbers": ([(lambda x, z: x * z[:3], 2)], r"^symmetries\[0\] \(<lambda>\) could not"),
    "a scalar": ([lambda x, z: x[0]], r"\(<lambda>\) returned float64 of shape \(\): expected"),
    "shorter": ([lambda x, z: x[:2]], r"returned float64 of shape \(2,\).*shape \(3,\)"),
    "a tuple": ([lambda x, z: (x, z)], "returned a tuple: expected a point like x"),
    "whole numbers": ([lambda x, z: jnp.arange(3)], "returned int64 of shape"),
    "NaN": ([nowhere], r"^symmetries\[0\] \(nowhere\) returned \[nan, nan, nan\] at x ="),
    "breaks q": ([grow], r"\(grow\) does not keep q: \|q / eps\| was .*, changed by "),
    "no way back": ([one_way], r"\(one_way\) has no way back: at x = .* from x. Expected move\("),
    "another choice": ([choose_by_sign], r"\(choose_by_sign\) has no way back"),
    "volume": ([squeeze], r"\(squeeze\) changes volume: \|det dy/dx\| is [0-9.e-]+ at x"),
    "no chain": ([limpet.pivot()], r"\(pivot\): limpet.pivot was given 3 numbers and 0 beads"),
    "no names": ([limpet.pivot("bead")], r"limpet.pivot\('bead'\) was given a point with no names"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_symmetry_is_refused_in_words(case):
    symmetries, words = BAD[case]
    with pytest.raises(limpet.InputError, match=words):
        run(limpet.Target(circle, 0.05, log_density=density, symmetries=symmetries))


def test_what_is_no_symmetry_is_refused_by_init():
    with pytest.raises(limpet.InputError, match="changes volume"):
        limpet.Lifted().init(target_with(squeeze), START)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"angle": 0.0}, "^angle=0.0"),
        ({"angle": np.nan}, "^angle=nan"),
        ({"held": [0, 0]}, r"^held=\[0, 0\]: expected the place of a bead"),
        ({"held": [0, 0, np.inf]}, "^held=.*three finite numbers"),
        ({"held": "origin"}, "^held='origin'"),
        ({"variable": 3}, "^variable=3: expected the name"),
    ],
)
def test_ready_made_moves_refuse_in_words(given, words):
    for make in (limpet.pivot, limpet.crankshaft):
        with pytest.raises(limpet.InputError, match=words):
            make(**given)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({"bead": np.zeros((4, 3)) + np.arange(3)}, "expected an array, or the name of"),
        ({"at": np.zeros(7) + 1.0}, "expected the places of 2 beads or more"),
    ],
)
def test_points_without_beads(start, words):
    name = None if "bead" in start else "at"

    def q(x):
        return jnp.sum(jax.tree.leaves(x)[0] ** 2)[None] - 1

    target = limpet.Target(q, 0.1, symmetries=[limpet.pivot(name)])
    with pytest.raises(limpet.InputError, match=words):
        limpet.sample(target, start, draws=5, chains=2, progress=False)


@pytest.mark.filterwarnings("ignore::limpet.MixingWarning")
def test_a_symmetry_that_is_none_far_away_is_refused_there_and_told():
    def sometimes(x, z):
        return x.at[2].add(jnp.where(jnp.abs(x[2]) < 6, z[0], 1.0))

    target = target_with(sometimes, log_density=lambda x: -(x[2] ** 2) / 200)
    with pytest.warns(limpet.LimpetWarning, match="were none: of .* had no way back"):
        draws = run(target, draws=300)
    assert draws.attrs["counts"]["symmetry"]["reverse"] > 0


@pytest.mark.filterwarnings("ignore::limpet.MixingWarning")
def test_symmetries_that_lead_nowhere_are_told():
    target = target_with(lambda x, z: -x, inside=lambda x: x[:1])
    with pytest.warns(limpet.LimpetWarning, match=r"never accepted, of .* \(mostly wall\)"):
        run(target, draws=100)
