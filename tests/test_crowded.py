"""As many constraints as unknowns, or more, and noise that depends on the point: exactly right.

Identities need no statistics (`identities`); invariance is in `test_invariance`.
"""

import identities
import jax
import mutants
import numpy as np
import pytest
from models import CROWDED, NOISY

import limpet
from limpet import lanes
from limpet.engine import xla
from limpet.kernels import Outcome, State, noise
from limpet.run import tile

PAIRS = 200
SPREAD = 0.2  # of the states about the start: some are far out


def begin(kernel, target, start):
    """States about a start, inside the walls."""
    points = np.array(start) + SPREAD * np.random.default_rng(1).normal(size=(PAIRS, len(start)))
    return identities.on_states(kernel, target, points)


def pairs_of(kernel, case, own_state=State, seed=2):
    target, start, _ = case
    states = begin(limpet.Lifted(), target, start)
    n, m = len(states.x), len(states.values)
    identity, size = (identities.crowded, n) if m >= n else (identities.lifted, n + m)
    z = np.random.default_rng(seed).normal(size=(size, PAIRS))
    return identity(kernel, target, own_state(*states), z)


EVERY = [*CROWDED, *NOISY]
# Trajectories of three slides have in them what one has, and every second case is of its kind.
FIRST = {("one of one", 1), (EVERY[-1], 1), *((case, 3) for case in EVERY[::2])}
FIRST -= {("forward", 3)}  # eight seconds, and its kind is there without it


@pytest.mark.parametrize(
    ("case", "steps"),
    [
        pytest.param(case, steps, marks=[pytest.mark.slow] * ((case, steps) not in FIRST))
        for case in EVERY
        for steps in (3, 1)
    ],
)
def test_ratios_are_those_of_longhand_densities(case, steps):
    case = (CROWDED | NOISY)[case]
    kernel = limpet.Lifted(steps=steps, step_size=case.sigma_hrd / 2, tolerance=1e-14)
    pairs = pairs_of(kernel, case)
    assert pairs.irreversible == pairs.outside == 0
    assert len(pairs.errors) > 0.8 * PAIRS
    assert pairs.errors.max() <= 1e-8


@pytest.mark.parametrize("case", ["unknown noise", "one of one"])
def test_ratios_of_random_walks(case):
    target, start, _ = CROWDED[case]
    kernel = limpet.RandomWalk(step_size=0.1)
    states = begin(kernel, target, start)
    z = np.random.default_rng(6).normal(size=states.x.shape)
    pairs = identities.soft(kernel, target, states, z)
    assert pairs.outside == 0
    assert pairs.errors.max() <= 1e-8


def test_every_accepted_large_step_has_a_way_back():
    pairs = pairs_of(limpet.Lifted(steps=1, step_size=1.0), CROWDED["waves"])
    assert pairs.irreversible == 0
    assert np.sum(pairs.outcome == Outcome.REVERSE) >= 5


def is_up_to_date(kernel, case, own_state):
    """Whether what is kept after a move is what there is at the new point."""
    states = own_state(*begin(limpet.Lifted(), case.target, case.start))
    z = np.random.default_rng(3).normal(size=states.x.shape)
    there, _ = identities.go(kernel, case.target, states, z, identities.STAY)
    values = np.asarray(identities.each(identities.scaled_q, case.target, there.x))
    level = identities.each(identities.log_off, case.target, there.x) + np.sum(values**2, 0) / 2
    return np.allclose(there.values, values) and np.allclose(there.log_density, level)


def symptoms(sampler, own_state=State):
    """What is wrong with a sampler, one thing after the other."""
    for case, size in (("unknown noise", 0.15), ("waves", 1.0)):
        kernel = sampler(steps=3 if size < 1 else 1, step_size=size)
        pairs = pairs_of(kernel, CROWDED[case], own_state)
        if pairs.irreversible:
            yield "no way back"
        if pairs.outside:
            yield "outside the walls"
        if size < 1 and not np.all(pairs.errors <= 1e-6):
            yield "wrong ratio"
        if size < 1 and np.mean(pairs.accepted) < 0.5:
            yield "seldom possible"
        if not is_up_to_date(kernel, CROWDED[case], own_state):
            yield "something of another point is kept"
    far = pairs_of(sampler(steps=3, step_size=0.5), CROWDED["unknown noise"], own_state)
    if far.outside:  # shorter slides do not reach the walls
        yield "outside the walls"


def test_the_sampler_itself_has_no_symptoms():
    assert list(symptoms(limpet.Lifted)) == []


@pytest.mark.parametrize("name", mutants.CROWDED_MUTANTS)
def test_caught(name):
    mutant = mutants.build(mutants.CROWDED_MUTANTS[name])
    assert next(symptoms(mutant["Lifted"], mutant["State"]), None)


@pytest.mark.parametrize(
    "case",
    ["uneven noise"]
    + [pytest.param(case, marks=pytest.mark.slow) for case in ("one of one", "curves", "forward")],
)
def test_both_engines_make_the_same_steps(case):
    target, start, size = CROWDED[case]
    kernel, width = limpet.Lifted(steps=3, step_size=size), 12
    x = np.array(start) + 0.1 * np.random.default_rng(4).normal(size=(width, len(start)))
    states, generators = tile.first_states(kernel, target, x), noise.generators(5, 0, width)
    constants, carries = (kernel, target), (states, generators)
    carry = jax.tree.map(lambda leaf: leaf[0], carries)
    sizes = {"step_size": np.full((width, 4), size), "steps": np.full((width, 4), 3.0)}
    one = {name: each[0, 0] for name, each in sizes.items()}
    by_lanes = lanes.scan(tile.step, constants, carry, one)(constants, carries, sizes)[1]
    by_xla = xla.scan(tile.step, constants, carry, one, width, 4)(constants, carries, sizes)[1]
    assert np.mean(by_lanes.code == np.asarray(by_xla.code)) == 1
    assert np.allclose(by_lanes.x, by_xla.x, rtol=1e-9, atol=1e-11)
    assert np.allclose(by_lanes.lp, by_xla.lp, rtol=1e-9, atol=1e-9)
