"""Every move satisfies detailed balance, pair by pair, to 1e-8: see identities.py."""

import dataclasses
import functools

import identities
import numpy as np
import pytest
from models import CASES

import limpet
from limpet.kernels import Outcome

pytestmark = pytest.mark.optimized  # the machine code that users run

PAIRS = {"ellipsoid-sphere": 4_000, "torus": 4_000, "tilted": 4_000, "beads": 500}
WANTED = 10_000  # pairs of each move, over all cases
MOVES = {
    "hard": identities.hard,
    "off": identities.off,
    "on": identities.on,
    "soft": identities.soft,
    "slide": identities.slide,
}
SLIDES = 3  # of the trajectories below


def skewed(case, trajectory=1):
    """A sampler with no two step sizes alike, none of them eps: nothing cancels by luck."""
    return limpet.SAS(
        sigma_hrd=CASES[case].sigma_hrd,
        sigma_prp=0.13,
        sigma_tan=0.06 if case == "beads" else 0.11,
        sigma_on=0.04 if case == "beads" else 0.07,
        sigma_sft=0.06,
        off_probability=0.3,
        on_probability=0.5,
        slide_probability=0.3,
        trajectory=trajectory,
        tolerance=1e-14,  # finite differences magnify what Newton leaves
    )


@functools.cache
def states(case):
    """States on S and off S, of one number."""
    kernel, (target, start, _) = skewed(case), CASES[case]
    points = limpet.find_start(target, start, PAIRS[case], seed=1)
    return {
        True: identities.on_states(kernel, target, points),
        False: identities.off_states(kernel, target, points, seed=2),
    }


@pytest.mark.parametrize("case", CASES)
def test_acceptance_ratios_are_those_of_the_paper(case):
    kernel, target = skewed(case), CASES[case].target
    for k, (move, identity) in enumerate(MOVES.items()):
        begin = states(case)[move in ("hard", "off")]
        z = np.random.default_rng(k).normal(size=begin.x.shape)
        pairs = identity(kernel, target, begin, z)
        assert pairs.irreversible == 0, move
        assert pairs.outside == 0, move
        # pairs next to a wall or a fold have no finite difference
        assert len(pairs.errors) > 0.85 * PAIRS[case], move
        assert pairs.errors.max() <= 1e-8, move


@pytest.mark.parametrize("case", ["ellipsoid-sphere", "torus", "tilted"])
def test_trajectories_of_sas(case):
    kernel, target = skewed(case, SLIDES), CASES[case].target
    kernel = dataclasses.replace(kernel, sigma_hrd=kernel.sigma_hrd / SLIDES)
    for k, move in enumerate(("hard", "slide")):
        begin = states(case)[move == "hard"]
        z = np.random.default_rng(20 + k).normal(size=begin.x.shape)
        pairs = MOVES[move](kernel, target, begin, z)
        assert pairs.irreversible == pairs.outside == 0, move
        assert len(pairs.errors) > 0.85 * PAIRS[case], move
        assert pairs.errors.max() <= 1e-8, move


@pytest.mark.parametrize("steps", [1, SLIDES])
@pytest.mark.parametrize("case", CASES)
def test_lifted(case, steps):
    target, _, size = CASES[case]
    # finite differences suffer from folds if slides are long, from rounding if they are short
    size = size / steps if case == "beads" else size / 3
    kernel = limpet.Lifted(steps=steps, step_size=size, tolerance=1e-14)
    begin = identities.on_states(kernel, target, np.asarray(states(case)[False].x).T)
    z = np.random.default_rng(30).normal(size=(len(begin.x) + len(begin.values), begin.x.shape[1]))
    pairs = identities.lifted(kernel, target, begin, z)
    assert pairs.irreversible == pairs.outside == 0
    assert len(pairs.errors) > 0.85 * PAIRS[case]
    assert pairs.errors.max() <= 1e-8


def test_there_are_enough_pairs():
    assert 0.85 * sum(PAIRS.values()) >= WANTED


@pytest.mark.parametrize("steps", [1, SLIDES])
@pytest.mark.parametrize(
    ("measure", "log_f"), [("soft", identities.log_on), ("hausdorff", identities.log_area)]
)
def test_surface_sampler(measure, log_f, steps):
    for case in ("ellipsoid-sphere", "tilted"):
        size = CASES[case].sigma_hrd / steps
        kernel = limpet.SurfaceSampler(measure, size, steps, tolerance=1e-14)
        begin = states(case)[True]
        z = np.random.default_rng(5).normal(size=begin.x.shape)
        pairs = identities.hard(kernel, CASES[case].target, begin, z, log_f)
        assert pairs.irreversible == pairs.outside == 0
        assert pairs.errors.max() <= 1e-8


def test_random_walk():
    target = CASES["tilted"].target
    kernel = limpet.RandomWalk(step_size=0.05)
    begin = identities.on_states(kernel, target, np.asarray(states("tilted")[False].x).T)
    pairs = identities.soft(
        kernel, target, begin, np.random.default_rng(6).normal(size=begin.x.shape)
    )
    assert pairs.outside == 0
    assert pairs.errors.max() <= 1e-8


@pytest.mark.parametrize("case", ["ellipsoid-sphere", "torus"])
def test_every_accepted_large_step_has_a_way_back(case):
    """With steps as large as the surface, ways back fail often: none may slip through."""
    kernel = limpet.SAS(sigma_hrd=1.5, sigma_tan=0.4, sigma_on=0.4, sigma_prp=0.5, newton_cap=5)
    failed = 0
    for k, move in enumerate(("hard", "off")):
        begin = states(case)[True]
        z = np.random.default_rng(10 + k).normal(size=begin.x.shape)
        pairs = MOVES[move](kernel, CASES[case].target, begin, z)
        assert pairs.irreversible == pairs.outside == 0, move
        failed += np.sum(pairs.outcome == Outcome.REVERSE)
    assert failed > 30
