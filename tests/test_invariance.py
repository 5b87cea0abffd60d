"""Chains that start from the exact law keep it: the samplers on random problems with known answers.

Every chain starts from an exact draw of the law that its kernel must keep, and makes 16 steps, or 4
if it has a hundred unknowns. Then the share of chains off S, and the points off and on it (taken
back to independent uniforms), are held against what is known. Each pair of successive states is
held against the pair reversed: self-adjointness, the paper's section 4. Appendix A, that averages
approach those on the surface at the rate eps^2, is at the end.

Chains are independent of each other, and seeds are the problems' numbers. There are 3,535
p-values, each at a level of 5e-5 / 3,535 = 1.4e-8, so that all of them together raise a false
alarm in at most 5e-5 of all choices of seeds.
"""

import dataclasses

import exact
import numpy as np
import pytest
import scipy.stats

import limpet
from limpet.kernels.states import Outcome
from limpet.paper import two_spheres

pytestmark = pytest.mark.optimized  # the machine code that users run

FALSE_ALARMS = 5e-5
TESTS = 3_535
LEVEL = FALSE_ALARMS / TESTS

STEPS = 16
DENSE = 100  # unknowns, from which on fewer chains make fewer steps, for these cost most
STEPS_OF_DENSE = 4
LEAST_ACCEPTED = 0.01  # of the proposals of each move
LEAST_MOVED = 0.5  # of the chains, in all steps together
RATE_EPS = np.array([0.4, 0.2, 0.1])


def slide(rng, problem):
    """A size of slides along the surface: about as long, all in all, in every dimension."""
    return rng.uniform(0.4, 1.2) / np.sqrt(problem.n - problem.m)


def sas(number, problem):
    """Random settings; half of the kernels leave the sizes of the small steps to their defaults."""
    rng = np.random.default_rng([number, 1])
    kernel = limpet.SAS(
        sigma_hrd=slide(rng, problem),
        off_probability=rng.uniform(0.3, 0.9),
        on_probability=rng.uniform(0.3, 0.9),
        newton_cap=int(rng.choice([5, 8])),
    )
    if number % 2:
        return kernel
    prp, *others = rng.uniform(0.6, 1.6, size=4) * np.min(problem.eps)
    tan, on, sft = np.array(others) * 2 / np.sqrt(problem.n)
    return dataclasses.replace(kernel, sigma_prp=prp, sigma_tan=tan, sigma_on=on, sigma_sft=sft)


def surface(number, problem):
    rng = np.random.default_rng([number, 1])
    return limpet.SurfaceSampler(measure="soft", step_size=slide(rng, problem))


def travelling(number, problem):
    """Hard moves of several slides, and slides off S."""
    rng = np.random.default_rng([number, 2])
    slides = int(rng.integers(1, 5))
    return dataclasses.replace(
        sas(number, problem),
        sigma_hrd=slide(rng, problem) / np.sqrt(slides),
        trajectory=slides,
        on_probability=rng.uniform(0.3, 0.5),
        slide_probability=rng.uniform(0.2, 0.4),
    )


def travelling_surface(number, problem):
    rng = np.random.default_rng([number, 1])
    sigma = slide(rng, problem) / 1.5
    return limpet.SurfaceSampler(step_size=sigma, steps=int(rng.integers(2, 5)))


def lifted(number, problem):
    rng = np.random.default_rng([number, 1])
    slides = int(rng.integers(1, 6))
    return limpet.Lifted(steps=slides, step_size=slide(rng, problem) / np.sqrt(slides))


def random_walk(number, problem):
    rng = np.random.default_rng([number, 1])
    return limpet.RandomWalk(step_size=rng.uniform(0.05, 0.2) if number % 2 else None)


def random_case(number, kernel):
    problem = exact.random_problem(number)
    return problem, kernel(number, problem)


def large_case(number, kernel):
    """More constraints than are unrolled: their algebra is LAPACK's."""
    problem = exact.bent_problem(np.random.default_rng(number), (2,) * 9, free=0, eps=0.2)
    return problem, kernel(number, problem)


def dense_case(number, m, kernel):
    """A hundred unknowns, all of them in every constraint: arrays in memory, and loops."""
    problem = exact.dense_problem(m, number)
    return problem, kernel(number, problem)


