"""The engine: programs by lanes or by XLA, and calls that Ctrl-C can leave."""

import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limpet.engine import Example, program, xla
from limpet.engine.interrupts import interruptible, not_done

pytestmark = pytest.mark.optimized


def add(constants, carry, inputs):
    """A step: a running sum, and its square."""
    total = carry + constants * inputs
    return total, total**2


def unsupported(constants, carry, inputs):
    """The same, with an operation that lanes refuse."""
    return add(constants, carry + 0 * jnp.sum(jnp.fft.fft(carry)).real, inputs)


EXAMPLE = Example(jnp.zeros(()), jnp.zeros(2), jnp.zeros(2))
CARRIES, INPUTS = np.arange(6.0).reshape(3, 2), np.ones((3, 8, 2))


@pytest.mark.parametrize("step", [add, unsupported])
def test_a_program_is_the_step_for_many_chains_and_turns(step):
    reasons = []
    run = program(step, EXAMPLE, width=3, block=4, on_refusal=reasons.append)
    carries, outputs = run(np.asarray(2.0), CARRIES, INPUTS)
    np.testing.assert_array_equal(carries, CARRIES + 16)
    totals = CARRIES[:, None] + 2 * np.arange(1, 9)[:, None]
    np.testing.assert_array_equal(outputs, totals**2)
    assert len(reasons) == (step is unsupported)


def factorised(constants, carry, inputs):
    """The same, with a matrix, whose batches are made by one thread at a time."""
    one = jnp.linalg.cholesky(jnp.eye(2) + 0 * carry[0])[0, 0]
    return add(constants, one * carry, inputs)


@pytest.mark.parametrize("step", [add, factorised])
@pytest.mark.parametrize("block", [1, 8])
def test_xla_does_the_same_in_blocks(step, block):
    run = xla.scan(step, *EXAMPLE, 3, block)
    carries, outputs = run(np.asarray(2.0), CARRIES, INPUTS)
    np.testing.assert_array_equal(carries, CARRIES + 16)
    assert outputs.shape == (3, 8, 2)


def test_batches_of_matrices_in_several_threads_do_not_wait_for_each_other():
    def smallest(constants, carry, inputs):
        return add(constants, carry + 0 * jnp.linalg.eigvalsh(jnp.outer(carry, carry))[0], inputs)

    run = xla.scan(smallest, *EXAMPLE, 64, 4)
    carries, inputs = np.resize(CARRIES, (64, 2)), np.ones((64, 40, 2))
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(run, np.asarray(2.0), carries, inputs) for _ in range(40)]
    for call in calls:
        np.testing.assert_allclose(call.result()[0], carries + 80)


def test_matrices_are_known_wherever_they_are():
    for inside in (lambda a: a, jax.jit, jax.vmap):
        traced = jax.make_jaxpr(inside(jnp.linalg.cholesky))(jnp.ones((2, 2, 2)))
        assert xla.uses(xla.LAPACK, traced)
    assert not xla.uses(xla.LAPACK, jax.make_jaxpr(jnp.sin)(1.0))


def test_an_interruptible_call_returns_and_raises_as_it_would():
    assert interruptible(divmod)(7, 2) == (3, 1)
    assert interruptible(sorted)([1, 2], reverse=True) == [2, 1]
    with pytest.raises(ZeroDivisionError):
        interruptible(divmod)(1, 0)


def test_a_call_is_left_when_a_signal_comes():
    over = threading.Event()

    def wait():
        signal.raise_signal(signal.SIGINT)  # heard by the main thread, wherever it is raised
        over.wait()

    with pytest.raises(KeyboardInterrupt):
        interruptible(wait)()
    over.set()


def test_in_other_threads_calls_are_made_right_there():
    threads = []
    call = interruptible(lambda: threads.append(threading.current_thread()))
    own = threading.Thread(target=call)
    own.start()
    own.join()
    assert threads == [own]


def test_what_is_not_done():
    done, open_ended = Future(), Future()
    done.set_result(1)
    assert not_done([done], 0) == set()
    began = time.monotonic()
    assert not_done([done, open_ended], 0.01) == {open_ended}
    assert time.monotonic() - began >= 0.01
