"""Deliberate breakages of the samplers, each a change of the source text.

A mutant is built from a copy of the samplers' modules with one thing wrong; limpet itself is not
touched. Every text that is replaced must occur exactly once, so that no mutant can go stale.
"""

import inspect
import sys
import types
from typing import NamedTuple

import limpet.kernels  # noqa: F401  (the modules below must be loaded)

MODULES = [
    "limpet.linalg",
    "limpet.projection",
    "limpet.kernels.base",
    "limpet.kernels.sas",
    "limpet.kernels.surface",
    "limpet.kernels.random_walk",
]


class Mutant(NamedTuple):
    """A change in one module: pairs of a text and what takes its place."""

    module: str
    changes: tuple[tuple[str, str], ...]


def build(mutant: Mutant):
    """The samplers with that change, by name: SAS, SurfaceSampler, RandomWalk."""
    originals = {name: sys.modules[name] for name in MODULES}
    try:
        for name in MODULES:
            source = inspect.getsource(originals[name])
            if name == f"limpet.{mutant.module}":
                for old, new in mutant.changes:
                    assert source.count(old) == 1, f"{name} has {source.count(old)} x {old!r}"
                    source = source.replace(old, new)
            copy = types.ModuleType(name)
            sys.modules[name] = copy
            exec(compile(source, f"<mutant of {name}>", "exec"), copy.__dict__)
        return {
            sampler: getattr(sys.modules[f"limpet.kernels.{module}"], sampler)
            for module, sampler in (
                ("sas", "SAS"),
                ("surface", "SurfaceSampler"),
                ("random_walk", "RandomWalk"),
            )
        }
    finally:
        sys.modules.update(originals)


def _one(module, old, new):
    return Mutant(module, ((old, new),))


