"""Moves by symmetries: exactly right, move by move; laws kept; broken ones refused in words.

Identities: walks by symmetries are made again longhand, with densities as in `identities` and the
Jacobian of each move along the surface. Invariance: chains that start from exact draws of bent
problems still have their law after some steps. There are 49 p-values, each at a level of
1e-5 / 49, so that all of them together raise a false alarm in at most 1e-5 of all choices of seeds.
"""

import functools
from typing import NamedTuple

import exact
import identities
import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest
import scipy.stats

import limpet
from limpet.engine import Example, program
from limpet.engine.xla import RUN_ONCE
from limpet.kernels import State
from limpet.kernels.noise import draw, generators
from limpet.kernels.states import Outcome
from limpet.kernels.surface import MEASURES
from limpet.kernels.symmetry import follow_symmetries

FALSE_ALARMS = 1e-5
TESTS = 49
COUNT = 3  # moves of a walk
CHAINS = 192  # walks that are made again longhand
REACH = 2.5  # of all of them


def even(z):
    """Uniform on (0, 1), the same for -z."""
    return jnp.exp(-(z[0] ** 2 + z[1] ** 2) / 2)


def bent(problem, change):
    """A symmetry of a problem, from what it is in base coordinates."""

    def move(x, z):
        base = change(problem.base(x), z)
        for shear in problem.shears:
            base = shear.there(base)
        return base

    move.__name__ = change.__name__
    return move


def moves_of(problem):
    """Symmetries of a problem, and two that are none."""
    first, start = problem.spheres[0], sum(problem.spheres)

    def turn(b, z):
        """A plane of the first block is chosen, and turned."""
        i = jnp.floor(even(z) * (first - 1)).astype(int)
        c, s = jnp.cos(z[2]), jnp.sin(z[2])
        k, j = jnp.arange(len(b)) == i, jnp.arange(len(b)) == i + 1
        u, v = jnp.sum(jnp.where(k, b, 0.0)), jnp.sum(jnp.where(j, b, 0.0))
        return jnp.where(k, c * u - s * v, jnp.where(j, s * u + c * v, b))

    def shift(b, z):
        """The first free coordinate moves, which changes the log density."""
        return b.at[start].add(0.7 * z[1])

    def mirror(b, z):
        return b.at[0].multiply(-1)

    def exchange(b, z):
        """Two blocks of one size and eps."""
        return jnp.concatenate([b[first : 2 * first], b[:first], b[2 * first :]])

    def lean(b, z):
        """It keeps volume and leads back, but not q."""
        return b.at[0].add(0.3 * z[0])

    def drift(b, z):
        """It keeps q and volume, but does not lead back where z[0] is large."""
        return b.at[start].add(0.2 * jnp.where(jnp.abs(z[0]) > 0.5, jnp.abs(z[0]), z[0]))

    each = (turn, shift, mirror, exchange, lean, drift)
    return {change.__name__: bent(problem, change) for change in each}


def with_symmetries(problem, *names):
    """The target of a problem, with these symmetries."""
    target, moves = problem.target, moves_of(problem)
    chosen = [(moves[name], 3) for name in names]
    found = limpet.Target(
        target.q,
        target.eps,
        log_density=target.log_density,
        inside=target.inside,
        symmetries=chosen,
    )
    found.scale = target.scale
    return found


@functools.cache
def trial():
    """A problem with all that can happen to a move, and points on its surface and off it."""
    rng = np.random.default_rng(0)
    problem = exact.bent_problem(
        rng, (3, 3), free=1, eps=(0.3, 0.3), half=True, span=(-0.7, 1.2), bends=1
    )
    names = ("turn", "shift", "lean", "drift")
    points = {on: problem.draw(rng, CHAINS, on) for on in (False, True)}
    return with_symmetries(problem, *names), points


class Walks(NamedTuple):
    """Where walks ended, and what their moves did."""

    state: State
    start: State  # what it would be if it began there
    generator: np.ndarray  # its position
    outcomes: np.ndarray
    acceptance: np.ndarray


