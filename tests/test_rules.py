"""The rules of SAS's moves, the samplers' numbers, and the random numbers of a step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import limpet
from limpet.kernels import noise
from limpet.kernels.base import Kernel
from limpet.kernels.sas_moves import RULES
from limpet.kernels.states import Move
from limpet.kernels.trajectory import FIRST_SLIDES, first_slides, is_forced, tunables_of, vary

pytestmark = pytest.mark.optimized

KERNELS = [limpet.SAS(), limpet.Lifted(), limpet.SurfaceSampler(), limpet.RandomWalk()]
CIRCLE = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.1)
START = limpet.SAS().init(CIRCLE, jnp.array([1.0, 0.0]))


OTHERS = {Move.SYMMETRY, Move.FORM, Move.BREAK, Move.FLIP}  # moves that are not SAS's own


def test_every_move_has_a_rule_and_a_size():
    assert set(RULES) == set(Move) - OTHERS
    sizes = limpet.SAS().sizes(CIRCLE)
    for rule in RULES.values():
        assert set(rule.sizes) <= sizes.keys()
        assert (rule.jump is None) == (rule.ends != "away")
        assert rule.projects or rule.jump is not None


def test_on_is_off_backwards():
    off, on = RULES[Move.OFF], RULES[Move.ON]
    assert off.log_ratio is on.log_ratio
    assert (off.inverse, on.inverse) == (False, True)
    assert (off.begins_on, off.ends_on) == (on.ends_on, on.begins_on)


@given(
    off=st.floats(0.01, 1),
    on=st.floats(0.01, 1),
    share=st.floats(0, 1),
    choice=st.floats(0, 1, exclude_max=True),
    on_surface=st.booleans(),
)
def test_one_move_is_made_whatever_the_choice(off, on, share, choice, on_surface):
    slide = share * (1 - on) if on + share * (1 - on) <= 1 else 0.0
    kernel = limpet.SAS(off_probability=off, on_probability=on, slide_probability=slide)
    state = START._replace(on=jnp.bool_(on_surface))
    (move,) = (move for move, flag in kernel._choose(state, jnp.asarray(choice)).items() if flag)
    assert RULES[move].begins_on == on_surface


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_what_a_kernel_says_of_itself(kernel):
    assert Kernel.known[type(kernel).__name__] is type(kernel)
    tuned = [name for tunable in kernel.tunables for name in tunable.names]
    assert set(tuned) <= kernel.sizes(CIRCLE).keys() <= kernel.parameters(CIRCLE).keys()
    assert {move for tunable in kernel.tunables for move in tunable.moves} >= set(kernel.moves)
    assert set(kernel.moves) <= kernel.step_sizes.keys()
    assert 0 < kernel.draw_share() <= 1
    state = kernel.init(CIRCLE, jnp.array([1.0, 0.0]))
    assert state.x.shape == (2,)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_numbers_are_data_and_the_rest_is_the_program(kernel):
    numbers, program = jax.tree.flatten(kernel)
    assert jax.tree.unflatten(program, numbers) == kernel
    other = jax.tree.unflatten(program, [object()] * len(numbers))  # JAX does such things
    assert jax.tree.structure(other) == program


def test_a_kernel_is_frozen_and_keeps_what_was_made_of_its_arguments():
    kernel = limpet.SAS(np.float32(0.5), trajectory=np.int64(3))
    assert (kernel.sigma_hrd, type(kernel.sigma_hrd)) == (0.5, float)
    assert (kernel.trajectory, type(kernel.trajectory)) == (3, int)
    with pytest.raises(AttributeError):
        kernel.sigma_hrd = 1.0


def test_trajectories():
    assert (first_slides(None), first_slides(5)) == (FIRST_SLIDES, 5)
    assert [is_forced(steps) for steps in (1, 2, None)] == [False, True, True]
    size, number = tunables_of("step_size", "steps", None, Move.HARD)
    assert (size.names, number.names, number.whole) == (("step_size",), ("steps",), True)
    assert len(tunables_of("step_size", "steps", 4, Move.HARD)) == 1
    assert vary(2.0, 0.9, forced=False) == 2.0
    assert vary(2.0, 0.5, forced=True) == 2.0
    assert vary(2.0, 0.0, forced=True) < 2.0 < vary(2.0, 0.99, forced=True)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_random_numbers_go_on_where_they_ended(n):
    generators = noise.generators(seed=3, tile_index=1, width=4)
    first = jax.tree.map(lambda a: a[0], generators)
    middle, one = noise.draw(first, n)
    _, two = noise.draw(middle, n)
    assert one.z.shape == (n,)
    assert not np.isin(one.z, two.z).any()
    assert 0 <= one.coin < 1
    again = noise.draw(first, n)[1]
    np.testing.assert_array_equal(one.z, again.z)
    assert len(np.unique(generators.position)) == 4
    assert np.all(np.asarray(generators.stride) % 2 == 1)


def test_normal_numbers_are_normal():
    z = jax.jit(lambda key: noise.draw(noise.generator_from(key), 100_000)[1].z)(jax.random.key(0))
    # five standard errors of each: false alarms below one in a million
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        spread = np.std(np.asarray(z) ** power) / np.sqrt(len(z))
        assert abs(np.mean(np.asarray(z) ** power) - moment) < 5 * spread