def varied_case(number, kernel):
    """Noise that depends on the point."""
    problem = dataclasses.replace(exact.random_problem(number), varied=True)
    return problem, kernel(number, problem)


def crowded_case(number, n, m, *, varied=False, kernel=None):
    """As many constraints as unknowns, or more."""
    problem = exact.crowded_problem(n, m, number, varied)
    rng = np.random.default_rng([number, 1])
    slides = int(rng.integers(1, 6))
    size = rng.uniform(0.3, 1.0) / np.sqrt(slides)
    return problem, kernel or limpet.Lifted(steps=slides, step_size=size)


def torus_case(measure, trajectory=1):
    return exact.Torus(measure), limpet.SurfaceSampler(measure, 0.5, trajectory)


CASES = {
    **{f"sas {k}": random_case(k, sas) for k in range(34)},
    **{f"surface {k}": random_case(k, surface) for k in range(34, 44)},
    **{f"random walk {k}": random_case(k, random_walk) for k in range(44, 54)},
    "sas large": large_case(54, sas),
    "torus soft": torus_case("soft"),
    "torus hausdorff": torus_case("hausdorff"),
    **{f"travelling {k}": random_case(k, travelling) for k in range(57, 67)},
    **{f"travelling surface {k}": random_case(k, travelling_surface) for k in range(67, 71)},
    **{f"lifted {k}": random_case(k, lifted) for k in range(71, 81)},
    "travelling large": large_case(81, travelling),
    "lifted large": large_case(82, lifted),
    "torus soft, travelling": torus_case("soft", 3),
    "torus hausdorff, travelling": torus_case("hausdorff", 3),
    **{f"lifted, dense {m}": dense_case(85 + m, m, lifted) for m in (1, 33, 60)},
    "sas, dense 33": dense_case(146, 33, sas),
    **{f"varied sas {k}": varied_case(k, sas) for k in range(150, 154)},
    "varied surface": varied_case(154, surface),
    "varied walk": varied_case(155, random_walk),
    **{f"varied travelling {k}": varied_case(k, travelling) for k in (156, 157)},
    **{f"varied lifted {k}": varied_case(k, lifted) for k in (158, 159)},
    **{
        f"crowded {n}, {m}": crowded_case(160 + n + m, n, m)
        for n, m in ((1, 1), (1, 3), (2, 2), (3, 7), (5, 5), (6, 40), (9, 12))
    },
    "crowded walk": crowded_case(220, 3, 4, kernel=limpet.RandomWalk(step_size=0.2)),
    "crowded, varied 3, 3": crowded_case(221, 3, 3, varied=True),
    "crowded, varied 4, 11": crowded_case(222, 4, 11, varied=True),
    # few constraints with large gradients, which are not carried from update to update
    "lifted, dense 3": dense_case(88, 3, lifted),
    "surface, dense 3": dense_case(147, 3, surface),
}


def count_of_tests(problem, kernel):
    """How many p-values a case has: see `exact.p_values`."""
    share = problem.share_off(kernel)
    off = 2 * problem.n - 1 + 1 if share > 0 else 0  # uniformity, and a ratio
    on = 2 * (problem.n - problem.m) - 1 + 2 if share < 1 else 0
    return off + on + 2 * (0 < share < 1) + exact.PAIRS


def test_the_level_counts_every_test():
    assert sum(count_of_tests(*case) for case in CASES.values()) + 2 * len(RATE_EPS) + 1 == TESTS
    assert f"{TESTS:,}\np-values" in __doc__
    assert f"{LEVEL:.1e}".replace("e-0", "e-") in __doc__


def test_the_cases_are_of_every_kind():
    problems = [exact.random_problem(k) for k in range(34)]
    for kind in (
        lambda p: p.free > 0,
        lambda p: p.free == 0,
        lambda p: p.half,
        lambda p: np.isfinite(p.span).any(),
        lambda p: np.isfinite(p.span).all(),
        lambda p: not p.has_walls,
        lambda p: p.m > 1 and np.ndim(p.eps) == 0,
        lambda p: p.m > 1 and np.ndim(p.eps) == 1,
    ):
        assert sum(map(kind, problems)) >= 3
    assert {p.m for p in problems} == {1, 2, 3, 4, 5}
    assert {min(p.n for p in problems), max(p.n for p in problems)} == {2, 12}


