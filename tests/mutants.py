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
    "limpet.geometry.linalg",
    "limpet.geometry.projection",
    "limpet.geometry.metric",
    "limpet.kernels.states",
    "limpet.kernels.moves",
    "limpet.kernels.symmetry",
    "limpet.kernels.base",
    "limpet.kernels.trajectory",
    "limpet.kernels.graph",
    "limpet.kernels.lifted",
    "limpet.kernels.sas_moves",
    "limpet.kernels.sas",
    "limpet.kernels.surface",
    "limpet.kernels.random_walk",
    "limpet.kernels.stratum",
    "limpet.kernels.nearby",
    "limpet.kernels.bonds",
    "limpet.kernels.rungs",
    "limpet.kernels.exchange",
]


class Mutant(NamedTuple):
    """A change in one module: pairs of a text and what takes its place."""

    module: str
    changes: tuple[tuple[str, str], ...]


def build(mutant: Mutant):
    """The samplers with that change by name, and the kind of state that they take."""
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
        kept = {
            "State": sys.modules["limpet.kernels.base"].State,
            "slide_to_level": sys.modules["limpet.kernels.bonds"].slide_to_level,
            "surface_of_try": sys.modules["limpet.kernels.bonds"].surface_of_try,
            "follow": sys.modules["limpet.kernels.trajectory"].follow,
            "exchange": sys.modules["limpet.kernels.rungs"].exchange,
            "swap_log_ratio": sys.modules["limpet.kernels.rungs"].swap_log_ratio,
            "Exchange": sys.modules["limpet.kernels.exchange"].Exchange,
        }
        return kept | {
            sampler: getattr(sys.modules[f"limpet.kernels.{module}"], sampler)
            for module, sampler in (
                ("sas", "SAS"),
                ("surface", "SurfaceSampler"),
                ("lifted", "Lifted"),
                ("random_walk", "RandomWalk"),
                ("symmetry", "follow_symmetries"),
            )
        }
    finally:
        sys.modules.update(originals)


# what few constraints are projected with; many have an update of their own
NEWTON_OF_FEW = (
    "solve(inner(gradients, normals), values - level))\n"
    "        return updates + 1, x, *target.values_and_normals(x)"
)


def _one(module, old, new):
    return Mutant(module, ((old, new),))


