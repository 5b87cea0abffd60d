"""Form and Break where few unknowns move: as in a small system, given all that stays."""

import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest
import sticky
from exact import mapped

import limpet
from limpet.kernels import bonds, nearby, stratum
from limpet.kernels.states import Outcome
from limpet.layout import Layout

REACH = 0.3
SAMPLER = {"reach": REACH, "spread": 0.4, "tolerance": 1e-14}
SLOPE = 1.3  # of every constraint, where chains began


def lean(x):
    """A log density in which all spheres take part."""
    return 0.3 * jnp.sum(jnp.sin(x["position"])) - 0.1 * jnp.sum(x["position"] ** 2)


def settled(q, x, held, level, rng):
    """A point near x where these constraints are on this level."""
    x = x + 0.05 * rng.normal(size=len(x))
    jacobian = jax.jit(jax.jacobian(q))
    for _ in range(20):
        G, miss = np.asarray(jacobian(x))[held], (np.asarray(q(x)) - level)[held]
        x = x - np.linalg.lstsq(G, miss, rcond=None)[0]
    return x


class Spheres:
    """A folded chain in which some bonds hold and one is to be changed, and random numbers."""

    def __init__(self, n, dimension, rigid, seed):
        rng = np.random.default_rng(seed)
        row = np.array(sticky.zigzag(n))[:, :dimension]
        kappa = rng.uniform(0.5, 3.0, size=(n - 1) * (n - 2) // 2)
        eps = rng.uniform(0.005, 0.02)
        target = limpet.sticky_spheres(row, sticky.in_a_row(n), kappa, eps=eps, at_once=2 * n)
        target.log_density = lean
        m = len(target.pairs) + n - 1
        self.kernel = limpet.StrataSampler("soft" if rigid else None, **SAMPLER)
        self.measure = 1.0 if rigid else None
        layout = Layout.of({"bonds": np.zeros(m - n + 1), "position": row[1:]})
        zero = np.zeros(m - n + 1)
        begin = np.concatenate([zero, (row[1:] - row[0]).ravel()])
        self.flat = target.on_vectors(layout).freeze(jnp.asarray(begin))
        self.k, self.m, self.free = len(zero), m, len(begin) - len(zero)
        q = jax.jit(lambda x: self.flat.values(jnp.concatenate([zero, x])) * eps)
        gaps = np.asarray(q(begin[self.k :]))
        near = np.argsort(gaps[n - 1 :])[: n // 2] + n - 1
        chosen, more = near[rng.integers(len(near))], rng.choice(near)
        held = np.arange(m) < n - 1
        held[more] = True
        level = eps * rng.normal(size=m) * (not rigid)
        if not held[chosen]:
            level[chosen] = rng.uniform(0.02, 0.2)  # within reach
        near_it = held | (np.arange(m) == chosen)
        x = settled(q, begin[self.k :], near_it, level, rng)
        self.holds, self.chosen = held * 1.0, (np.arange(m) == chosen) * 1.0
        self.x = np.concatenate([self.holds[n - 1 :], x])
        self.z = np.concatenate([zero, rng.normal(size=self.free)])
        self.level, self.uniform = rng.normal(), rng.uniform(0.1, 0.9)

    def moving(self):
        """Unknowns that move, and constraints that they take part in, found the plain way."""
        structure = self.flat.colouring.structure
        takes_part = np.zeros((self.m, self.k + self.free), bool)
        takes_part[structure.constraints, structure.unknowns] = True
        together = np.maximum(self.holds, self.chosen) > 0
        at_it = takes_part[self.chosen > 0][0]
        beside = together & (takes_part & at_it).any(axis=1)
        unknowns = takes_part[beside].any(axis=0)
        return unknowns, together & (takes_part & unknowns).any(axis=1)

    def slide(self, surface_of_try=bonds.surface_of_try, slide_to_level=bonds.slide_to_level):
        """Where a try near it ends, the log ratio but for that of tries, and what it met."""

        def go(x, holds, chosen, z):
            place = bonds.place_at(self.flat, x, holds)
            began = bonds.Began(jnp.asarray(1.5), jnp.full(self.m, SLOPE))
            trial = bonds.Trial(chosen, z, jnp.asarray(self.level), jnp.asarray(self.uniform), True)
            below = surface_of_try(self.flat, self.measure, trial, place, None)
            there, log_ratio, met = slide_to_level(
                self.kernel, below, REACH, self.measure, trial, place, began, below.fits
            )
            there = bonds.Place(*there)  # a mutant has its own
            log_ratio -= bonds._log_try(self.flat, REACH, there, chosen)
            log_ratio += bonds._log_try(self.flat, REACH, place, chosen)
            return there.x, log_ratio, met, below.fits

        rows = (np.asarray(each)[None] for each in (self.x, self.holds, self.chosen, self.z))
        return [np.asarray(each)[0] for each in mapped(go)(*rows)]

    def small(self):
        """The same of a target of its own, whose unknowns are those that move."""
        unknowns, constraints = self.moving()
        frozen, flat, where = jnp.asarray(self.x), self.flat, np.flatnonzero(constraints)

        def whole(x):
            return frozen.at[np.flatnonzero(unknowns)].set(x)

        always = np.flatnonzero(where < self.m - self.k)
        target = limpet.Strata(
            lambda x: flat.values(whole(x))[where],
            1.0,
            np.asarray(flat.stickiness / flat.widths)[where][len(always) :],
            always=always,
            log_density=lambda x: flat.log_density_at(whole(x)),
        )
        # constraints are in units of eps here, and so are reaches and slopes
        scale = np.asarray(flat.widths)[where]
        target.reach = (1 / scale)[len(always) :]
        labels = self.holds[where][len(always) :]
        layout = Layout.of({"bonds": labels, "x": self.x[unknowns]})
        x = np.concatenate([labels, self.x[unknowns]])
        own = target.on_vectors(layout).freeze(jnp.asarray(x))

        def go(x, holds, chosen, z):
            place = bonds.place_at(own, x, holds)
            began = bonds.Began(jnp.asarray(1.5), SLOPE / scale)
            trial = bonds.Trial(chosen, z, jnp.asarray(self.level), jnp.asarray(self.uniform))
            below = stratum.surface_of(
                own, jnp.maximum(holds, chosen), self.measure is not None, len(x), None
            )
            there, log_ratio, met = bonds.slide_to_level(
                self.kernel, below, REACH, self.measure, trial, place, began
            )
            log_ratio -= bonds._log_try(own, REACH, there, chosen)
            log_ratio += bonds._log_try(own, REACH, place, chosen)
            return there.x, log_ratio, met

        z = np.concatenate([0 * labels, self.z[unknowns]])
        rows = (each[None] for each in (x, self.holds[where], self.chosen[where], z))
        x, log_ratio, met = (np.asarray(each)[0] for each in mapped(go)(*rows))
        full = self.x.copy()
        full[unknowns] = x[len(labels) :]
        full[: self.k] = np.abs(self.holds - self.chosen)[self.m - self.k :]
        return full, log_ratio, met


def of_seed(seed):
    """Of any size, in two dimensions or three, soft or rigid."""
    rng = np.random.default_rng(seed)
    return Spheres(int(rng.integers(8, 17)), int(rng.integers(2, 4)), bool(rng.integers(2)), seed)


def test_a_try_is_that_of_a_small_system():
    """Where Newton's method succeeds in both: with few constraints it goes on for longer."""
    succeeded = 0
    for seed in range(10):
        spheres = of_seed(seed)
        x, log_ratio, met, fits = spheres.slide()
        other, log_ratio_of_other, met_of_other = spheres.small()
        unknowns, _ = spheres.moving()
        assert fits
        assert 0 < unknowns.sum() < spheres.free
        if met == Outcome.ACCEPTED:
            succeeded += 1
            assert met_of_other == met
            np.testing.assert_allclose(x, other, atol=1e-8)
            np.testing.assert_array_equal(x[~unknowns][spheres.k :], other[~unknowns][spheres.k :])
            np.testing.assert_allclose(log_ratio, log_ratio_of_other, atol=1e-8)
    assert succeeded > 4


def test_constraints_that_are_left_out_are_noticed():
    """Were only those at the bond kept, others of what moves would break."""
    change = "labels * _touched(tables, moves)", "labels * _touched(tables, at_it)"
    built = mutants.build(mutants.Mutant("kernels.nearby", (change,)))
    wrong = built["surface_of_try"], built["slide_to_level"]
    differ = []
    for seed in range(10):
        spheres = of_seed(seed)
        (x, _, met, _), (other, *_) = spheres.slide(*wrong), spheres.small()
        differ.append(met == Outcome.ACCEPTED and np.abs(x - other).max() > 1e-3)
    assert any(differ)


@pytest.mark.parametrize("most", ["MOST_CONSTRAINTS", "MOST_UNKNOWNS"])
def test_what_does_not_fit_is_not_tried(monkeypatch, most):
    monkeypatch.setattr(nearby, most, 5)
    assert not of_seed(1).slide()[3]


@pytest.mark.parametrize(("measure", "seed"), [(None, 1), ("soft", 2)])
def test_exact_shares_of_a_polymer_at_a_wall(monkeypatch, measure, seed):
    """Ten beads, of which those at a contact move, at 4.5 standard errors."""
    monkeypatch.setattr(stratum, "PACKED_FROM", 0)
    target, start = sticky.at_a_wall(10, 0.2)
    kernel = limpet.StrataSampler(measure, tries=5)
    draws = limpet.sample(target, start, kernel=kernel, draws=400, seed=seed, progress=False)
    held = 1 + draws.posterior["bonds"].values[:, 80:].sum(axis=-1)
    assert sticky.agrees(held, 1.945537)