# `make test` has three of each kind, and those that are alone of theirs; `make test-slow` the
# others, and those that take half a minute each and have a smaller one of their kind.
DEAR = {"travelling large", "lifted large", "lifted, dense 33", "lifted, dense 60", "crowded 6, 40"}
FIRST = 3


def marks(case):
    kind = case.rstrip("0123456789")
    alike = [each for each in CASES if each.rstrip("0123456789") == kind]
    return [pytest.mark.slow] * (case in DEAR or case in alike[FIRST:])


@pytest.mark.parametrize("case", [pytest.param(case, marks=marks(case)) for case in CASES])
def test_the_exact_law_is_kept(case):
    problem, kernel = CASES[case]
    seed = list(CASES).index(case)
    chains = exact.WIDTH * (256 // problem.n) if problem.n < DENSE else exact.WIDTH // 2
    steps = STEPS if problem.n < DENSE else STEPS_OF_DENSE
    path = exact.exact_path(problem, kernel, chains, steps, seed)

    for move in kernel.moves:
        accepted = path.outcome[path.move == move] == Outcome.ACCEPTED
        assert accepted.mean() >= LEAST_ACCEPTED, move
    assert np.mean(np.any(path.x[0] != path.x[-1], axis=-1)) >= LEAST_MOVED

    p_values = exact.p_values(problem, kernel, path)
    assert len(p_values) == count_of_tests(problem, kernel)
    small = {name: p for name, p in p_values.items() if not p > LEVEL}
    assert not small


def gaps(target, start, observable):
    """What is missing of averages, in units of eps^2: for each eps, one number a chain."""
    kernel = limpet.SAS(off_probability=0.5, on_probability=0.5)
    found = []
    for k, eps in enumerate(RATE_EPS):
        near = limpet.Target(target.q, eps, log_density=target.log_density)
        draws = limpet.sample(near, start, draws=1_000, chains=256, kernel=kernel, seed=k)
        found.append(observable(draws.posterior["x"].values).mean(axis=1) / eps**2)
    return np.array(found)


def test_averages_near_two_spheres_approach_the_surface_at_rate_eps_squared():
    def missing(x):
        # E[x1^2] = 3/4 on the surface. The law is invariant under turns about the circle's axis,
        # so that the mean of x1^2 over all turns has the same expectation, and less noise.
        across = (x[..., 1] - x[..., 2] + 1) / np.sqrt(2)
        return 3 / 4 - (x[..., 0] ** 2 + across**2) / 2

    gap = gaps(limpet.Target(two_spheres, 1.0), [1.0, 0.0, 0.0], missing)
    assert np.all(scipy.stats.ttest_1samp(gap, 1 / 8, axis=1).pvalue > LEVEL)

    mean = gap.mean(axis=1)
    error = gap.std(axis=1, ddof=1) / np.sqrt(gap.shape[1])
    log_eps = np.log(RATE_EPS) - np.log(RATE_EPS).mean()
    weights = log_eps / np.sum(log_eps**2)
    slope = weights @ np.log(mean * RATE_EPS**2)
    assert slope == pytest.approx(2, abs=0.3)
    assert scipy.stats.norm.sf(abs(slope - 2) / np.linalg.norm(weights * error / mean)) > LEVEL / 2


def test_averages_near_a_bent_sphere_approach_the_surface_at_rate_eps_squared():
    size = 5
    problem = exact.bent_problem(np.random.default_rng(0), (size,), free=1, eps=1.0)
    truth = [
        exact.block_integral(size, eps, lambda a: a) / exact.block_integral(size, eps) / eps**2
        for eps in RATE_EPS
    ]
    limit = size / 2 - 1
    assert np.all(np.abs(np.array(truth) - limit) < RATE_EPS**2 * 3)

    def excess(x):
        return np.sum(problem.base(x)[..., :size] ** 2, axis=-1) - 1

    start = problem.draw(np.random.default_rng(1), 256, on=True)
    gap = gaps(problem.target, start, excess)
    for values, expected in zip(gap, truth, strict=True):
        assert scipy.stats.ttest_1samp(values, expected).pvalue > LEVEL
