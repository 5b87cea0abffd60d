"""How the target of a stored run is recognised: a store holds no code."""

from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np

from limpet.errors import LimpetWarning, StoreError, warn
from limpet.strata import Strata

PROBES = 4  # starts at which a target must be what it was, to be resumed
MOST_VALUES = 2_000  # of one kind that are kept, evenly chosen: many more make a long zarr.json


def describe(target, starts) -> dict:
    """What a target is: digests of its programs, and its values at a few points."""
    points = jnp.asarray(starts[:PROBES])
    q, normals = jax.vmap(target.plain().values_and_normals)(points)
    values = {"q": q, "normals of q": jax.tree.leaves(normals)[0]}
    for name, function in target.functions.items():
        if name != "q":
            values[name] = jax.vmap(lambda x, f=function: f(x, *target.more))(points)
    for k, (move, normals) in enumerate(target.symmetries):
        z = jnp.cos(jnp.arange(1.0, normals + 1))  # any numbers will do
        values[f"symmetry {k}"] = jax.vmap(lambda x, f=move, z=z: f(x, z, *target.more))(points)
    if isinstance(target, Strata):
        values |= target.numbers
    return {
        "eps": np.asarray(target.scale).tolist(),
        "values": {name: _some(np.nan_to_num(value)) for name, value in values.items()},
        "programs": target.fingerprint(points[0]),
    }


def _some(values):
    flat = np.ravel(values).astype(float)
    return flat[:: -(-len(flat) // MOST_VALUES) or 1].tolist()


def check_same(store, about, target: dict):
    """Refuse another target than the one that a store is of."""
    stored = about.target
    different = [name for name in ("eps",) if stored[name] != target[name]]
    if stored["programs"].get("data") != target["programs"].get("data"):
        different.append("data")
    names = sorted(stored["values"].keys() | target["values"].keys())
    for name in names:
        was, now = stored["values"].get(name, []), target["values"].get(name, [])
        if len(was) != len(now) or not np.allclose(was, now, rtol=1e-6, atol=1e-6):
            different.append(name)
    if different:
        raise StoreError(
            f"store={str(store)!r} is of another target: {', '.join(different)} differ (eps was"
            f" {stored['eps']}, is {target['eps']}). Give the target that the run began with, or"
            " begin another run in another store."
        )
    versions = {"limpet": version("limpet"), "jax": jax.__version__}
    older = {"limpet": about.limpet_version, "jax": about.jax_version}
    if older != versions:
        was, now = (", ".join(f"{n} {v}" for n, v in each.items()) for each in (older, versions))
        warn(
            f"store={str(store)!r} was begun with {was}; this is {now}: draws from here on have the"
            " right law, but may not be bit for bit those of a run without interruption.",
            LimpetWarning,
        )
    elif stored["programs"] != target["programs"]:
        every = sorted(stored["programs"].keys() | target["programs"].keys())
        names = [n for n in every if stored["programs"].get(n) != target["programs"].get(n)]
        warn(
            f"{', '.join(names)} of the target are written differently from those that"
            f" store={str(store)!r} began with, though they agree at its starts: make sure that"
            " they are the same.",
            LimpetWarning,
        )
