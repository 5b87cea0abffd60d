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

PAIRS = 400
STEPS = {
    "sigma_hrd": 0.3,
    "sigma_prp": 0.13,
    "sigma_tan": 0.11,
    "sigma_on": 0.07,
    "sigma_sft": 0.06,
}
LEAPS = {
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
    Trial("torus", LEAPS),  # ways back are lost in every way there is
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
    return {"hard": on, "off": on, "on": off, "soft": off}


def symptoms(sampler) -> Iterator[str]:
    """Which identities a sampler violates, one after the other.

    Each trial compiles the sampler anew, which takes far longer than to run it: whoever is content
    with the first symptom does not pay for the trials after it.
    """
    own_state = sampler.move.__globals__["State"]
    for trial, (case, steps) in enumerate(TRIALS):
        kernel = sampler(**steps, off_probability=0.3, on_probability=0.6, newton_cap=5)
        for move, states in begin(trial).items():
            z = np.random.default_rng(7).normal(size=states.x.shape)
            identity = getattr(identities, move)
            pairs = identity(kernel, CASES[case].target, own_state(*states), z)
            if pairs.irreversible:
                yield f"{move}: no way back"
            if pairs.outside:
                yield f"{move}: outside the walls"
            # leaps come too near to folds for finite differences
            if steps is STEPS and not np.all(pairs.errors <= 1e-6):
                yield f"{move}: wrong ratio"


def test_the_sampler_itself_has_no_symptoms():
    assert list(symptoms(limpet.SAS)) == []


@pytest.mark.parametrize("name", mutants.SAS_MUTANTS)
def test_caught(name):
    mutant = mutants.build(mutants.SAS_MUTANTS[name])["SAS"]
    assert next(symptoms(mutant), None)