SAS_MUTANTS = {
    "Hard: no gradient factor": _one(
        "kernels.base", "change -= gradient_factor * (", "change -= 0.0 * ("
    ),
    "Hard: gradient factor upside down": _one(
        "kernels.base", "change -= gradient_factor * (", "change += gradient_factor * ("
    ),
    "Hard: proposal ratio dropped": _one(
        "kernels.base",
        "return change + (jnp.sum(slide**2) - jnp.sum(back**2))",
        "return change + 0.0",
    ),
    "Hard: proposal ratio upside down": _one(
        "kernels.base",
        "return change + (jnp.sum(slide**2) - jnp.sum(back**2))",
        "return change - (jnp.sum(slide**2) - jnp.sum(back**2))",
    ),
    "Soft: energy counted twice": _one(
        "kernels.base",
        "return change - (jnp.sum(proposal.values**2) - jnp.sum(state.values**2)) / 2",
        "return change - (jnp.sum(proposal.values**2) - jnp.sum(state.values**2))",
    ),
    "E: sign flipped": _one("kernels.sas", "sigma.hrd), E, -E]", "sigma.hrd), -E, E]"),
    "E: the same for On as for Off": _one("kernels.sas", "sigma.hrd), E, -E]", "sigma.hrd), E, E]"),
    "E: Jacobian dropped": _one("kernels.sas", "+ on + jacobian - off", "+ on - off"),
    "E: Jacobian upside down": _one(
        "kernels.sas", "+ on + jacobian - off", "+ on - jacobian - off"
    ),
    "E: Jacobian without the Gram determinant at the foot": _one(
        "kernels.sas", "        - half_log_det(foot_factor)\n", ""
    ),
    "E: Jacobian without the Gram determinant at s": _one(
        "kernels.sas", "        - half_log_det(s.factor)\n", ""
    ),
    "E: density of the landing slide dropped": _one(
        "kernels.sas", "+ on + jacobian - off", "+ jacobian - off"
    ),
    "E: density of the kick dropped": _one(
        "kernels.sas", "+ on + jacobian - off", "+ on + jacobian"
    ),
    "E: log density of a dropped": _one(
        "kernels.sas", "a.log_density - s.log_density", "-s.log_density"
    ),
    "E: energy of a dropped": _one(
        "kernels.sas", "s.log_density - jnp.sum(a.values**2) / 2", "s.log_density"
    ),
    "E: constant of the normal scale dropped": _one(
        "kernels.sas", "constants = jnp.sum(jnp.log(", "constants = 0 * jnp.sum(jnp.log("
    ),
    "E: constant of the tangent scales dropped": _one(
        "kernels.sas", "constants += (n - m) *", "constants += 0 *"
    ),
    "E: n in place of d": _one("kernels.sas", "constants += (n - m) *", "constants += n *"),
    "E: sigma_on for sigma_tan": _one("kernels.sas", "/ sigma.tan**2", "/ sigma.on**2"),
    "E: the kick's own normals for the foot's": _one(
        "kernels.sas", "on_s, off_s, first.normals, L", "on_s, off_s, normals, factor(normals)"
    ),
    "Off: kick along the normals, not their dual basis": _one(
        "kernels.sas", "pushed(state, sigma.prp * r)", "0.1 * along(state.normals, sigma.prp * r)"
    ),
    "Off: kick as long as a slide": _one(
        "kernels.sas", "kick = sigma.tan * along_surface", "kick = sigma.hrd * along_surface"
    ),
    "On: slide along the tangents of the wrong point": _one(
        "kernels.sas",
        "tangent(first.normals, L, jnp.where(on, sigma.on * z, x - first.x))",
        "jnp.where(on, sigma.on * along_surface, tangent(first.normals, L, x - first.x))",
    ),
    "no reverse check": _one(
        "kernels.sas", "(first.landed & came_back(self, second, state))", "first.landed"
    ),
    "no reverse check of Off": _one(
        "kernels.sas", "returned=on | soft", "returned=off | on | soft"
    ),
    "reverse check lands anywhere": _one(
        "kernels.base", "return landing.landed & (miss <=", "return landing.landed | (miss <="
    ),
    "reverse check satisfied by any root": _one(
        "kernels.base",
        "kernel.reverse_tolerance * _length",
        "1e12 * kernel.reverse_tolerance * _length",
    ),
    "Newton cap larger back than forward": Mutant(
        "kernels.sas",
        (
            ("            self, target, first.x", "            _patient(self), target, first.x"),
            (
                "def pushed(state, r):",
                "def _patient(kernel):\n"
                "    copy = object.__new__(SAS)\n"
                "    copy.__dict__.update(kernel.__dict__, newton_cap=30)\n"
                "    return copy\n\n\n"
                "def pushed(state, r):",
            ),
        ),
    ),
    "Newton along the normals of the moment": _one(
        "projection", "x = x - along(normals, ", "x = x - along(gradients, "
    ),
    "walls ignored": _one(
        "kernels.sas", "inside=target.contains(proposal.x)", "inside=soft | True"
    ),
    "walls ignored by Off": _one(
        "kernels.sas",
        "inside=target.contains(proposal.x)",
        "inside=off | target.contains(proposal.x)",
    ),
    "walls ignored by Hard": _one(
        "kernels.sas",
        "inside=target.contains(proposal.x)",
        "inside=hard | target.contains(proposal.x)",
    ),
    "log density of the proposal not evaluated": _one(
        "kernels.sas", "log_density=target.log_density_at(end.x)", "log_density=state.log_density"
    ),
    "normals not brought up to date": _one(
        "kernels.sas", "normals=end.normals", "normals=state.normals"
    ),
    "factor of the foot kept after landing": _one(
        "kernels.sas", "cond(on, lambda: factor(second.normals), lambda: L)", "L"
    ),
    "triangular solve with the wrong triangle": _one(
        "linalg",
        "sum(L[k, i] * a[k] for k in range(i + 1, m))",
        "sum(L[i, k] * a[k] for k in range(i))",
    ),
}