SAS_MUTANTS = {
    "Hard: no gradient factor": _one(
        "kernels.moves", "change -= gradient_factor * (", "change -= 0.0 * ("
    ),
    "Hard: gradient factor upside down": _one(
        "kernels.moves", "change -= gradient_factor * (", "change += gradient_factor * ("
    ),
    "Hard: proposal ratio dropped": _one(
        "kernels.moves",
        "return change + (jnp.sum(slide**2) - jnp.sum(back**2))",
        "return change + 0.0",
    ),
    "Hard: proposal ratio upside down": _one(
        "kernels.moves",
        "return change + (jnp.sum(slide**2) - jnp.sum(back**2))",
        "return change - (jnp.sum(slide**2) - jnp.sum(back**2))",
    ),
    "Soft: energy counted twice": _one(
        "kernels.moves",
        "return change - (jnp.sum(proposal.values**2) - jnp.sum(state.values**2)) / 2",
        "return change - (jnp.sum(proposal.values**2) - jnp.sum(state.values**2))",
    ),
    "E: sign flipped": _one("kernels.sas", "if rule.inverse else", "if not rule.inverse else"),
    "E: the same for On as for Off": _one("kernels.sas_moves", "inverse=True", "inverse=False"),
    "E: Jacobian dropped": _one(
        "kernels.sas_moves", "+ landing_there + jacobian - leaving", "+ landing_there - leaving"
    ),
    "E: Jacobian upside down": _one(
        "kernels.sas_moves",
        "+ landing_there + jacobian - leaving",
        "+ landing_there - jacobian - leaving",
    ),
    "E: Jacobian without the Gram determinant at the foot": _one(
        "kernels.sas_moves", "        - half_log_det(foot_factor)\n", ""
    ),
    "E: Jacobian without the Gram determinant at s": _one(
        "kernels.sas_moves", "        - half_log_det(s.factor)\n", ""
    ),
    "E: density of the landing slide dropped": _one(
        "kernels.sas_moves", "+ landing_there + jacobian - leaving", "+ jacobian - leaving"
    ),
    "E: density of the kick dropped": _one(
        "kernels.sas_moves", "+ landing_there + jacobian - leaving", "+ landing_there + jacobian"
    ),
    "E: log density of a dropped": _one(
        "kernels.sas_moves", "a.log_density - s.log_density", "-s.log_density"
    ),
    "E: energy of a dropped": _one(
        "kernels.sas_moves", "s.log_density - jnp.sum(a.values**2) / 2", "s.log_density"
    ),
    "E: constant of the normal scale dropped": _one(
        "kernels.sas_moves", "constants = jnp.sum(jnp.log(", "constants = 0 * jnp.sum(jnp.log("
    ),
    "E: constant of the tangent scales dropped": _one(
        "kernels.sas_moves", "constants += (n - m) *", "constants += 0 *"
    ),
    "E: n in place of d": _one("kernels.sas_moves", "constants += (n - m) *", "constants += n *"),
    "E: sigma_on for sigma_tan": _one(
        "kernels.sas_moves", '/ sizes["sigma_tan"] ** 2', '/ sizes["sigma_on"] ** 2 * 1'
    ),
    "E: the kick's own normals for the foot's": _one(
        "kernels.sas",
        "slide, back, h, landings, leaves)",
        "slide, back, h, landings._replace(first=first._replace(normals=away.normals),"
        " factor=factor(away.normals)), leaves)",
    ),
    "Off: kick along the normals, not their dual basis": _one(
        "kernels.sas_moves",
        "along(state.normals, across_it)",
        '0.1 * along(state.normals, sizes["sigma_prp"] * random.normal)',
    ),
    "Off: kick as long as a slide": _one(
        "kernels.sas_moves",
        'return sizes["sigma_tan"] * random.tangent',
        'return sizes["sigma_hrd"] * random.tangent',
    ),
    "On: slide along the tangents of the wrong point": _one(
        "kernels.sas",
        'jnp.where(lands, sizes["sigma_on"] * noise.z, x - foot)',
        'jnp.where(lands, sizes["sigma_on"] * random.tangent, x - foot)',
    ),
    "no reverse check": _one(
        "kernels.sas", "(first.landed & came_back(self, second, here))", "first.landed"
    ),
    "no reverse check of Off": _one(
        "kernels.sas", "returned=lands | ~projects", "returned=leaves | lands | ~projects"
    ),
    "reverse check lands anywhere": _one(
        "kernels.moves", "return landing.landed & (miss <=", "return landing.landed | (miss <="
    ),
    "reverse check satisfied by any root": _one(
        "kernels.moves",
        "kernel.reverse_tolerance * length_of",
        "1e12 * kernel.reverse_tolerance * length_of",
    ),
    "Newton cap larger back than forward": _one(
        "kernels.moves",
        "second = _land(kernel, target",
        "import copy\n\n"
        "    patient = copy.copy(kernel)\n"
        "    patient.__dict__['newton_cap'] = 30\n"
        "    second = _land(patient, target",
    ),
    "Newton along the normals of the moment": _one(
        "geometry.projection",
        "x = x - along(normals, " + NEWTON_OF_FEW,
        "x = x - along(gradients, " + NEWTON_OF_FEW,
    ),
    "walls ignored": _one("kernels.sas", "inside=target.contains(end.x)", "inside=lands | True"),
    "walls ignored by Off": _one(
        "kernels.sas",
        "inside=target.contains(end.x)",
        "inside=leaves | target.contains(end.x)",
    ),
    "walls ignored by Hard": _one(
        "kernels.sas",
        "inside=target.contains(end.x)",
        "inside=slides | target.contains(end.x)",
    ),
    "log density of the proposal not evaluated": _one(
        "kernels.sas", "log_density=target.log_density_at(end.x)", "log_density=state.log_density"
    ),
    "normals not brought up to date": _one(
        "kernels.sas", "normals=end.normals", "normals=state.normals"
    ),
    "factor of the foot kept after landing": _one(
        "kernels.sas",
        "cond(slides | refused, lambda: first_factor, lambda: factor(end.normals))",
        "first_factor",
    ),
    "triangular solve with the wrong triangle": _one(
        "geometry.linalg",
        "sum(L[k, i] * a[k] for k in range(i + 1, m))",
        "sum(L[i, k] * a[k] for k in range(i))",
    ),
}

