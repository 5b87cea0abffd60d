"""Partition functions: how Z_eps, the integral of the density, compares with its limit.

Off and On moves lead from S to its surroundings and back, so their acceptance tells how the two
weigh: Bennett's identity, with the constants of the Surface Augmented Sampler (`limpet.kernels`).
"""

import math
import signal
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from limpet import errors
from limpet.arguments import UNKNOWN_NOISE
from limpet.draws.attributes import attributes_of
from limpet.errors import InputError, InterruptedWarning, LimpetWarning, warn
from limpet.geometry.start import find_vectors
from limpet.geometry.start_checks import check_resolution
from limpet.kernels import SAS
from limpet.layout import read_points
from limpet.report.progress import Show
from limpet.report.summary import check_draws
from limpet.run.executors import Executor
from limpet.run.signals import on_interruption, tell_interruption
from limpet.sampling import sample
from limpet.shapes import Vector
from limpet.target import Target, check_target

NO_EVIDENCE = (
    "has a function for eps: Z_eps has the limit Z_S only where eps is one number after the other."
    " Expected a target with numbers for eps; give the noise a value."
)
FEWEST_CHAINS = 4  # chains: Student's factor is 3.2 then, and soon out of hand with fewer


class Ratio(NamedTuple):
    """A ratio of partition functions, and how well it is known."""

    value: float
    standard_error: float

    @property
    def log(self) -> float:
        """The logarithm of the value."""
        return math.log(self.value)

    @property
    def log_error(self) -> float:
        """The standard error of the logarithm."""
        return self.standard_error / self.value


def partition_ratio(draws: xr.DataTree) -> Ratio:
    """R = Z_eps / ((2 pi)^(m/2) eps_1 ... eps_m Z_S): what the limit eps -> 0 leaves out.

    Z_eps is the integral of exp(l - |q/eps|^2 / 2) over space, and Z_S that of exp(l) det(K)^(-1/2)
    over the surface, with the Gram matrix K of the gradients of q. R is the mean acceptance
    probability of Off moves over that of On moves.

    Parameters
    ----------
    draws : xarray.DataTree
        From `limpet.sample` with the kernel `SAS`, in 4 chains or more.

    Returns
    -------
    Ratio
        A named tuple (`value`, `standard_error`), with properties `log` and `log_error` for the
        logarithm. The error comes from how the chains differ (the jackknife), so it knows of
        autocorrelation, and is itself uncertain when chains are few: take Student's t with
        chains - 1 degrees of freedom. An interval that holds the truth in 95 % of cases is 3.2
        standard errors to each side with 4 chains, 2.1 with 16, and 2.0 with 128. It does not know
        of a bias of order 1/draws, so take several times as many draws as chains.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> circle = limpet.Target(lambda x: jnp.array([x @ x - 1]), eps=0.1)
    >>> draws = limpet.sample(circle, [1.0, 0.0], draws=500, chains=16, kernel=limpet.SAS())
    >>> ratio = limpet.partition_ratio(draws)      # it is 1, as for every circle written like this
    >>> abs(ratio.value - 1) < 0.05
    True
    """
    posterior = check_draws(draws)
    if draws.attrs["kernel"] != "SAS":
        raise InputError(
            f"draws are from kernel={draws.attrs['kernel']}, which does not move on and off the"
            " surface in one law: expected draws made with kernel=limpet.SAS(...)."
        )
    if attributes_of(draws)["parameters"].get("eps") == UNKNOWN_NOISE["eps"]:
        raise InputError(f"draws are of a target that {NO_EVIDENCE}")
    moves = draws["moves"].to_dataset().sel(move=["off", "on"])
    chains = moves.sizes.get("chain", 1)
    if chains < FEWEST_CHAINS:
        raise InputError(
            f"draws has {chains} chains: expected {FEWEST_CHAINS} or more, since the standard error"
            f" comes from how they differ. Sample with chains={FEWEST_CHAINS}, or better 128."
        )
    visits = posterior.sizes["draw"] * draws.attrs["thin"]
    if visits < chains:
        # chains are counted until a visit off S, but mostly begin on S: their first visits are
        # fresh from there, and land too easily
        warn(
            f"draws has {chains} chains of {visits} visits off the surface: the ratio of so many"
            " short chains may be too small by more than its standard error. Sample more draws in"
            " fewer chains.",
            LimpetWarning,
        )
    tries = moves["counts"].sum("outcome").values
    accepted = np.where(tries, moves["acceptance"].values * tries, 0.0)
    fewer_accepted, fewer_tries = (sums.sum(axis=0) - sums for sums in (accepted, tries))
    if not (fewer_accepted > 0).all():
        off, on = tries.sum(axis=0)
        raise InputError(
            f"draws has {off} tries of off and {on} of on moves, with an acceptance that adds up to"
            f" {accepted[:, 0].sum():.3g} and {accepted[:, 1].sum():.3g}: expected some of both in"
            " two chains at least. Sample more draws, or with larger off_probability and"
            " on_probability."
        )
    without_one = _off_over_on(fewer_accepted, fewer_tries)
    value = _off_over_on(accepted.sum(axis=0), tries.sum(axis=0))
    return Ratio(float(value), math.sqrt((chains - 1) * np.var(without_one)))