def walks(kernel, on, follow=follow_symmetries, own_state=State):
    """Walks of COUNT moves, by the code that samplers run."""
    target, points = trial()

    def one(x, generator):
        state = own_state(*kernel.start(target, x)._replace(on=jnp.bool_(on)))
        state = state._replace(reach=jnp.asarray(REACH))
        generator, state, walk = follow(kernel, target, generator, state, COUNT)
        start = State(*kernel.start(target, state.x))
        return Walks(State(*state), start, generator.position, walk.outcomes, walk.acceptance)

    return exact.mapped(one)(points[on], generators(1, 0, CHAINS))


LAWS = {
    "off": (False, identities.log_off),
    "soft": (True, identities.log_on),
    "hausdorff": (True, identities.log_area),
}


@functools.cache
def longhand(law):
    """The same walks, from definitions alone."""
    target, points = trial()
    on, log_density = LAWS[law]

    def propose(x, generator):
        generator, noise = draw(generator, 3)
        which = (noise.choice * len(target.symmetries)).astype(int)
        moves = [symmetry.move for symmetry in target.symmetries]
        y = jax.lax.switch(which, moves, x, noise.z)
        J = jax.lax.switch(which, [jax.jacfwd(move) for move in moves], x, noise.z)
        if on:
            J = identities.tangents(target, y).T @ J @ identities.tangents(target, x)
        ratio = log_density(target, y) - log_density(target, x) + jnp.linalg.slogdet(J)[1]
        back = jax.lax.switch(which, moves, y, -noise.z)
        lost = jnp.linalg.norm(back - x) > 1e-6
        left = on & (jnp.linalg.norm(target.q(y)) > 1e-6)
        outside = ~target.contains(y)
        return generator, y, noise.coin, ratio, jnp.stack([outside, left, lost])

    propose = jax.jit(jax.vmap(propose), compiler_options=RUN_ONCE)
    x, generator = np.array(points[on]), generators(1, 0, CHAINS)
    outcomes, total = np.zeros((CHAINS, len(Outcome)), int), np.zeros(CHAINS)
    for _ in range(COUNT):
        generator, y, coin, ratio, obstacles = jax.tree.map(np.asarray, propose(x, generator))
        acceptance = np.where(obstacles.any(axis=1), 0.0, np.exp(np.minimum(ratio, 0.0)))
        accepted = coin < acceptance
        kinds = [Outcome.WALL, Outcome.FORWARD, Outcome.REVERSE]
        outcome = np.where(accepted, Outcome.ACCEPTED, Outcome.METROPOLIS)
        outcome = np.select(list(obstacles.T), kinds, outcome)
        outcomes[np.arange(CHAINS), outcome] += 1
        total, x = total + acceptance, np.where(accepted[:, None], y, x)
        generator = limpet.kernels.noise.Generator(*generator)
    return x, generator.position, outcomes, total


def symptoms(law, samplers=None, follow=follow_symmetries, own_state=State):
    """What is wrong with walks by symmetries, one after the other."""
    samplers = samplers or vars(limpet.kernels)
    sampler, on = ("SurfaceSampler", True) if law in MEASURES else ("SAS", False)
    kernel = samplers[sampler](**({"measure": law} if on else {}))
    x, position, outcomes, total = longhand(law)
    found = jax.tree.map(np.asarray, walks(kernel, on, follow, own_state))
    if not np.allclose(found.acceptance, total, atol=1e-8):
        yield "wrong ratio"
    if not np.array_equal(found.outcomes, outcomes):
        yield "wrong outcomes"
    if not np.allclose(found.state.x, x, atol=1e-9):
        yield "wrong end"
    if not np.array_equal(found.generator, position):
        yield "wrong random numbers"
    start = found.start._replace(on=np.full(CHAINS, on), reach=np.full(CHAINS, REACH))
    same = jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-9), start, found.state)
    if not all(jax.tree.leaves(same)):
        yield "a state of another point"