# what the paper does not have: a sampler to look at first, and the change
TRAVEL_MUTANTS = {
    "trajectory: first push twice": (
        "SurfaceSampler",
        _one(
            "kernels.trajectory",
            "path.slide + path.push, level",
            "path.slide + 2 * path.push, level",
        ),
    ),
    "trajectory: last push left out": (
        "SurfaceSampler",
        _one(
            "kernels.trajectory",
            "slide = push - back",
            "slide = -back",
        ),
    ),
    "trajectory: gradient of the determinant upside down": (
        "SurfaceSampler",
        _one("kernels.trajectory", "- measure * pairing(", "+ measure * pairing("),
    ),
    "trajectory: the other measure's force": (
        "SurfaceSampler",
        _one("kernels.trajectory", "- measure * pairing(", "- (1 - measure) * pairing("),
    ),
    "trajectory: energy of another step size": (
        "SurfaceSampler",
        _one(
            "kernels.trajectory",
            "path.slide, h, measure)",
            "path.slide, kernel.step_size, measure)",
        ),
    ),
    "trajectory: force not made tangent": (
        "SurfaceSampler",
        _one(
            "kernels.trajectory",
            "tangent(state.normals, state.factor, target.gradient(log_density, state.x))",
            "target.gradient(log_density, state.x)",
        ),
    ),
    "trajectory: log density of the last slide alone": (
        "SurfaceSampler",
        _one(
            "kernels.trajectory",
            "log_density = target.log_density_at(first.x)",
            "log_density = 0.0",
        ),
    ),
    "trajectory: no reverse check": (
        "SurfaceSampler",
        _one(
            "kernels.trajectory",
            "returned=came_back(kernel, second, state)",
            "returned=first.landed",
        ),
    ),
    "trajectory: goes on after a failure": (
        "SurfaceSampler",
        _one(
            "kernels.trajectory",
            "sooner(met, _obstacle_in(push))",
            "jnp.where(made + 1 < slides, 0, met)",
        ),
    ),
    "trajectory: walls ignored": (
        "SurfaceSampler",
        _one("kernels.trajectory", "inside=target.contains(first.x)", "inside=first.landed | True"),
    ),
    "SAS: last push left out": (
        "SAS",
        _one(
            "kernels.sas",
            "back = second_slide - push_of(target, proposal, h, forced)",
            "back = second_slide",
        ),
    ),
    "SAS: last slide checked against the first point": (
        "SAS",
        _one("kernels.sas", "came_back(self, second, here)", "came_back(self, second, state)"),
    ),
    "SAS: what was met on the way forgotten": (
        "SAS",
        _one("kernels.sas", "sooner(path.obstacle, met)", "met"),
    ),
    "Slide: to S instead of its own level": (
        "SAS",
        _one(
            "kernels.sas",
            "jnp.where(slides_off, state.values, 0.0)",
            "jnp.zeros_like(state.values)",
        ),
    ),
    "Slide: counts as being on S": (
        "SAS",
        _one(
            "kernels.sas",
            "on=those(lambda rule: rule.ends_on)",
            "on=slides | those(lambda rule: rule.ends_on)",
        ),
    ),
    "Slide: factor of the point left": (
        "SAS",
        _one(
            "kernels.sas",
            "cond(slides | refused, lambda: first_factor, lambda: factor(end.normals))",
            "cond(slides & ~slides_off, lambda: first_factor, lambda: factor(away.normals))",
        ),
    ),
    "Slide: level forgotten by Newton": (
        "SAS",
        _one(
            "geometry.projection",
            NEWTON_OF_FEW,
            NEWTON_OF_FEW.replace("values - level", "values"),
        ),
    ),
    "Lifted: energy of eta dropped": (
        "Lifted",
        _one(
            "kernels.lifted",
            "return self.target.log_density_at(x) - jnp.sum(eta**2) / 2",
            "return self.target.log_density_at(x)",
        ),
    ),
    "Lifted: energy of eta dropped at the start": (
        "Lifted",
        _one(
            "kernels.lifted",
            "log_density=state.log_density - jnp.sum(state.values**2) / 2",
            "log_density=state.log_density",
        ),
    ),
    "Lifted: area for the soft measure": (
        "Lifted",
        _one("kernels.lifted", "lifted.raise_state(state))", "lifted.raise_state(state), 0.0)"),
    ),
    "Lifted: normals without the length": (
        "Lifted",
        _one(
            "kernels.lifted",
            "-sparse(jnp.eye(below.shape[1])) / self.length",
            "-sparse(jnp.eye(below.shape[1]))",
        ),
    ),
    "Lifted: eta not brought up to date": (
        "Lifted",
        _one("kernels.lifted", "            values=values,", "            values=0.9 * values,"),
    ),
    "Lifted: walls ignored": (
        "Lifted",
        _one(
            "kernels.lifted",
            "return self.target.contains(point[: self.n])",
            "return jnp.bool_(True)",
        ),
    ),
}

