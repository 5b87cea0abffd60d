"""Sample both models of the paper, and show how it went."""

import rich

import limpet
from limpet.paper import ellipsoid_sphere, two_spheres

for model in (two_spheres, ellipsoid_sphere):
    target = limpet.Target(model, eps=0.005)
    draws = limpet.sample(target, start=[1.0, 0.0, 0.0], draws=2_000, chains=256, seed=0)
    run = draws.attrs
    rich.print(f"\n[bold]{model.__name__}[/bold], eps = {target.eps}")
    rich.print(limpet.summary(draws))
    rich.print(
        f"{run['steps']:,} steps in {run['seconds']:.1f} s,"
        f" after {run['compile_seconds']:.1f} s of compiling"
    )
