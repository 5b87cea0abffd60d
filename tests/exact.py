"""Random problems whose answers are known exactly, and how far a sampler is from them.

In base coordinates z a problem is easy: blocks on spheres, q_b(z) = |z_b|^2 - 1, free Gaussian
coordinates, and flat ones, q_i(z) = z_i. The user's x is z pushed through random maps that keep
volume (linear maps of unit determinant, and shears), which makes curved surfaces of uneven
thickness and yet carries pi_eps to pi_eps and pi_s to pi_s. So there are exact draws from both, the
share of time off S is known, and every point can be taken back to independent uniforms, which a
test can hold against their law.
"""

import contextlib
import dataclasses
import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate
import scipy.special
import scipy.stats

import limpet
from limpet import lanes
from limpet.engine import Example, program
from limpet.kernels.noise import Noise
from limpet.kernels.states import Move

LARGEST = 12  # most unknowns of a random problem
WIDTH = 256  # a problem of n unknowns gets this many chains, 256 // n times
EVERYWHERE = (-np.inf, np.inf)
PAIRS = 3  # pairs of functions f, g whose inner products test self-adjointness


class Shear(NamedTuple):
    """One map of unit determinant: a shear that leaves the phase alone, then a linear map."""

    matrix: np.ndarray
    push: np.ndarray  # across `wave`, so that going back is as easy as going there
    wave: np.ndarray
    phase: float

    def there(self, z):
        """From z, one point or many, to where the map takes it."""
        return (z + self._bump(z)) @ self.matrix.T

    def back(self, x):
        """The inverse."""
        z = x @ np.linalg.inv(self.matrix).T
        return z - self._bump(z)

    def _bump(self, z):
        sin = z.__array_namespace__().sin
        return sin(z @ self.wave + self.phase)[..., None] * self.push


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A target with all that is known about it."""

    spheres: tuple[int, ...]  # the size of each block
    free: int  # free Gaussian coordinates, after the blocks
    eps: tuple[float, ...] | float
    half: bool  # a wall: the last coordinate of the first block is >= 0
    span: tuple[float, float]  # walls: the first free coordinate is between these
    shears: tuple[Shear, ...]
    flat: int = 0  # coordinates that are zero on the surface, after the free ones
    turn: np.ndarray | None = None  # (m, flat), orthonormal columns: data made of the flat ones
    varied: bool = False  # q and eps are multiplied by a function of the point, which cancels

    @property
    def m(self):
        """How many constraints."""
        return len(self.spheres) + (self.flat if self.turn is None else len(self.turn))

    @property
    def n(self):
        """How many unknowns."""
        return sum(self.spheres) + self.free + self.flat

    @functools.cached_property
    def target(self):
        """What a user would write."""
        inside = (lambda x: self._walls(self.base(x))) if self.has_walls else None
        if not self.varied:
            return limpet.Target(
                lambda x: self._constraints(self.base(x)),
                self.eps,
                log_density=(lambda x: -(self._free(x) ** 2).sum() / 2) if self.free else None,
                inside=inside,
            )
        eps, wave = jnp.asarray(self.eps), np.random.default_rng(self.n).normal(size=self.n)

        def factor(x):
            return jnp.exp(0.4 * jnp.sin(x @ wave))

        target = limpet.Target(
            lambda x: factor(x) * self._constraints(self.base(x)),
            lambda x: factor(x) * eps,
            log_density=lambda x: self.m * jnp.log(factor(x)) - (self._free(x) ** 2).sum() / 2,
            inside=inside,
        )
        target.scale = np.asarray(self.eps)  # as `freeze` does, at some start
        return target

    @property
    def has_walls(self):
        """Whether there are walls."""
        return self.half or np.isfinite(self.span).any()

    def base(self, x):
        """The base coordinates of points x, one or many."""
        for shear in reversed(self.shears):
            x = shear.back(x)
        return x

    def draw(self, rng, count, on):
        """Exact draws: of pi_s if on the surface, else of pi_eps."""
        parts = []
        for b, size in enumerate(self.spheres):
            direction = rng.normal(size=(count, size))
            direction /= np.linalg.norm(direction, axis=1, keepdims=True)
            if b == 0 and self.half:
                direction[:, -1] = np.abs(direction[:, -1])
            grid, cdf = self._radii[b]
            radius = 1.0 if on else np.interp(rng.random((count, 1)), cdf, grid)
            parts.append(radius * direction)
        for low, high in self._spans:
            parts.append(scipy.special.ndtri(rng.uniform(low, high, size=(count, 1))))
        flat = rng.normal(size=(count, self.flat)) if self.flat else np.empty((count, 0))
        parts.append(flat * (0.0 if on else self._eps[len(self.spheres) :]))
        z = np.concatenate(parts, axis=1)
        for shear in self.shears:
            z = shear.there(z)
        return z

    def uniforms(self, x, on):
        """Points as independent uniforms on (0, 1): n a point, or n - m on the surface."""
        z, columns = self.base(x), []
        for b, block in enumerate(self._blocks(z)):
            size = self.spheres[b]
            if not on:
                columns.append(np.interp(np.linalg.norm(block, axis=1), *self._radii[b]))
            for i in range(size - 2):
                cosine = block[:, i] / np.linalg.norm(block[:, i:], axis=1)
                shape = (size - i - 1) / 2
                columns.append(scipy.special.betainc(shape, shape, (1 + cosine) / 2))
            turn = np.arctan2(block[:, -1], block[:, -2]) / (2 * np.pi) % 1
            columns.append(2 * turn if b == 0 and self.half else turn)
        for free, (low, high) in zip(self._free_of(z).T, self._spans, strict=True):
            columns.append((scipy.special.ndtr(free) - low) / (high - low))
        if not on:
            columns += list(scipy.special.ndtr(self._flat_of(z) / self._eps[len(self.spheres) :]).T)
        return np.stack(columns, axis=1)

    def share_off(self, kernel):
        """The share of time that a sampler spends off the surface, by (3.11); walls cancel."""
        if Move.OFF not in kernel.moves:
            return float(not isinstance(kernel, limpet.SurfaceSampler))
        blocks = zip(self.spheres, self._eps, strict=False)  # flat ones have 1
        off = np.prod([block_integral(*block) for block in blocks])
        on = kernel.on_probability / kernel.off_probability
        return off / (off + on)

    @property
    def _eps(self):
        """Of each sphere and each flat coordinate."""
        return np.broadcast_to(self.eps, len(self.spheres) + self.flat)

    @functools.cached_property
    def _radii(self):
        return [_radius_law(*pair) for pair in zip(self.spheres, self._eps, strict=False)]

    @property
    def _spans(self):
        """The range of each free coordinate, as probabilities."""
        spans = [self.span, *[EVERYWHERE] * (self.free - 1)][: self.free]
        return [tuple(scipy.special.ndtr(span)) for span in spans]

    def _blocks(self, z):
        cuts = np.cumsum([0, *self.spheres])
        return [z[..., i:j] for i, j in itertools.pairwise(cuts)]

    def _constraints(self, z):
        if self.turn is not None:
            return jnp.asarray(self.turn) @ self._flat_of(z)
        spheres = _squares(self._blocks(z)) - 1
        return jnp.concatenate([spheres, self._flat_of(z)]) if self.flat else spheres

    def _free_of(self, z):
        return z[..., sum(self.spheres) : self.n - self.flat]

    def _flat_of(self, z):
        return z[..., self.n - self.flat :]

    def _free(self, x):
        return self._free_of(self.base(x))

    def _walls(self, z):
        walls = [z[self.spheres[0] - 1]] if self.half else []
        low, high = self.span
        first_free = sum(self.spheres)
        walls += [z[first_free] - low] if np.isfinite(low) else []
        walls += [high - z[first_free]] if np.isfinite(high) else []
        return jnp.stack(walls)


def _squares(blocks):
    return jnp.stack([(block**2).sum() for block in blocks])


def _radius_law(size, eps):
    """The radius of a block under pi_eps: a fine grid, and the distribution function there."""
    grid = np.linspace(0, np.sqrt(1 + 9 * eps), 20_001)
    density = grid ** (size - 1) * np.exp(-((grid**2 - 1) ** 2) / (2 * eps**2))
    cdf = scipy.integrate.cumulative_trapezoid(density, grid, initial=0)
    return grid, cdf / cdf[-1]


def block_integral(size, eps, f=lambda a: 1.0):
    """The integral of f(a) over a block near its sphere, in units of sqrt(2 pi) eps h(0).

    The block has q = a, where the co-area factor is (1 + a)^(size/2 - 1) times that on the sphere.
    """
    end = 9 * eps

    def density(a):
        return f(a) * (1 + a) ** (size / 2 - 1) * np.exp(-(a**2) / (2 * eps**2))

    integral, _ = scipy.integrate.quad(density, max(-1, -end), end)
    return integral / (np.sqrt(2 * np.pi) * eps)


def bent_problem(rng, spheres, free, eps, half=False, span=EVERYWHERE, bends=2, flat=0):
    """A problem with these blocks, bent at random."""
    shears = tuple(_random_shear(rng, sum(spheres) + free + flat) for _ in range(bends))
    return Problem(tuple(spheres), free, eps, half, span, shears, flat)


def dense_problem(m, seed):
    """In 100 unknowns that all constraints involve: spheres, flat ones, and free coordinates."""
    rng = np.random.default_rng(seed)
    blocks = {1: ((90,), 0), 3: ((40, 30, 20), 0), 33: ((4, 3, *[2] * 20), 11)}
    spheres, flat = (blocks | {60: ((3, *[2] * 19), 40)})[m]
    free = 100 - sum(spheres) - flat
    return bent_problem(rng, spheres, free, eps=0.2, flat=flat)


def crowded_problem(n, m, seed, varied=False):
    """As many data as unknowns, or more: some unknowns are known by the prior alone."""
    rng = np.random.default_rng(seed)
    flat = n - n // 3
    turn = np.linalg.qr(rng.normal(size=(m, flat)))[0]
    problem = bent_problem(rng, (), n - flat, eps=0.3, flat=flat, bends=2 if n > 1 else 0)
    return dataclasses.replace(problem, turn=turn, varied=varied)


def random_problem(seed):
    """The problem of this number: everything about it is random."""
    rng = np.random.default_rng(seed)
    # mostly small: those compile and run fast, and show small errors
    m = int(rng.choice([1, 2, 3, 4, 5], p=[0.4, 0.3, 0.15, 0.1, 0.05]))
    free = int(rng.choice([0, 0, 1, 1, 2]))
    spheres = [2] * m
    room = LARGEST - 2 * m - free
    for b in rng.integers(0, m, size=int(rng.random() ** 3 * (room + 1))):
        spheres[b] += 1
    eps = rng.uniform(0.1, 0.4, size=m).round(3).tolist()
    spans = [EVERYWHERE, (-0.7, np.inf), (-0.7, 1.2)]
    return bent_problem(
        rng,
        spheres,
        free,
        eps=tuple(eps) if rng.random() < 0.5 else eps[0],
        half=bool(rng.random() < 0.3),
        span=spans[rng.integers(3)] if free else EVERYWHERE,
    )


def _random_shear(rng, n):
    stretch = rng.uniform(-0.6, 0.6, size=n)
    turns = [np.linalg.qr(rng.normal(size=(n, n)))[0] for _ in range(2)]
    matrix = turns[0] @ np.diag(np.exp(stretch - stretch.mean())) @ turns[1]
    pushed = rng.integers(n)
    wave = rng.normal(size=n)
    wave[pushed] = 0
    wave *= rng.uniform(1.5, 2.5) / np.linalg.norm(wave)
    push = np.zeros(n)
    push[pushed] = rng.uniform(0.6, 1.0)
    return Shear(matrix, push, wave, rng.uniform(0, 2 * np.pi))


@dataclasses.dataclass(frozen=True)
class Torus:
    """A torus whose gradient varies, on which both measures are known.

    |grad q| grows in proportion to the distance from the axis, as area does with the angle around
    the tube. So that angle is uniform under the soft measure, and not under Hausdorff's.
    """

    measure: str
    tube: float = 0.6  # its radius; that of the ring is 1

    n, m = 3, 1

    @functools.cached_property
    def target(self):
        """The torus as a quartic."""

        def q(x):
            squares = x**2
            return jnp.array([(squares.sum() + 1 - self.tube**2) ** 2 - 4 * squares[:2].sum()])

        return limpet.Target(q, eps=0.1)

    def share_off(self, kernel):
        """Only the surface is of interest."""
        return 0.0

    def draw(self, rng, count, on):
        """Exact draws on the surface."""
        grid = np.linspace(-np.pi, np.pi, 20_001)
        around, along = np.interp(rng.random(count), self._cdf(grid), grid), rng.random(count)
        reach = 1 + self.tube * np.cos(around)
        turn = 2 * np.pi * along
        parts = reach * np.cos(turn), reach * np.sin(turn), self.tube * np.sin(around)
        return np.stack(parts, axis=1)

    def uniforms(self, x, on):
        """Points as independent uniforms: around the tube, and along the ring."""
        around = np.arctan2(x[:, 2], np.hypot(x[:, 0], x[:, 1]) - 1)
        along = np.arctan2(x[:, 1], x[:, 0]) / (2 * np.pi) % 1
        return np.stack([self._cdf(around), along], axis=1)

    def _cdf(self, around):
        uneven = self.tube * np.sin(around) if self.measure == "hausdorff" else 0.0
        return (around + uneven) / (2 * np.pi) + 0.5


class Path(NamedTuple):
    """Where chains went: their start, then one row a step."""

    x: np.ndarray  # (1 + steps, chains, n)
    on: np.ndarray  # (1 + steps, chains)
    move: np.ndarray  # (steps, chains)
    outcome: np.ndarray  # (steps, chains)


def advance(kernel, target, x, on, steps, seed) -> Path:
    """Take `steps` steps from points x (chains, n), each on the surface or not.

    It asks nothing of the kernel but `start` and `move`, made by limpet's own compiler: by the
    machine code that users run, in files that are marked so (conftest.py).
    """
    rng, n = np.random.default_rng(seed), x.shape[1]
    number = jax.ShapeDtypeStruct((), float)
    constants = kernel, target

    def start(constants, on, x):
        kernel, target = constants
        return on, type(kernel).start(kernel, target, x)._replace(on=on)

    def step(constants, state, noise):
        kernel, target = constants
        state, info = type(kernel).move(kernel, target, {}, noise, state)
        return state, Path(state.x, state.on, info.move, info.outcome)

    point, flag = jax.ShapeDtypeStruct((n,), float), jax.ShapeDtypeStruct((), bool)
    begin = program(start, Example(constants, flag, point), width=len(x), block=1)
    states = begin(constants, on, x[:, None])[1]
    states = jax.tree.map(lambda leaf: leaf[:, 0], states)
    state = jax.tree.map(lambda leaf: leaf[0], states)
    size = type(kernel).noise_size(kernel, state)
    noise = Noise(rng.normal(size=(len(x), steps, size)), *rng.random(size=(2, len(x), steps)))
    one = Noise(jax.ShapeDtypeStruct((size,), float), number, number)
    go = program(step, Example(constants, state, one), width=len(x), block=steps)
    path = jax.tree.map(lambda leaf: np.swapaxes(leaf, 0, 1), go(constants, states, noise)[1])
    return path._replace(x=np.stack([x, *path.x]), on=np.stack([on, *path.on]))


@contextlib.contextmanager
def quickly():
    """What is compiled inside is not optimized."""
    before = lanes.is_quick()
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def mapped(function):
    """A function of one row as one of many, made by limpet's own compiler at its first call.

    That takes a fifth of the time of `jax.jit(jax.vmap(function))`.
    """

    @functools.cache
    def compiled(tree, shapes, width):
        row = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*shape) for shape in shapes])

        def step(constants, carry, row):
            return carry, function(*row)

        return program(step, Example((), (), row), width=width, block=1)

    def of_all(*rows):
        leaves, tree = jax.tree.flatten(jax.tree.map(np.asarray, rows))
        shapes = tuple((leaf.shape[1:], leaf.dtype) for leaf in leaves)
        given = jax.tree.unflatten(tree, [leaf[:, None] for leaf in leaves])
        made = compiled(tree, shapes, len(leaves[0]))((), (), given)[1]
        return jax.tree.map(lambda leaf: leaf[:, 0], made)

    return of_all


def exact_path(problem, kernel, chains, steps, seed) -> Path:
    """Chains that start from exact draws of the law that the kernel is to keep."""
    rng = np.random.default_rng(seed)
    on = rng.random(chains) >= problem.share_off(kernel)
    draws = [problem.draw(rng, chains, place) for place in (False, True)]
    x = np.where(on[:, None], draws[True], draws[False])
    return advance(kernel, problem.target, x, on, steps, seed)


def p_values(problem, kernel, path) -> dict[str, float]:
    """Tests that chains which started from the exact law still have it, and are reversible."""
    share = problem.share_off(kernel)
    x, on = path.x[-1], path.on[-1]
    found = {}
    if 0 < share < 1:
        found["share"] = scipy.stats.binomtest(int(np.sum(~on)), len(on), share).pvalue
    if share > 0:
        found |= uniformity("off", problem.uniforms(x[~on], on=False))
    if share < 1:
        found |= uniformity("on", problem.uniforms(x[on], on=True))
    odd = _waves(path) | _ratios(kernel, problem.target, path, share)
    return found | {name: symmetry_p_value(values.sum(axis=0)) for name, values in odd.items()}


def invariance_p_values(problem, kernel, chains, steps, seed) -> dict[str, float]:
    """The p-values of a fresh run from exact draws."""
    return p_values(problem, kernel, exact_path(problem, kernel, chains, steps, seed))


def uniformity(place, u):
    """Kolmogorov-Smirnov for each column, and for sums mod 1 of neighbours, uniform as well."""
    columns = {f"{place} {i}": u[:, i] for i in range(u.shape[1])}
    for i in range(u.shape[1] - 1):
        columns[f"{place} {i}+{i + 1}"] = (u[:, i] + u[:, i + 1]) % 1
    return {name: scipy.stats.kstest(column, "uniform").pvalue for name, column in columns.items()}


def symmetry_p_value(values):
    """That independent numbers are symmetric about zero: a bound, for any number of them."""
    size = np.linalg.norm(values)
    z = values.sum() / size if size else 0.0
    return min(1.0, 2 * np.exp(-(z**2) / 2))


def _waves(path):
    """Section 4, (f, Rg) = (Rf, g): f(X) g(Y) - g(X) f(Y) at each step, for random waves f, g."""
    n = path.x.shape[-1]
    rng = np.random.default_rng(n)
    odd = {}
    for k in range(PAIRS):
        phases = rng.uniform(0, 2 * np.pi, size=(2, 2))
        f, g = (np.cos(2**k * path.x @ rng.normal(size=n) + p[path.on.astype(int)]) for p in phases)
        odd[f"wave {k}"] = f[:-1] * g[1:] - g[:-1] * f[1:]
    return odd


def _ratios(kernel, target, path, share):
    """More functions of X and Y that change sign with time: the parts of acceptance ratios."""
    points, chains, n = path.x.shape
    with quickly():
        local = mapped(functools.partial(_local, target))(path.x.reshape(-1, n))
    values, normals, level = (part.reshape(points, chains, *part.shape[1:]) for part in local)
    step = np.diff(path.x, axis=0)

    def across(gram, transposed):
        """The square of the part of each step that is normal to the surface."""
        slopes = transposed @ step[..., None]
        return np.sum(slopes * np.linalg.solve(gram, slopes), axis=(-1, -2))

    on = path.on.astype(int)
    stays_on, stays_off, leaves = (
        on[:-1] * on[1:],
        (1 - on[:-1]) * (1 - on[1:]),
        -np.diff(on, axis=0),
    )
    odd = {}
    if share < 1:
        transposed = np.swapaxes(normals, -1, -2)
        gram = transposed @ normals
        odd["hard density"] = stays_on * np.diff(level - np.linalg.slogdet(gram)[1] / 2, axis=0)
        odd["hard slide"] = stays_on * (
            across(gram[1:], transposed[1:]) - across(gram[:-1], transposed[:-1])
        )
    if share > 0:
        odd["soft density"] = stays_off * np.diff(level - np.sum(values**2, axis=-1) / 2, axis=0)
    if Move.OFF in kernel.moves:
        odd["off and on"] = leaves * np.linalg.norm(step, axis=-1)
    return odd


def _local(target, x):
    return *target.values_and_normals(x), target.log_density_at(x)
