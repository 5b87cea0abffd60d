"""Draw docs/plot.png, what `limpet.plot` shows of a run on the paper's two spheres."""

from pathlib import Path

import limpet
from limpet.paper import two_spheres

if __name__ == "__main__":
    target = limpet.Target(two_spheres, eps=0.005)
    draws = limpet.sample(target, [1.0, 0.0, 0.0], draws=1_000, chains=64)
    limpet.plot(draws).savefig(Path(__file__).with_name("plot.png"), dpi=150)
