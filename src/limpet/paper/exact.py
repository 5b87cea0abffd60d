"""What is exactly true of the paper's two models, by quadrature."""

from collections.abc import Callable

import numpy as np
import scipy.optimize

from limpet.paper.models import eps_of

FINE = 5  # grid points in a length eps: the error is below 1e-9, since the integrand is smooth
FAR = 9  # |q| / eps beyond which the density is below 1e-17 of its largest value
CHUNK = 2**14
NODES = 16  # Gauss points of a bin


def marginal(q: Callable, beta: float, x1) -> np.ndarray:
    """The unnormalised density of x_1: exp(-beta |q|^2), integrated over x_2 and x_3.

    By the midpoint rule, as in the paper. `q` is one of the paper's two models: both have the
    sphere of radius sqrt(2) about (0, 0, 1) for their first constraint, which bounds the grid.

    Examples
    --------
    >>> from limpet.paper import marginal, two_spheres
    >>> print(marginal(two_spheres, 1000, [0.03, 0.99]))
    [0.00090725 0.00154116]
    """
    eps = eps_of(beta)
    half = np.sqrt(2 + FAR * eps)
    axis = np.arange(-half, half, eps / FINE)
    x2, x3 = np.meshgrid(axis, 1 + axis)
    square = (x2**2 + (x3 - 1) ** 2).ravel()
    order = np.argsort(square)  # so that the points near the sphere are together, at every x_1
    square, x2, x3 = square[order], x2.ravel()[order], x3.ravel()[order]

    def integral(x):
        ends = np.searchsorted(square, 2 - x**2 + FAR * eps * np.array([-1, 1]))
        first, last = ends // CHUNK * CHUNK + [0, CHUNK]  # few shapes, since JAX compiles for each
        values = np.asarray(q((x, x2[first:last], x3[first:last])))
        return np.exp(-beta * (values**2).sum(axis=0)).sum() * (eps / FINE) ** 2

    return np.array([integral(x) for x in np.atleast_1d(x1)])


def bin_averages(q: Callable, beta: float, edges) -> np.ndarray:
    """The mean of the unnormalised density of x_1 over each bin.

    Examples
    --------
    >>> from limpet.paper import bin_averages, two_spheres
    >>> print(bin_averages(two_spheres, 1000, [1.14, 1.2]))
    [0.00323186]
    """
    edges = np.asarray(edges)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    centres, halves = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    x1 = centres[:, None] + halves[:, None] * nodes
    return marginal(q, beta, x1.ravel()).reshape(x1.shape) @ weights / 2


def inverse_z(q: Callable, beta: float) -> float:
    """1 / Z_eps, where Z_eps is the integral of exp(-beta |q|^2).

    Examples
    --------
    >>> from limpet.paper import ellipsoid_sphere, inverse_z
    >>> round(inverse_z(ellipsoid_sphere, 1000), 2)
    84.59
    """
    x1 = _right_half(beta)
    return float(1 / (2 * marginal(q, beta, x1).sum() * (x1[1] - x1[0])))


def mean_square(q: Callable, beta: float) -> float:
    """The mean of x_1^2 under pi_eps.

    Examples
    --------
    >>> from limpet.paper import mean_square, two_spheres
    >>> round(mean_square(two_spheres, 50), 6)     # 3/4 - eps^2 / 8
    0.74875
    """
    x1 = _right_half(beta)
    density = marginal(q, beta, x1)
    return float(x1**2 @ density / density.sum())


def mean_square_on_ellipsoid_sphere() -> float:
    """The mean of x_1^2 under pi_s on the ellipsoid-sphere curve: the limit eps -> 0.

    On the curve, x_2 = 2 + sqrt(8) cos t and x_3 = 5/3 + sqrt(40/9) sin t, and t has a density
    proportional to 1 / |x_1|, which ends where x_1 is zero.

    Examples
    --------
    >>> from limpet.paper import mean_square_on_ellipsoid_sphere
    >>> round(mean_square_on_ellipsoid_sphere(), 7)
    0.8127763
    """

    def square_of_x1(t):
        x2, x3 = 2 + np.sqrt(8) * np.cos(t), 5 / 3 + np.sqrt(40 / 9) * np.sin(t)
        return 2 - x2**2 - (x3 - 1) ** 2  # x_1^2

    ends = ((2.5, 3.5), (3.5, 4.5))
    first, last = (scipy.optimize.root_scalar(square_of_x1, bracket=each).root for each in ends)
    phase = (np.arange(100) + 0.5) * np.pi / 100
    square = square_of_x1((first + last) / 2 - (last - first) / 2 * np.cos(phase))
    density = np.sin(phase) / np.sqrt(square)  # both vanish at the ends, their ratio does not
    return float(square @ density / density.sum())


def _right_half(beta):
    """Midpoints of x_1 > 0, to where the density has vanished: both models are symmetric in x_1."""
    eps = eps_of(beta)
    return np.arange(0.5 * eps / FINE, np.sqrt(2 + FAR * eps), eps / FINE)