def ladder(
    target: Target,
    start,
    *,
    eps,
    draws: int = 1_000,
    chains: int = 128,
    warmup: int = 1_000,
    kernel: SAS | None = None,
    seed: int = 0,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool | Show = True,
) -> xr.Dataset:
    """The partition function as a curve: `partition_ratio` for one eps after the other.

    All rungs share one compiled program, and each begins where the last one ended. Ctrl-C returns
    the rungs that are finished; a second one stops at once.

    Parameters
    ----------
    target : Target
        Whose constraints, log density and walls; its own eps is not used.
    start : vector, batch of vectors, pytree or list of pytrees
        As in `limpet.sample`.
    eps : sequence
        The rungs: numbers, or for each rung one number per constraint. The order is up to you.
    draws, chains : int
        Draws per chain, and chains, of every rung; 2 draws and 4 chains at least.
    warmup : int
        Steps per chain before the first draw of every rung, which also tune step sizes.
    kernel : SAS, optional
        Default `SAS()`. Step sizes that are eps by default follow the rungs.
    seed : int
        The same seed gives the same numbers. Rungs have random numbers of their own.
    workers, executor, progress
        As in `limpet.sample`.

    Returns
    -------
    xarray.Dataset
        `ratio` and `standard_error` as from `partition_ratio`, and `log_z` with `log_z_error`, the
        logarithm of Z_eps / Z_S. The dimension is `eps`, or `rung` if there are several eps.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import limpet
    >>> bond = limpet.Target(lambda x: jnp.array([jnp.linalg.norm(x) - 1]), eps=0.1)
    >>> curve = limpet.ladder(bond, [1.0, 0.0, 0.0], eps=[0.3, 0.1, 0.01], draws=200)
    >>> exact = 1 + curve["eps"] ** 2              # the mean of |x|^2, if |x| - 1 is Gaussian
    >>> bool((abs(curve["ratio"] - exact) < 5 * curve["standard_error"]).all())
    True
    """
    check_target(target)
    if not target.has_fixed_eps:
        raise InputError(f"target={target!r} {NO_EVIDENCE}")
    kernel = SAS() if kernel is None else kernel
    if type(kernel) is not SAS:
        raise InputError(
            f"kernel={kernel!r}: expected limpet.SAS(...), whose moves tell the ratio."
        )
    draws, chains = errors.whole("draws", draws, 2), errors.whole("chains", chains, FEWEST_CHAINS)
    seed = errors.whole("seed", seed, 0)
    layout, guesses = read_points("start", start)
    rungs = _rungs(target.on_vectors(layout), eps, jnp.asarray(guesses[0]))
    kernel.check_room(rungs[0], jnp.asarray(guesses[0]))
    points = find_vectors(rungs[0], guesses, chains, seed, "start")
    for rung in rungs:  # before any work is done
        check_resolution(rung, points)

    ratios, came = [], []
    for k, rung in enumerate(rungs):
        try:
            with on_interruption(came.append):
                tree = sample(
                    rung,
                    points,
                    draws=draws,
                    chains=chains,
                    warmup=warmup,
                    kernel=kernel,
                    # with one seed for all, the errors of the rungs would be correlated
                    seed=int(np.random.SeedSequence([seed, k]).generate_state(1)[0]),
                    workers=workers,
                    executor=executor,
                    progress=progress,
                )
        except KeyboardInterrupt as interruption:
            if interruption.args:  # asked twice
                raise
            came.append(InterruptedWarning("", signal.SIGINT))  # before the run had begun
        if came:
            break
        ratios.append(partition_ratio(tree))
        points = tree["posterior"].to_dataset()["x"].values[:, -1]
    if came:
        message = f"Interrupted: {len(ratios)} of {len(rungs)} rungs were finished."
        tell_interruption(InterruptedWarning(message, came[0].signal))
    return _curve(rungs, ratios, rungs[0].values(jnp.asarray(points[0])).size)


def _off_over_on(accepted: np.ndarray, tries: np.ndarray) -> np.ndarray:
    off, on = np.moveaxis(accepted / tries, -1, 0)
    return off / on


def _rungs(target: Target, eps: Any, x: Vector) -> list[Target]:
    """The target with each eps: all numbers, or all with one per constraint, for one program."""
    try:
        given = list(eps)
    except TypeError:
        given = []
    if not given:
        raise InputError(f"eps={eps!r}: expected a sequence of eps, such as [0.1, 0.01].")
    rungs = [target.with_eps(each).freeze(x) for each in given]
    if all(np.ndim(rung.eps) == 0 for rung in rungs):
        return rungs
    m = jax.eval_shape(target.values, x).shape
    return [rung.with_eps(np.broadcast_to(rung.eps, m)) for rung in rungs]


def _curve(rungs: list[Target], ratios: list[Ratio], m: int) -> xr.Dataset:
    """What is known of the rungs that are finished."""
    value, error = np.reshape(ratios, (-1, 2)).T
    eps = np.array([rung.eps for rung in rungs])[: len(ratios)]
    each = eps if eps.ndim == 2 else np.tile(eps[:, None], m)
    dim, coordinate = ("rung", ("rung", "constraint")) if eps.ndim == 2 else ("eps", "eps")
    return xr.Dataset(
        {
            "ratio": (dim, value),
            "standard_error": (dim, error),
            "log_z": (dim, np.log(value) + m / 2 * np.log(2 * np.pi) + np.log(each).sum(axis=1)),
            "log_z_error": (dim, error / value),
        },
        coords={"eps": (coordinate, eps)},
    )
