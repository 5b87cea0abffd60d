"""The paper, Magnani, arXiv 2206.05644: its models, its experiments, and exact values."""

from limpet.paper.exact import (
    bin_averages,
    inverse_z,
    marginal,
    mean_square,
    mean_square_on_ellipsoid_sphere,
)
from limpet.paper.experiments import (
    Effort,
    convergence,
    figure_1a,
    figure_1b,
    figure_2a,
    figure_2b,
    figure_3a,
    figure_3b,
    flat_surfaces,
    table_1,
    tiny_eps,
)
from limpet.paper.models import START, angle, ellipsoid_sphere, eps_of, flat_surface, two_spheres
from limpet.paper.report import write_report
from limpet.paper.reproduce import EXPERIMENTS, Finding, reproduce
from limpet.paper.verdicts import Verdict

__all__ = [
    "EXPERIMENTS",
    "START",
    "Effort",
    "Finding",
    "Verdict",
    "angle",
    "bin_averages",
    "convergence",
    "ellipsoid_sphere",
    "eps_of",
    "figure_1a",
    "figure_1b",
    "figure_2a",
    "figure_2b",
    "figure_3a",
    "figure_3b",
    "flat_surface",
    "flat_surfaces",
    "inverse_z",
    "marginal",
    "mean_square",
    "mean_square_on_ellipsoid_sphere",
    "reproduce",
    "table_1",
    "tiny_eps",
    "two_spheres",
    "write_report",
]
