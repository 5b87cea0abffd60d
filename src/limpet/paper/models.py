"""The models of the paper's section 4, and the flat surfaces of its section 3."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

START = (1.0, 0.3, 0.1)  # near both surfaces


def two_spheres(x: Float[Array, "3"]) -> Float[Array, "2"]:
    """Two spheres of radius sqrt(2) that meet in a circle; (1, 0, 0) is on it.

    Examples
    --------
    >>> import limpet
    >>> from limpet.paper import two_spheres
    >>> limpet.Target(two_spheres, eps=0.01)
    Target(q=two_spheres, eps=0.01)
    """
    return jnp.stack([_sphere(x), x[0] ** 2 + (x[1] + 1) ** 2 + x[2] ** 2 - 2])


def ellipsoid_sphere(x: Float[Array, "3"]) -> Float[Array, "2"]:
    """A sphere of radius sqrt(2) and an ellipsoid.

    The paper prints the ellipsoid with the *squares* of 2, 3 and 5 under x1^2, (x2 + 1)^2 and x3^2;
    that ellipsoid does not meet the sphere at all. With 2, 3 and 5 themselves the paper's Table 1
    comes out to three digits, so these are what its experiments used.

    Examples
    --------
    >>> import limpet
    >>> from limpet.paper import ellipsoid_sphere
    >>> limpet.Target(ellipsoid_sphere, eps=0.01)
    Target(q=ellipsoid_sphere, eps=0.01)
    """
    return jnp.stack([_sphere(x), x[0] ** 2 / 2 + (x[1] + 1) ** 2 / 3 + x[2] ** 2 / 5 - 1])


def _sphere(x):
    return x[0] ** 2 + x[1] ** 2 + (x[2] - 1) ** 2 - 2


def angle(x) -> np.ndarray:
    """The angle of points (..., 3) around the circle in which the two spheres meet.

    Its plane has the normal (0, 1, 1), its middle is (0, -1/2, 1/2).

    Examples
    --------
    >>> import numpy as np
    >>> from limpet.paper import angle
    >>> float(angle(np.array([1.0, -0.5, 0.5])))
    0.0
    """
    return np.arctan2((x[..., 2] - x[..., 1] - 1) / np.sqrt(2), x[..., 0])


def flat_surface(n: int, m: int, seed: int = 0) -> Callable:
    """A linear q(x) = A^T x with a random A, n by m, its columns about as long as one: (3.2).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from limpet.paper import flat_surface
    >>> flat_surface(5, 2)(jnp.zeros(5)).shape
    (2,)
    """
    columns = np.random.default_rng(seed).normal(size=(n, m)) / n**0.5
    return lambda x: x @ columns


def eps_of(beta: float) -> float:
    """The eps of an inverse temperature: beta = 1 / (2 eps^2).

    Examples
    --------
    >>> from limpet.paper import eps_of
    >>> eps_of(5000)
    0.01
    """
    return (1 / (2 * beta)) ** 0.5