# of trajectories where constraints are as many as unknowns, or more
CROWDED_MUTANTS = {
    "no determinant": _one(
        "kernels.graph", "place.log_density - half_log_det", "place.log_density - 0 * half_log_det"
    ),
    "the determinant twice": _one(
        "kernels.graph", "return place.log_density - half", "return place.log_density - 2 * half"
    ),
    "energy of the data dropped": _one(
        "kernels.graph", "level -= jnp.sum(values**2) / 2", "level -= 0.0"
    ),
    "slides of equal length in x": _one(
        "kernels.graph",
        "drawn = h * jnp.sum(jnp.tril(there.factor) * z, axis=1)",
        "drawn = h * z",
    ),
    "momentum by the other triangle": _one(
        "kernels.graph",
        "jnp.tril(there.factor) * z, axis=1",
        "there.factor.T * z, axis=1",
    ),
    "length of a slide without the metric": _one(
        "kernels.graph", "jnp.sum(solve_lower(place.factor, slide) ** 2)", "jnp.sum(slide**2)"
    ),
    "energy of the first slide dropped": _one(
        "kernels.graph",
        "(graph.square(start, start.slide) - graph.square(there, path.slide))",
        "(-graph.square(there, path.slide))",
    ),
    "energy of another step size": _one(
        "kernels.graph", "/ (2 * h**2)", "/ (2 * kernel.step_size**2)"
    ),
    "first push twice": _one(
        "kernels.graph",
        "slide + h**2 / 2 * there.gradient",
        "slide + h**2 * there.gradient",
    ),
    "last push left out": _one(
        "kernels.graph", "moved, h**2 / 2 * there.gradient - back, drawn", "moved, -back, drawn"
    ),
    "no reverse check": _one(
        "kernels.graph",
        "returned=second.landed & graph.is_at(place, second.x)",
        "returned=first.landed",
    ),
    "reverse check satisfied by any root": _one(
        "kernels.graph",
        "returned=second.landed & graph.is_at(place, second.x)",
        "returned=second.landed",
    ),
    "walls ignored": _one(
        "kernels.graph", "inside=graph.target.contains(there.x)", "inside=first.landed"
    ),
    "landing beside the normals": _one(
        "kernels.graph",
        "square * along(normals, change) - slide",
        "0.9 * square * along(normals, change) - slide",
    ),
    "back along the normals of the start": _one(
        "kernels.graph",
        "length**2 * along(normals, change)",
        "length**2 * along(graph.place(place.x)[1], change)",
    ),
    "metric without the length": _one(
        "kernels.graph", "self.length**2 * outer(normals, normals)", "outer(normals, normals)"
    ),
    "log density of the start kept": _one(
        "kernels.graph", "log_density=below)", "log_density=state.log_density)"
    ),
    "values of the start kept": _one(
        "kernels.graph", "values=there.values, log", "values=state.values, log"
    ),
    "goes on after a failure": _one(
        "kernels.graph",
        "sooner(jnp.where(moved, met, Outcome.ACCEPTED), _obstacle_in(there))",
        "_obstacle_in(there)",
    ),
    "the last turn taken for the start": _one(
        "kernels.graph", "choose(moved, path.start, Start(", "choose(~moved, path.start, Start("
    ),
    "no first look at the start": _one("kernels.graph", "jnp.asarray(-1), place", "0, place"),
}

