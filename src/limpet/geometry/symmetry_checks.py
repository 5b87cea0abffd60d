"""What is refused of symmetries: that they change q or volume, or have no way back.

Samplers look at q and at the way back in every move (`limpet.kernels.symmetry`), so that a symmetry
that lacks them somewhere is refused there, at worst. Nobody looks at volume again.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from limpet.engine.xla import RUN_ONCE
from limpet.errors import InputError
from limpet.geometry.linalg import lengths
from limpet.geometry.start_checks import numbers
from limpet.shapes import Randoms, Vector
from limpet.symmetries import Symmetry
from limpet.target import Target
from limpet.target_checks import trace

PROBES = 8  # points, half of them starts, and half near one: a choice
NEAR = 0.3  # of the size of a start: how far from it the latter are, off the surface of any target
MOST_UNKNOWNS = 1_000  # for which volume is checked: a determinant of so many takes 0.1 s
# Of what they are relative to: far more than rounding, far less than any mistake.
KEPT, VOLUME = 1e-9, 1e-6
NO_DERIVATIVE = "It must be differentiable, for limpet to check that it keeps volume."


class Probe(NamedTuple):
    """What a symmetry does at a point."""

    before: Float[Array, ""]  # |q / eps|
    after: Float[Array, ""]
    size: Float[Array, ""]  # what rounding of it is relative to
    y: Vector
    back: Vector
    jacobian: Any  # None of many unknowns


def check_symmetries(target: Target, starts: Any) -> None:
    """Refuse what is no symmetry at these starts, or near them; `target` is frozen."""
    if not target.symmetries:
        return
    rng, starts = np.random.default_rng(0), np.asarray(starts)
    points = starts[np.arange(PROBES) % len(starts)]
    spread = NEAR * np.sqrt(np.mean(points**2, axis=1, keepdims=True))
    points[::2] += (np.where(spread > 0, spread, NEAR) * rng.normal(size=points.shape))[::2]
    for k, symmetry in enumerate(target.symmetries):
        name = f"symmetries[{k}] ({symmetry.name})"
        normals = rng.normal(size=(PROBES, symmetry.normals))
        if len(starts[0]) <= MOST_UNKNOWNS:
            args = jnp.asarray(points[0]), jnp.asarray(normals[0]), *target.more
            trace(
                f"the derivative of {name}",
                _derivative(target, symmetry),
                *args,
                remedy=NO_DERIVATIVE,
            )
        found = [
            _probe(target, k, *map(jnp.asarray, at)) for at in zip(points, normals, strict=True)
        ]
        found = [jax.tree.map(np.asarray, probe) for probe in found]
        size = np.nanmax([probe.size for probe in found])
        for x, z, probe in zip(points, normals, found, strict=True):
            if np.isfinite(probe.before):
                _check(name, f"at x = {numbers(x)} with z = {numbers(z)}", x, probe, size)


def _derivative(target: Target, symmetry: Symmetry) -> Any:
    return (jax.jacrev if target.derivatives == "reverse" else jax.jacfwd)(symmetry.move)


def _probe_point(target: Target, k: int, x: Vector, z: Randoms) -> Probe:
    symmetry = target.symmetries[k]
    values, normals = target.values_and_normals(x)
    before = jnp.linalg.norm(values)
    size = jnp.linalg.norm(lengths(normals)) * jnp.linalg.norm(x) + before
    y = symmetry.move(x, z, *target.more)
    back = symmetry.move(y, -z, *target.more)
    few = len(x) <= MOST_UNKNOWNS
    jacobian = _derivative(target, symmetry)(x, z, *target.more) if few else None
    return Probe(before, jnp.linalg.norm(target.values(y)), size, y, back, jacobian)


_probe = jax.jit(_probe_point, static_argnums=1, compiler_options=RUN_ONCE)


def _check(name: str, where: str, x: Any, probe: Probe, size: Any) -> None:
    """Refuse a symmetry for what it does at one point."""
    if not np.isfinite(probe.y).all():
        raise InputError(f"{name} returned {numbers(probe.y)} {where}: expected finite numbers.")
    change = abs(probe.after - probe.before)
    if not change <= KEPT * size:
        raise InputError(
            f"{name} does not keep q: |q / eps| was {probe.before:.6g} {where}, and is"
            f" {probe.after:.6g} at y = {numbers(probe.y)}, changed by {change:.3g}. Expected it to"
            " stay as it is, at points off the surface, too."
        )
    miss, scale = np.linalg.norm(probe.back - x), np.linalg.norm(x) + np.linalg.norm(probe.y)
    if not miss <= KEPT * scale:
        raise InputError(
            f"{name} has no way back: {where} it leads to y = {numbers(probe.y)}, and from there"
            f" with -z to {numbers(probe.back)}, which is {miss:.3g} from x. Expected"
            " move(move(x, z), -z) = x: what is chosen must be the same for z and -z, as"
            " jnp.exp(-(z[0]**2 + z[1]**2) / 2) is, which is uniform on (0, 1); angles and shifts"
            " must have the other sign."
        )
    if probe.jacobian is None:
        return
    volume = np.exp(np.linalg.slogdet(probe.jacobian)[1])
    if not abs(volume - 1) <= VOLUME:
        raise InputError(
            f"{name} changes volume: |det dy/dx| is {volume:.6g} {where}. Expected 1, as of"
            " rotations, reflections, exchanges and shifts; choices and angles must not depend on"
            " what is moved."
        )
