"""Every deliberate breakage is caught, each by name: proof that the other tests can fail."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import identities
import mutants
import numpy as np
import pytest
from models import CASES

import limpet
from limpet.kernels import State

PAIRS = 1_000
STEPS = {
    "sigma_hrd": 0.3,
    "sigma_prp": 0.13,
    "sigma_tan": 0.11,
    "sigma_on": 0.07,
    "sigma_sft": 0.06,
}
LARGE_STEPS = {
    "sigma_hrd": 1.5,
    "sigma_prp": 0.5,
    "sigma_tan": 0.4,
    "sigma_on": 0.4,
    "sigma_sft": 0.2,
}


class Trial(NamedTuple):
    """Where a sampler is put to the test, with which steps."""

    case: str
    steps: dict


TRIALS = [
    Trial("ellipsoid-sphere", STEPS),  # the gradients vary, and are not orthogonal
    Trial("torus", LARGE_STEPS),  # ways back are lost in every way there is
]


@functools.cache
def begin(trial: int):
    """States on S, and off S, from the sampler as it should be."""
    case, steps = TRIALS[trial]
    target, start, _ = CASES[case]
    kernel = limpet.SAS(**steps, newton_cap=5)
    points = limpet.find_start(target, start, PAIRS, seed=3)
    on = identities.on_states(kernel, target, points)
    off = identities.off_states(kernel, target, points, seed=4)
    return {"hard": on, "off": on, "on": off, "soft": off, "slide": off}


def symptoms(sampler, own_state=State) -> Iterator[str]:
    """Which identities a sampler violates, one after the other.

    Each trial compiles the sampler anew, which takes far longer than to run it: whoever is content
    with the first symptom does not pay for the trials after it.
    """
    for trial, (case, steps) in enumerate(TRIALS):
        kernel = sampler(**steps, off_probability=0.3, on_probability=0.6, newton_cap=5)
        for move in ("hard", "off", "on", "soft"):
            states = begin(trial)[move]
            z = np.random.default_rng(7).normal(size=states.x.shape)
            identity = getattr(identities, move)
            pairs = identity(kernel, CASES[case].target, own_state(*states), z)
            # large steps come too near to folds for finite differences
            yield from wrong(move, pairs, ratios=steps is STEPS)


def wrong(move, pairs, ratios=True) -> Iterator[str]:
    """What is wrong with these moves."""
    if pairs.irreversible:
        yield f"{move}: no way back"
    if pairs.outside:
        yield f"{move}: outside the walls"
    if ratios and not np.all(pairs.errors <= 1e-6):
        yield f"{move}: wrong ratio"
    if ratios and np.mean(pairs.accepted) < 0.5:
        yield f"{move}: seldom possible"


def travel_symptoms(name, sampler, own_state=State) -> Iterator[str]:
    """Which identities the trajectories of a sampler violate, and its slides off S."""
    for trial, (case, steps) in enumerate(TRIALS):
        target = CASES[case].target
        names = ("trajectory", "sigma_hrd") if name == "SAS" else ("steps", "step_size")
        size = dict(zip(names, (3, steps["sigma_hrd"] / 2), strict=True)) | {"newton_cap": 5}
        moves = {"hard": identities.hard}
        if name == "SAS":
            size |= {"off_probability": 0.3, "on_probability": 0.5, "slide_probability": 0.3}
            moves["slide"] = identities.slide
        kernel = sampler(**size)
        for move, identity in moves.items():
            states = begin(trial)[move]
            rows = len(states.x)
            if name == "Lifted":
                identity, rows = identities.lifted, rows + len(states.values)
                points = np.asarray(begin(trial)["slide"].x).T
                states = identities.on_states(limpet.Lifted(), target, points)
            z = np.random.default_rng(8).normal(size=(rows, states.x.shape[1]))
            pairs = identity(kernel, target, own_state(*states), z)
            yield from wrong(move, pairs, ratios=steps is STEPS)


def test_the_samplers_themselves_have_no_symptoms():
    assert list(symptoms(limpet.SAS)) == []
    for sampler in (limpet.SAS, limpet.SurfaceSampler, limpet.Lifted):
        assert list(travel_symptoms(sampler.__name__, sampler)) == []


@pytest.mark.parametrize("name", mutants.SAS_MUTANTS)
def test_caught(name):
    mutant = mutants.build(mutants.SAS_MUTANTS[name])
    assert next(symptoms(mutant["SAS"], mutant["State"]), None)


@pytest.mark.parametrize("name", mutants.TRAVEL_MUTANTS)
def test_caught_travelling(name):
    sampler, change = mutants.TRAVEL_MUTANTS[name]
    mutant = mutants.build(change)
    assert next(travel_symptoms(sampler, mutant[sampler], mutant["State"]), None)


def test_there_are_enough_mutants():
    assert len(mutants.SAS_MUTANTS) + len(mutants.TRAVEL_MUTANTS) >= 30