# by name: which law shows it, and what is wrong
SYMMETRY_MUTANTS = {
    "no log density off S": (
        "off",
        _one("kernels.symmetry", "off = log_density - jnp", "off = 0 * log_density - jnp"),
    ),
    "no energy off S": (
        "off",
        _one("kernels.symmetry", "off = log_density - jnp.sum(values**2) / 2", "off = log_density"),
    ),
    "no log density on S": (
        "soft",
        _one("kernels.symmetry", "log_density + kernel.log_area", "kernel.log_area"),
    ),
    "the law off S on S": (
        "hausdorff",
        _one("kernels.symmetry", "jnp.where(state.on, log_", "jnp.where(False, log_"),
    ),
    "no weight of the area": (
        "hausdorff",
        _one("kernels.surface", "return missing * half", "return 0 * half"),
    ),
    "weight of the area upside down": (
        "hausdorff",
        _one("kernels.surface", "return missing * half", "return -missing * half"),
    ),
    "weight of the area in the soft measure": (
        "soft",
        _one("kernels.surface", "missing = 1 - MEASURES[self.measure]", "missing = 1.0"),
    ),
    "ratio upside down": (
        "soft",
        _one("kernels.symmetry", "level - walk.level, met", "walk.level - level, met"),
    ),
    "level of the first move kept": (
        "soft",
        _one("kernels.symmetry", "jnp.where(accepted, level, walk.level)", "walk.level"),
    ),
    "walls ignored": (
        "soft",
        _one("kernels.symmetry", "inside=target.contains(y)", "inside=jnp.bool_(True)"),
    ),
    "walls of the start": (
        "soft",
        _one("kernels.symmetry", "target.contains(y)", "target.contains(x)"),
    ),
    "no way back": ("soft", _one("kernels.symmetry", "<= RETURN * scale", "<= jnp.inf")),
    "way back with the same numbers": (
        "soft",
        _one("kernels.symmetry", "go(y, -noise.z)", "go(y, noise.z)"),
    ),
    "leaves S": (
        "soft",
        _one("kernels.symmetry", "return ~state.on | (drift", "return True | (drift"),
    ),
    "stays at a level off S": (
        "off",
        _one("kernels.symmetry", "return ~state.on | (drift", "return (drift"),
    ),
    "the first symmetry only": (
        "soft",
        _one("kernels.symmetry", "jnp.where(which == k, end, y)", "jnp.where(which < 0, end, y)"),
    ),
    "the same numbers again": (
        "soft",
        _one("kernels.symmetry", "return walk.generator, new", "return generator, new"),
    ),
    "one move too few": (
        "soft",
        _one("kernels.symmetry", "carry[0] < count", "carry[0] + 1 < count"),
    ),
    "state of the start kept": (
        "soft",
        _one("kernels.symmetry", "kernel.start(target, walk.x)", "state._replace(x=walk.x)"),
    ),
    "comes down on S": (
        "off",
        _one("kernels.symmetry", "_replace(on=state.on, reach", "_replace(reach"),
    ),
    "reach of the end": (
        "soft",
        _one("kernels.symmetry", "(on=state.on, reach=state.reach)", "(on=state.on)"),
    ),
    "acceptance not counted": (
        "soft",
        _one("kernels.symmetry", "walk.acceptance + acceptance", "walk.acceptance"),
    ),
    "outcomes not counted": (
        "soft",
        _one("kernels.symmetry", "walk.outcomes + (", "0 * walk.outcomes + ("),
    ),
}

