"""The surface sampler of Zappa, Holmes-Cerfon and Goodman (ZHG): Hard moves only."""

import dataclasses

from limpet import errors
from limpet.kernels.base import on_surface
from limpet.kernels.travel import Traveller, slid

MEASURES = {"soft": 1.0, "hausdorff": 0.0}


@dataclasses.dataclass(frozen=True)
class SurfaceSampler(Traveller):
    """Sample on the surface itself, by slides along it.

    Parameters
    ----------
    measure : {"soft", "hausdorff"}
        "soft": pi_s, with density exp(l) det(K)^(-1/2), the limit of pi_eps as eps falls.
        "hausdorff": density exp(l) per unit of the surface's area.
    sigma_hrd : float
        Size of the slides.
    trajectory : int, optional
        Slides per draw; None leaves it to warm-up. With more than one, they follow the gradient of
        the density, and `sigma_hrd` is varied a little from draw to draw.
    newton_cap, tolerance, reverse_tolerance
        As in `limpet.SAS`.

    Examples
    --------
    >>> import limpet
    >>> limpet.SurfaceSampler(measure="hausdorff").measure
    'hausdorff'
    """

    measure: str = "soft"
    sigma_hrd: float = 1.0
    trajectory: int | None = 1
    newton_cap: int = 8
    tolerance: float = 1e-12
    reverse_tolerance: float = 1e-8

    static = ("measure", "trajectory", "newton_cap")

    def __post_init__(self):
        if self.measure not in tuple(MEASURES):
            raise errors.InputError(
                f"measure={self.measure!r}: expected one of {', '.join(map(repr, MEASURES))}."
            )
        super().__post_init__()

    def is_draw(self, state):
        """Every state is a draw."""
        return state.on

    def start(self, target, x):
        """At x."""
        return on_surface(target, x, self.sigma_hrd)

    def move(self, target, noise, state):
        """One trajectory on S."""
        return slid(self, target, noise, state, MEASURES[self.measure])
