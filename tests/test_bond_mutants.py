"""Every factor of the ratios of Form and Break counts: without it, or upside down, it is caught."""

import bond_identities as identities
import mutants
import numpy as np
import pytest

import limpet
from limpet.kernels import bonds

PAIRS = 12
BONDS = "kernels.bonds"
FULL = "full"  # soft measure, and three that hold at one time are all that may
# by name: what is changed, and the measure with which it shows
MUTANTS = {
    "log density dropped": (
        "    change += there.log_density - here.log_density\n",
        "",
        None,
    ),
    "log density upside down": (
        "change += there.log_density - here.log_density",
        "change -= there.log_density - here.log_density",
        "soft",
    ),
    "slides not weighed": (
        "    change += (jnp.sum(slide**2) - jnp.sum(back**2)) / (2 * size**2)\n",
        "",
        None,
    ),
    "slide back not weighed": (
        "(jnp.sum(slide**2) - jnp.sum(back**2))",
        "jnp.sum(slide**2)",
        "soft",
    ),
    "slides weighed by another size": ("(2 * size**2)", "(2 * kernel.spread**2)", None),
    "gradients not weighed": (
        "change -= steepness if measure is None",
        "change -= 0.0 if measure is None",
        None,
    ),
    "gradients not weighed on surfaces": (
        "else measure * steepness",
        "else 0.0 * steepness",
        "soft",
    ),
    "gradients weighed with area": ("else measure * steepness", "else steepness", "hausdorff"),
    "slope dropped with area": (
        "gain += (1 - measure) * _log_slope(",
        "gain += 0.0 * _log_slope(",
        "hausdorff",
    ),
    "slope at the wrong end": (
        "jnp.where(forms, *steep)",
        "jnp.where(forms, *steep[::-1])",
        "hausdorff",
    ),
    "eps dropped from the slope": (
        "        gain += (1 - measure) * jnp.sum(chosen * jnp.log(target.widths))\n",
        "",
        "hausdorff",
    ),
    "tries not weighed": (
        "change = _log_try(target, reach, there, chosen) - _log_try(target, reach, here, chosen)",
        "change = jnp.zeros(())",
        None,
    ),
    "none tried not weighed": (
        "every = jnp.maximum(jnp.sum(weights), _fewest(target))",
        "every = jnp.sum(weights)",
        None,
    ),
    "kappa dropped": ("chosen * (jnp.log(target.stickiness) - ", "chosen * (-", None),
    "reach dropped": (" - jnp.log(_lengths(target, reach))))", "))", None),
    "two sides as one": ("jnp.where(target.walled, 1.0, 2.0) * reach", "reach", None),
    "Break as Form": ("change + jnp.where(forms, gain, -gain)", "change + gain", "soft"),
    "level of what holds not kept": (
        "jnp.where(its_room > 0, 0.0, begin.values)",
        "jnp.where(its_room > 0, 0.0, 0.9 * begin.values)",
        None,
    ),
    "room for any number": (
        "room = (holds > 0) | target.has_room(jnp.sum(holds) + 1)",
        "room = jnp.ones(holds.shape, bool)",
        FULL,
    ),
}


def sampler(measure):
    """The sampler that is put to the test."""
    return limpet.StrataSampler("soft" if measure == FULL else measure, **identities.KERNEL)


def case_of(measure):
    """Where: two-sided constraints among the soft ones; or where three may hold at one time."""
    return {None: "two-sided", FULL: "three at once"}.get(measure, "all")


@pytest.mark.slow  # each is compiled anew
@pytest.mark.parametrize("name", MUTANTS)
def test_caught(name):
    old, new, measure = MUTANTS[name]
    slide = mutants.build(mutants.Mutant(BONDS, ((old, new),)))["slide_to_level"]
    there = case_of(measure), PAIRS, 1
    right = identities.log_ratios(bonds.slide_to_level, sampler(measure), *there)
    wrong = identities.log_ratios(slide, sampler(measure), *there)
    known = np.isfinite(right)
    assert known.sum() > PAIRS / 2
    assert not np.allclose(wrong[known], right[known], rtol=0, atol=1e-6)
