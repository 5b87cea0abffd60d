"""Back to the surface, and what moves are made of: projections, obstacles, verdicts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet.engine.xla import RUN_ONCE
from limpet.geometry import projection
from limpet.geometry.linalg import factor
from limpet.geometry.projection import landing, project
from limpet.kernels.moves import came_back, judge, obstacle, project_twice, sooner, start_on_surface
from limpet.kernels.noise import Noise
from limpet.kernels.states import Outcome

NONE = jnp.zeros(1)
ROOT = jnp.full((1, 1), 2.0)  # the factor of a normal of length two
TIGHT = jnp.full(1, 1e-10)


def circle(x):
    return jnp.array([x @ x - 1])


TARGET = limpet.Target(circle, eps=1.0)


def lines(m):
    """Constraints that are linear, so that one update with any matrix that is right is enough."""
    return limpet.Target(lambda x: 2 * x[:m] - jnp.arange(m), eps=1.0)


def test_a_projection_goes_along_the_normals():
    start, normals = jnp.array([0.6, 1.5]), jnp.array([[0.0], [2.0]])
    end = project(TARGET, start, normals, ROOT, NONE, TIGHT, 8, True)
    assert end.landed
    assert end.finite
    np.testing.assert_allclose(end.x, [0.6, 0.8], atol=1e-10)
    np.testing.assert_array_equal(end.values, TARGET.values(end.x))


def test_a_projection_reaches_the_level_that_is_asked_for():
    start, normals = jnp.array([0.0, 1.5]), jnp.array([[0.0], [2.0]])
    end = project(TARGET, start, normals, ROOT, jnp.array([3.0]), TIGHT, 8, True)
    np.testing.assert_allclose(end.x, [0.0, 2.0], atol=1e-10)


@pytest.mark.parametrize(("cap", "active"), [(1, True), (8, False)], ids=["cap", "inactive"])
def test_a_projection_that_may_not_go_on_has_not_landed(cap, active):
    end = project(
        TARGET, jnp.array([0.0, 3.0]), jnp.array([[0.0], [2.0]]), ROOT, NONE, TIGHT, cap, active
    )
    assert not end.landed
    assert end.finite


def test_a_line_beside_the_surface_never_lands():
    start, normals = jnp.array([2.0, 0.1]), jnp.array([[0.0], [2.0]])
    end = project(TARGET, start, normals, ROOT, NONE, TIGHT, 30, True)
    assert not end.landed


@pytest.mark.parametrize("m", [1, 3, 9])
def test_many_constraints_are_met_as_few_are(m):
    target, n = lines(m), m + 2
    start = jnp.linspace(-1, 1, n)
    normals = target.values_and_normals(start)[1]
    compiled = jax.jit(project, static_argnums=(0, 6), compiler_options=RUN_ONCE)
    end = compiled(
        target, start, normals, factor(normals), jnp.zeros(m), jnp.full(m, 1e-10), 8, True
    )
    assert end.landed
    np.testing.assert_allclose(end.x[:m], np.arange(m) / 2, atol=1e-10)
    np.testing.assert_array_equal(end.x[m:], start[m:])


def test_only_many_constraints_are_approached(monkeypatch):
    approaches = []
    approach = projection._approach

    def count(*arguments):
        approaches.append(arguments)
        return approach(*arguments)

    monkeypatch.setattr(projection, "_approach", count)
    for m, expected in ((8, 0), (9, 1)):
        shapes = (jnp.zeros(m + 1), jnp.ones((m + 1, m)), jnp.eye(m), jnp.zeros(m), jnp.ones(m))
        jax.eval_shape(lambda *arrays, m=m: project(lines(m), *arrays, 8, True), *shapes)
        assert len(approaches) == expected


def test_a_point_where_q_is_not_finite_is_told():
    target = limpet.Target(lambda x: jnp.log(x[:1]), eps=1.0)
    assert not landing(target, jnp.array([-1.0, 0.0])).finite
    assert landing(target, jnp.array([2.0, 0.0])).finite
    assert not landing(target, jnp.array([1.0, 0.0])).landed  # nothing was projected there
    assert landing(TARGET, jnp.array([jnp.inf, 0.0])).finite  # which is no fault of q


def test_the_second_projection_leads_back():
    kernel, x = limpet.SurfaceSampler(), jnp.array([1.0, 0.0])
    state = start_on_surface(TARGET, x, 1.0)
    there = project_twice(
        kernel,
        TARGET,
        state.normals,
        state.factor,
        x,
        x + jnp.array([0.0, 0.3]),
        lambda y: x - y,
        level=NONE,
        reach=state.reach,
    )
    assert there.first.landed
    np.testing.assert_allclose(there.slide @ there.first.x, 0.0, atol=1e-12)  # along the circle
    assert came_back(kernel, there.second, state)
    assert not came_back(kernel, there.first, state)


FINE = {"known": True, "inside": True, "finite": True, "landed": True, "returned": True}


@pytest.mark.parametrize(
    ("flags", "outcome"),
    [
        ({}, Outcome.ACCEPTED),
        ({"inside": False}, Outcome.WALL),
        ({"finite": False}, Outcome.NOT_FINITE),
        ({"landed": False}, Outcome.FORWARD),
        ({"returned": False}, Outcome.REVERSE),
        ({"landed": False, "returned": False}, Outcome.FORWARD),
        ({"known": False, "inside": False, "landed": False}, Outcome.FORWARD),
        ({"inside": False, "returned": False}, Outcome.WALL),
    ],
)
def test_what_is_in_the_way(flags, outcome):
    met = obstacle(**{name: jnp.bool_(flag) for name, flag in (FINE | flags).items()})
    assert met == outcome
    assert sooner(jnp.asarray(Outcome.WALL), met) == Outcome.WALL
    assert sooner(jnp.asarray(Outcome.ACCEPTED), met) == outcome


@pytest.mark.parametrize(
    ("log_ratio", "met", "coin", "outcome", "acceptance"),
    [
        (0.5, Outcome.ACCEPTED, 0.999, Outcome.ACCEPTED, 1.0),
        (np.log(0.25), Outcome.ACCEPTED, 0.24, Outcome.ACCEPTED, 0.25),
        (np.log(0.25), Outcome.ACCEPTED, 0.26, Outcome.METROPOLIS, 0.25),
        (-np.inf, Outcome.ACCEPTED, 0.0, Outcome.METROPOLIS, 0.0),
        (np.nan, Outcome.ACCEPTED, 0.0, Outcome.NOT_FINITE, 0.0),
        (np.inf, Outcome.ACCEPTED, 0.0, Outcome.NOT_FINITE, 0.0),
        (5.0, Outcome.REVERSE, 0.0, Outcome.REVERSE, 0.0),
        (np.nan, Outcome.WALL, 0.0, Outcome.WALL, 0.0),
    ],
)
def test_verdicts(log_ratio, met, coin, outcome, acceptance):
    noise = Noise(jnp.zeros(2), jnp.asarray(0.0), jnp.asarray(coin))
    found = judge(noise, jnp.asarray(log_ratio), jnp.asarray(met))
    assert found[0] == outcome
    assert found[1] == pytest.approx(acceptance)


def test_newtons_matrix_is_the_same_wherever_it_is_computed(monkeypatch):
    surface = limpet.Target(lambda x: jnp.array([x @ x - 1, x[0] * x[1] + x[2] - 0.1]), eps=1e-3)
    x = jnp.asarray(np.r_[0.0, 0.0, 0.1, np.sqrt(0.99 / 297) * np.ones(297)])
    normals = surface.values_and_normals(x)[1]
    start = x + 0.02 * np.random.default_rng(0).normal(size=300)
    given = surface, start, normals, factor(normals), jnp.zeros(2), jnp.full(2, 1e-9), 8, True
    apart = projection.project(*given)
    monkeypatch.setattr(projection, "FEWEST_IN_ONE_PASS", 0)
    together = projection.project(*given)
    assert apart.landed
    assert together.landed
    np.testing.assert_allclose(together.x, apart.x, rtol=0, atol=1e-13)
