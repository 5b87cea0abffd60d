"""What needs more memory than there is, is refused in words before it takes it."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet.engine import Example, memory, xla
from limpet.sparse import colours, dependence

GB = 10**9


def test_what_the_system_says(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "SYSTEM", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    assert memory.spare_bytes() == math.inf
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    4 kB\nHugePages: 0\n")
    assert memory.spare_bytes() == 4096
    (tmp_path / "memory.max").write_text("3000\n")
    assert memory.spare_bytes() == 4096  # of which it is not known how much is used
    (tmp_path / "memory.current").write_text("2000\n")
    (tmp_path / "memory.stat").write_text("anon 7\ninactive_file 500\n")
    assert memory.spare_bytes() == 1500
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.spare_bytes() == 4096


def mixed(x):
    """Half as many constraints as unknowns, each on all of them."""
    return x[: len(x) // 2] ** 2 - 1 + jnp.sum(x**2)


def test_normals_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(limpet.target_checks, "spare_bytes", lambda: 0.01 * GB)
    message = (
        r"^q has 500 constraints on 1,000 unknowns, .* take 24\.0 MB of memory at least, and this"
        r" machine has 10\.0 MB to spare"
    )
    with pytest.raises(limpet.InputError, match=message):
        limpet.sample(limpet.Target(mixed, eps=0.1), np.ones(1000), progress=False)


def test_what_depends_on_too_much_is_not_followed(monkeypatch):
    monkeypatch.setattr(dependence, "MOST_ENTRIES", 100 * 50)
    with pytest.raises(dependence.TooManyError):
        dependence.dependence(mixed, jnp.ones(102))
    assert colours.find_colouring(mixed, 102) is None
    assert dependence.dependence(mixed, jnp.ones(100)).nnz == 100 * 50


def test_draws_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr("limpet.draws.memory.spare_bytes", lambda: 1000.0)
    target = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.1)
    with pytest.raises(limpet.InputError, match=r"^draws=130 of 9 chains with 3 numbers each do"):
        limpet.sample(target, np.eye(3)[0], draws=130, chains=9, progress=False)


def test_steps_by_xla_that_do_not_fit_are_refused(monkeypatch):
    def step(constants, carry, inputs):
        return carry + inputs, jnp.outer(carry, carry)

    example = Example(jnp.zeros(()), jnp.zeros(100), jnp.zeros(100))
    xla.scan(step, *example, 3, 4)
    monkeypatch.setattr(xla, "spare_bytes", lambda: 3 * 4 * 100 * 100 * 8.0 - 1)
    with pytest.raises(MemoryError, match=r"^A step of this model by XLA needs \d\.\d MB"):
        xla.scan(step, *example, 3, 4)


def test_xla_without_memory_is_told_in_words():
    def without(*_):
        raise xla.jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes")

    with pytest.raises(MemoryError, match=r"^A step of this model needs more memory"):
        xla._run(without)
    with pytest.raises(xla.jax.errors.JaxRuntimeError):
        xla._run(lambda: (_ for _ in ()).throw(xla.jax.errors.JaxRuntimeError("INTERNAL")))
