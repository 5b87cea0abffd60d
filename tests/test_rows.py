"""Programs that run once, for many points: by lanes, or by XLA if these refuse."""

import signal
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet import lanes
from limpet.engine import of_rows, rows

pytestmark = pytest.mark.optimized  # so that small programs alone are compiled quickly

TURNS = 3_000  # of a loop: enough operations for a large program


def few(factor, x):
    return {"sum": factor * jnp.sum(x), "x": x}


def many(factor, x):
    """The same, by a detour."""
    x = jax.lax.fori_loop(0, TURNS, lambda _, y: y + jnp.sin(y) - jnp.sin(y), x)
    return few(factor, x)


def refused(factor, x):
    """The same, with an operation that lanes refuse."""
    return many(factor, x + 0 * jnp.fft.fft(x).real)


@pytest.mark.parametrize("function", [few, many, refused])
@pytest.mark.parametrize("apart", [False, True])
@settings(max_examples=5)
@given(count=st.integers(1, 130))
def test_of_any_number_of_rows(function, apart, count):
    x = np.random.default_rng(count).normal(size=(count, 5))
    found = of_rows(function, np.float64(3.0), x, apart=apart)
    np.testing.assert_allclose(found["x"], x, rtol=1e-9)
    np.testing.assert_allclose(found["sum"], 3 * x.sum(axis=1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("function", "quick"), [(few, True), (many, False), (refused, None)])
def test_small_programs_are_compiled_quickly_and_large_ones_well(function, quick, monkeypatch):
    made = []

    def compiled(text, *, quick, unroll=True, compile=rows.compiled):
        made.append(quick)
        return compile(text, quick=quick, unroll=unroll)

    monkeypatch.setattr(rows, "compiled", compiled)
    monkeypatch.setenv("LIMPET_CACHE", "")
    rows._compile.cache_clear()
    of_rows(function, np.float64(3.0), np.ones((3, 6)), apart=False)
    assert made == ([] if quick is None else [quick])


def test_which_programs_are_large():
    x = jax.ShapeDtypeStruct((5,), float)
    for function, large in ((few, False), (many, True)):
        step = lambda constants, carry, x, f=function: (carry, f(constants, x))  # noqa: E731
        assert lanes.is_large(step, 1.0, (), x) == large


def test_ctrl_c_is_heard_while_a_large_program_is_compiled(monkeypatch):
    over = threading.Event()

    def compile_for_ever(text, *, quick, unroll=True):
        signal.raise_signal(signal.SIGINT)
        over.wait()
        raise RuntimeError

    monkeypatch.setattr(lanes.machine, "compiled", compile_for_ever)
    monkeypatch.setenv("LIMPET_CACHE", "")
    rows._compile.cache_clear()
    with pytest.raises(KeyboardInterrupt):
        of_rows(many, np.float64(3.0), np.ones((3, 7)), apart=False)
    over.set()
