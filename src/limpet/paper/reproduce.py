"""The paper, reproduced: every experiment run, judged, and shown."""

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import rich.box
import rich.table
import xarray as xr

from limpet.errors import InputError, InterruptedWarning, MixingWarning
from limpet.paper import experiments, figures, verdicts
from limpet.paper.experiments import PAPERS_SIZE, Effort
from limpet.paper.verdicts import Verdict
from limpet.run.signals import on_interruption

EFFORTS = {"quick": 0.1, "default": 1.0, "full": 2.0}


class Experiment(NamedTuple):
    """What is run, how it is judged, and its picture, if there is one."""

    title: str
    about: str
    run: Callable[[Effort], xr.Dataset]
    judge: Callable[[xr.Dataset], list[Verdict]]
    draw: Callable[[xr.Dataset], Any] | None


class Finding(NamedTuple):
    """What came of an experiment."""

    name: str
    experiment: Experiment
    data: xr.Dataset
    verdicts: list[Verdict]
    seconds: float

    def passed(self) -> bool:
        """Whether no verdict failed."""
        return all(verdict.passed is not False for verdict in self.verdicts)


EXPERIMENTS = {
    "figure1a": Experiment(
        "Figure 1 (A): the angle is uniform",
        "Two spheres meet in a circle. By symmetry the angle around it is uniform, at every ε."
        " Bars are standard errors, from independent chains.",
        experiments.figure_1a,
        verdicts.of_angles,
        figures.angles,
    ),
    "figure1b": Experiment(
        "Figure 1 (B): mixing does not depend on ε, two spheres",
        "Autocorrelation of x₁ over the draws off the surface, in order, as β = 1/2ε² grows. τ is"
        " the integrated autocorrelation time by Sokal's window.",
        experiments.figure_1b,
        verdicts.of_autocorrelations,
        figures.autocorrelations,
    ),
    "figure2a": Experiment(
        "Figure 2 (A): the density of x₁, two spheres",
        "Each bin's share of the draws, divided by the exact density of x₁ (by quadrature, not"
        " normalised), is the same number 1/Z in every bin if the draws are right. The paper takes"
        " the density at the bin's centre, which stands badly for its mean where the density bends:"
        " the outer bins drift. With the mean over the bin they fall into line.",
        experiments.figure_2a,
        verdicts.of_bins,
        figures.bins,
    ),
    "figure2b": Experiment(
        "Figure 2 (B): the density of x₁, ellipsoid-sphere",
        "The same for an ellipsoid and a sphere. The paper prints the squares of 2, 3 and 5 as the"
        " ellipsoid's denominators, but that ellipsoid does not meet the sphere; with 2, 3 and 5"
        " themselves all of the paper's figures come out.",
        experiments.figure_2b,
        verdicts.of_bins,
        figures.bins,
    ),
    "figure3a": Experiment(
        "Figure 3 (A): mixing does not depend on ε, ellipsoid-sphere",
        "As Figure 1 (B). Here the gradients' lengths vary along the curve, so that Hard moves are"
        " also refused.",
        experiments.figure_3a,
        verdicts.of_autocorrelations,
        figures.autocorrelations,
    ),
    "figure3b": Experiment(
        "Figure 3 (B): Gaussian Metropolis stops mixing",
        "Its steps must be as small as ε. Step sizes are set to accept 40 %. The paper's times come"
        " from fewer steps and are noisier. Long runs of limpet (8·10⁸ steps) give a growth of"
        " 5.03 ± 0.03 from β = 5 to 20.",
        experiments.figure_3b,
        verdicts.of_metropolis,
        figures.autocorrelations,
    ),
    "table1": Experiment(
        "Table 1: Off and On are accepted more and more often as ε falls",
        "Mean acceptance probability on ellipsoid-sphere. Detailed balance makes Off and On equal"
        " up to a factor 1 + O(ε²), so that the difference of the published two shows their error.",
        experiments.table_1,
        verdicts.of_table_1,
        figures.acceptance,
    ),
    "flat": Experiment(
        "Section 3: on flat surfaces Off and On are always accepted",
        "The paper proves it and does not show it. Random linear constraints, ε = 0.01.",
        experiments.flat_surfaces,
        verdicts.of_flat_surfaces,
        None,
    ),
    "tiny-eps": Experiment(
        "Beyond the paper: the same mixing at ε = 7·10⁻⁴ and 7·10⁻⁶",
        "The paper claims that mixing is uniform in ε, and stops at β = 2·10⁴.",
        experiments.tiny_eps,
        verdicts.of_tiny_eps,
        figures.tiny_eps,
    ),
    "convergence": Experiment(
        "Beyond the paper: the soft distribution tends to the hard one as ε²",
        "The mean of x₁² on ellipsoid-sphere, by quadrature and by limpet, less its limit on the"
        " surface, equation (1.4).",
        experiments.convergence,
        verdicts.of_convergence,
        figures.convergence,
    ),
}


def reproduce(effort: Effort = PAPERS_SIZE, only: list[str] | None = None) -> Iterator[Finding]:
    """Run the paper's experiments, one after the other.

    Parameters
    ----------
    effort : Effort
        How much to draw, from which seed, and whom to show the progress.
    only : list of str, optional
        Names from `limpet.paper.EXPERIMENTS`; all by default.

    Yields
    ------
    Finding
        The data, and a verdict on each number.

    Examples
    --------
    >>> from limpet.paper import Effort, reproduce
    >>> [flat] = reproduce(Effort(size=0.1), only=["flat"])
    >>> flat.passed()
    True
    """
    for name in only or ():
        if name not in EXPERIMENTS:
            raise InputError(f"only={name!r}: expected some of {', '.join(EXPERIMENTS)}.")
    for number, (name, experiment) in enumerate(EXPERIMENTS.items()):
        if only and name not in only:
            continue
        began = time.monotonic()
        own = dataclasses.replace(effort, seed=effort.seed_of(number))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MixingWarning)  # slow mixing is what some of them show
            with on_interruption(_give_up):
                data = experiment.run(own)
        yield Finding(name, experiment, data, experiment.judge(data), time.monotonic() - began)


def _give_up(interruption: InterruptedWarning):
    raise interruption


def table(findings: list[Finding]) -> rich.table.Table:
    """Published, exact and measured, side by side, with the verdicts."""
    result = rich.table.Table(box=rich.box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    result.add_column("", overflow="fold")
    for name in ("published", "exact", "limpet"):
        result.add_column(name, justify="right", no_wrap=True)
    result.add_column("verdict")
    for finding in findings:
        result.add_row(finding.experiment.title, style="bold")
        for verdict in finding.verdicts:
            mark = {True: "[green]ok[/]", False: f"[red]FAILED[/]: {verdict.rule}", None: ""}
            result.add_row(
                f"  {verdict.quantity}",
                verdict.published,
                verdict.exact,
                verdict.measured(),
                mark[verdict.passed],
            )
        result.add_section()
    return result
