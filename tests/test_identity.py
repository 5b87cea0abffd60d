"""What a program is, by value: the same in every process, and however JAX prints."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import limpet
from limpet.lanes.identity import fingerprint_of

DATA = np.arange(3000.0)
OTHER = DATA + (np.arange(3000) == 1500)  # in the middle, which prints leave out
KEYS = [jax.random.key(k) for k in (0, 1)]


def fingerprint(function):
    return fingerprint_of(jax.make_jaxpr(function)(jnp.ones(3)))


def ruled(slope):
    """A sine, with a slope that is said to be another."""

    @jax.custom_jvp
    def sine(x):
        return jnp.sin(x)

    sine.defjvps(lambda tangent, _, x: tangent * slope)
    return sine


PAIRS = {
    "data": [lambda x, d=d: x * jnp.asarray(d).sum() for d in (DATA, OTHER)],
    "data inside": [
        lambda x, d=d: jax.jit(lambda y: y * jnp.asarray(d)[:3])(x) for d in (DATA, OTHER + 1)
    ],
    "literals": [lambda x, c=c: x * c for c in (1.0, 1.0 + 1e-15)],
    "signs": [lambda x, c=c: x * c for c in (0.0, -0.0)],
    "parameters": [lambda x, k=k: x**k for k in (2, 3)],
    "arguments": [lambda x: x[0] - x[1], lambda x: x[1] - x[0]],
    "keys": [lambda x, k=k: x * jax.random.uniform(jax.random.key(k)) for k in (0, 1)],
    "keys made before": [lambda x, k=k: x * jax.random.uniform(KEYS[k]) for k in (0, 1)],
    "callbacks": [
        lambda x, c=c: jax.pure_callback(lambda y: y * c, x, x)
        for c in (DATA[:3], OTHER[1499:1502])
    ],
    "branches": [
        lambda x, c=c: jax.lax.cond(x[0] > 0, lambda: x, lambda: x * c) for c in (2.0, 3.0)
    ],
}


@pytest.mark.parametrize("simplified", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_others_differ(name, simplified):
    one, other = PAIRS[name]
    jax.config.update("jax_use_simplified_jaxpr_constants", simplified)
    try:
        assert fingerprint(one) == fingerprint(lambda x: one(x))
        assert fingerprint(one) != fingerprint(other)
    finally:
        jax.config.update("jax_use_simplified_jaxpr_constants", False)


def test_rules_of_derivatives_count():
    def of(sine):
        return limpet.Target(lambda x: jnp.array([sine(x).sum()]), 0.1).fingerprint(jnp.ones(3))

    assert of(ruled(1.0)) == of(ruled(1.0)) != of(ruled(2.0))


PROGRAM = """
import sys, jax, jax.numpy as jnp, limpet, numpy as np
def q(x):
    y = jax.nn.relu(x) + jax.random.normal(jax.random.key(1), (3,)) + np.arange(3000.)[1500:1503]
    y = jax.lax.fori_loop(0, 3, lambda k, z: jnp.sin(z), y)
    y = jax.pure_callback(lambda z: z * 2, y, y)
    return jnp.array([y @ x])
target = limpet.Target(q, 0.1, log_density=lambda x: jax.nn.logsumexp(x))
print(sorted(target.fingerprint(jnp.ones(3)).items()))
"""


def _in_a_process(**environment):
    command = [sys.executable, "-c", PROGRAM]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"} | environment
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def _on_a_terminal():
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command, environment = [sys.executable, "-c", PROGRAM], os.environ | {"TERM": "xterm-256color"}
    subprocess.run(command, env=environment, stdout=theirs, stderr=subprocess.DEVNULL, check=True)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode().strip()
    os.close(ours)
    return shown


def test_processes_and_terminals_agree():
    first = _in_a_process(PYTHONHASHSEED="1")
    assert "log_density" in first
    assert _in_a_process(PYTHONHASHSEED="2", FORCE_COLOR="1", JAX_COLOR="always") == first
    assert _on_a_terminal() == first
