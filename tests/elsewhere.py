"""A run that several processes can make, and what tells that two runs are the same."""

import jax.numpy as jnp

import limpet

OPTIONS = {"draws": 400, "chains": 130, "thin": 3, "warmup": 200, "seed": 5, "progress": False}


def make_target():
    """A circle with a log density; its functions are of no module, so they travel by value."""
    radius = 1.5
    return limpet.Target(
        lambda x: jnp.array([x["a b"] @ x["a b"] - radius]),
        0.05,
        log_density=lambda x: -(x["a b"][0] ** 2),
    )


START = {"a b": [1.0, 0.5]}


def assert_same(draws, others):
    """Everything that there is of two runs, but the time they took."""
    for group in ("posterior", "sample_stats", "moves"):
        assert draws[group].to_dataset().identical(others[group].to_dataset().load())
    assert draws.attrs["counts"] == others.attrs["counts"]
    assert draws.attrs["acceptance"] == others.attrs["acceptance"]