@pytest.mark.parametrize("law", LAWS)
def test_walks_are_right_move_by_move(law):
    assert list(symptoms(law)) == []
    outcomes = longhand(law)[2].sum(axis=0)
    expected = {Outcome.ACCEPTED, Outcome.REVERSE, Outcome.WALL, Outcome.METROPOLIS}
    expected |= {Outcome.FORWARD} if law in MEASURES else set()
    assert set(np.flatnonzero(outcomes >= 5)) == expected  # all that can happen does


@pytest.mark.parametrize("name", mutants.SYMMETRY_MUTANTS)
def test_caught(name):
    law, change = mutants.SYMMETRY_MUTANTS[name]
    mutant = mutants.build(change)
    assert next(symptoms(law, mutant, mutant["follow_symmetries"], mutant["State"]), None)


def exact_walk(problem, kernel, target, chains, steps, seed):
    """Chains that start from exact draws: where they are after some steps, on S or not."""
    rng = np.random.default_rng(seed)
    on = rng.random(chains) >= problem.share_off(kernel)
    draws = [problem.draw(rng, chains, place) for place in (False, True)]
    x = np.where(on[:, None], draws[True], draws[False])

    def step(constants, carry, nothing):
        kernel, target = constants
        state, generator = carry
        generator, state, _, tally = kernel.make_step(target, {}, generator, state)
        return (state, generator), tally

    states = exact.mapped(functools.partial(kernel.start, target))(x)
    carry = states._replace(on=on), generators(seed, 0, chains)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), carry)
    example = Example((kernel, target), one, jax.ShapeDtypeStruct((), float))
    go = program(step, example, width=chains, block=steps)
    (state, _), tally = go((kernel, target), carry, np.zeros((chains, steps)))
    return np.asarray(state.x), np.asarray(state.on), tally


def invariance_cases():
    """Samplers and symmetries of problems of every kind: bent, with walls, eps of several sizes."""
    rng = np.random.default_rng(5)
    walls = exact.bent_problem(rng, (3,), free=1, eps=0.2, half=True, span=(-0.7, 1.2))
    pair = exact.bent_problem(rng, (2, 2), free=1, eps=(0.2, 0.2))
    uneven = exact.bent_problem(rng, (3, 2), free=2, eps=(0.1, 0.4))
    open_walls = exact.bent_problem(rng, (2,), free=1, eps=0.3, span=(-0.7, np.inf))
    sas = limpet.SAS(sigma_hrd=0.3, off_probability=0.5, on_probability=0.5, trajectory=4)
    return {
        "lifted, walls": (walls, limpet.Lifted(steps=4, step_size=0.1), ("turn", "shift")),
        "lifted, exchange": (pair, limpet.Lifted(steps=3, step_size=0.1), ("exchange", "shift")),
        "sas": (uneven, sas, ("turn", "mirror", "shift")),
        "surface": (walls, limpet.SurfaceSampler(step_size=0.1, steps=4), ("turn", "shift")),
        "random walk": (open_walls, limpet.RandomWalk(), ("turn", "shift", "lean", "drift")),
    }


CASES = invariance_cases()


def p_values(case):
    """Tests of the law after some steps."""
    problem, kernel, names = CASES[case]
    target = with_symmetries(problem, *names)
    chains, steps = exact.WIDTH * (128 // problem.n), 12
    x, on, tally = exact_walk(problem, kernel, target, chains, steps, list(CASES).index(case))
    made = tally.outcomes.sum(axis=(0, 1))
    assert made[Outcome.ACCEPTED] > 0.2 * made.sum()
    share = problem.share_off(kernel)
    found = {}
    if 0 < share < 1:
        found["share"] = scipy.stats.binomtest(int(np.sum(~on)), len(on), share).pvalue
    if share > 0:
        found |= exact.uniformity("off", problem.uniforms(x[~on], on=False))
    if share < 1:
        found |= exact.uniformity("on", problem.uniforms(x[on], on=True))
    return found


def test_the_exact_law_is_kept():
    every = {(case, name): p for case in CASES for name, p in p_values(case).items()}
    assert len(every) == TESTS
    assert f"There are {TESTS} p-values" in __doc__
    assert not {name: p for name, p in every.items() if not p > FALSE_ALARMS / TESTS}