# of exchanges on a ladder: whether slides or swaps show it, and the change
EXCHANGE_MUTANTS = {
    "gradients not weighed": (
        "bent",
        _one(
            "kernels.rungs",
            "change -= half_log_det(there.factor) - half_log_det(here.factor)",
            "change -= 0.0",
        ),
    ),
    "gradients upside down": (
        "bent",
        _one("kernels.rungs", "change -= half_log_det(there", "change += half_log_det(there"),
    ),
    "log density dropped": (
        "bent",
        _one("kernels.rungs", "change = there.log_density - here.log_density", "change = 0.0"),
    ),
    "slides not weighed": (
        "bent",
        _one(
            "kernels.rungs",
            "change += log_normal(back, size_back, d) - log_normal(slide, size, d)",
            "change += 0.0",
        ),
    ),
    "slide back of the size of the first": (
        "bent",
        _one(
            "kernels.rungs",
            "_size(kernel, there.factor, apart)",
            "_size(kernel, here.factor, apart)",
        ),
    ),
    "dimension of space, not of the level": (
        "bent",
        _one("kernels.rungs", "len(x) - len(level)", "len(x)"),
    ),
    "eps of the other rung": (
        "bent",
        _one("kernels.rungs", "level = ratio * here.values", "level = here.values / ratio"),
    ),
    "both points to the upper eps": (
        "bent",
        _one("kernels.rungs", "target, ratio, z[n:]", "target, 1 / ratio, z[n:]"),
    ),
    "ratio of the upper point dropped": (
        "bent",
        _one("kernels.rungs", "up.log_ratio + down.log_ratio", "up.log_ratio"),
    ),
    "obstacle of the upper point dropped": (
        "pieces",
        _one("kernels.rungs", "sooner(up.obstacle, down.obstacle)", "up.obstacle"),
    ),
    "no reverse check": (
        "pieces",
        _one(
            "kernels.trajectory",
            "returned=came_back(kernel, second, state)",
            "returned=first.landed",
        ),
    ),
    "reverse check on the wrong level": (
        "bent",
        _one("kernels.rungs", "back_level=here.values", "back_level=level"),
    ),
    "walls ignored": (
        "bent",
        _one("kernels.trajectory", "inside=target.contains(first.x)", "inside=first.landed | True"),
    ),
    "swap: energies counted twice": (
        "swaps",
        _one(
            "kernels.rungs",
            "(values.lower**2 - values.upper**2)) / 2",
            "(values.lower**2 - values.upper**2))",
        ),
    ),
    "swap: upside down": (
        "swaps",
        _one(
            "kernels.rungs",
            "(values.lower**2 - values.upper**2)",
            "(values.upper**2 - values.lower**2)",
        ),
    ),
    "swap: eps of the lower rung alone": (
        "swaps",
        _one("kernels.rungs", "1 / widths.lower**2 - 1 / widths.upper**2", "1 / widths.lower**2"),
    ),
}

# of what is made of exchanges: these show in the law of the rungs
LADDER_MUTANTS = {
    "exchanges always accepted": _one(
        "kernels.exchange",
        "choose(done, moved",
        "choose(outcome >= 0, moved",
    ),
    "points not crossed": _one(
        "kernels.exchange",
        "put_pair(self.x, k, there)",
        "put_pair(self.x, k, _turned(there))",
    ),
    "trajectories at the lowest eps": _one(
        "kernels.exchange", "Rung(target, pick(widths, k))", "Rung(target, pick(widths, rungs - 1))"
    ),
    "swaps with the eps of other rungs": _one(
        "kernels.exchange",
        "swap_log_ratio(_pair(widths, k)",
        "swap_log_ratio(_pair(widths, 0 * k)",
    ),
    "swaps by values of points that were there": _one(
        "kernels.exchange",
        "jnp.where(outcome == Outcome.ACCEPTED, swapped, values)",
        "values",
    ),
    "swaps by values in units of each rung": _one(
        "kernels.exchange", "put(values, k, rung.width * end.values)", "put(values, k, end.values)"
    ),
    "swaps and slides by one coin": _one(
        "kernels.exchange", "coin=noise.choice", "coin=noise.coin"
    ),
    "exchanges with the eps of other rungs": _one(
        "kernels.exchange", "self, target, _pair(widths, k)", "self, target, _pair(widths, 0 * k)"
    ),
}
